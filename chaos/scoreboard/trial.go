package scoreboard

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
)

// A Trial is one run: one subject in one scenario, with one seed.
type Trial struct {
	Scenario scenario.Scenario
	Subject  subject.Subject
	Seed     uint64
}

// Each runs the trials, one after another, with what the options say otherwise. It logs which one begins, and how long the
// rest may take. done gets what chaos.Run returned. Each ends early if done returns an error, or if ctx ends; then done
// does not get the run that was cut short.
func Each(
	ctx context.Context, o chaos.Options, trials []Trial, log io.Writer, done func(Trial, *chaos.Outcome, error) error,
) error {
	var took pace
	for i, t := range trials {
		fmt.Fprintf(log, "[%d/%d] %s: %s, seed %d%s\n", i+1, len(trials), t.Scenario.Name, t.Subject.Name(), t.Seed, took.left(trials[i:]))
		o.Scenario, o.Subject, o.Seed = t.Scenario.Name, t.Subject, t.Seed
		began := time.Now()
		outcome, err := chaos.Run(ctx, o)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		took.add(t, time.Since(began))
		if err := done(t, outcome, err); err != nil {
			return err
		}
	}
	return nil
}

// A pace is how long the runs of each scenario took. Scenarios differ: some wait for several TTLs.
type pace struct {
	all  mean
	each map[string]mean
}

type mean struct {
	total time.Duration
	n     int
}

func (m mean) of() time.Duration { return m.total / time.Duration(max(1, m.n)) }

func (p *pace) add(t Trial, took time.Duration) {
	if p.each == nil {
		p.each = map[string]mean{}
	}
	one := p.each[t.Scenario.Name]
	p.each[t.Scenario.Name] = mean{one.total + took, one.n + 1}
	p.all = mean{p.all.total + took, p.all.n + 1}
}

// left says how long these trials may take, once something is known of that.
func (p *pace) left(trials []Trial) string {
	if p.all.n == 0 {
		return ""
	}
	var sum time.Duration
	for _, t := range trials {
		if one, ran := p.each[t.Scenario.Name]; ran {
			sum += one.of()
		} else {
			sum += p.all.of()
		}
	}
	if sum < time.Minute {
		return fmt.Sprintf(" (about %.0f s left)", sum.Seconds())
	}
	return fmt.Sprintf(" (about %.0f min left)", sum.Minutes())
}
