package scoreboard

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
)

// Options say what is run.
type Options struct {
	Settings
	Scenarios []scenario.Scenario // the rows
	Subjects  []subject.Subject   // the columns
	Child     []string            // as in chaos.Options
	// Replay returns the command that repeats a run.
	Replay func(Settings, Trial) string
	// Before has runs that are not to be done again. nil: none.
	Before *Board
	// Done is called after each run, with its history. nil: nothing is called.
	Done func(b *Board, t Trial, r Run, history []byte) error
	Log  io.Writer // the progress
}

// chaos are the options of a run, without what makes it a trial.
func (s Settings) chaos() chaos.Options {
	return chaos.Options{
		Fleet: s.Fleet, Nodes: s.Nodes, Clients: s.Clients, TTL: time.Duration(s.TTL) * time.Millisecond,
		Length: time.Duration(s.Seconds * float64(time.Second)),
	}
}

// trials are all runs of the board: the first seed everywhere, then the next. So what is there when it is broken off says
// as much as it can of all scenarios and subjects.
func (o *Options) trials() (all []Trial) {
	for i := range o.Seeds {
		for _, play := range o.Scenarios {
			for _, s := range o.Subjects {
				all = append(all, Trial{play, s, o.Seed + uint64(i)})
			}
		}
	}
	return all
}

// Do does the runs that are not done yet. If ctx ends, it returns the board as it is by then, and why.
func Do(ctx context.Context, o Options) (*Board, error) {
	b, err := o.board()
	if err != nil {
		return nil, err
	}
	return b, o.fill(ctx, b)
}

// fill does the runs that the board does not have.
func (o *Options) fill(ctx context.Context, b *Board) error {
	wanted := o.trials()
	trials := slices.DeleteFunc(slices.Clone(wanted), b.has)
	if had := len(wanted) - len(trials); had > 0 {
		fmt.Fprintf(o.Log, "%d of %d runs are there already\n", had, len(wanted))
	}
	options := o.chaos()
	options.Child = o.Child
	return Each(ctx, options, trials, o.Log, func(t Trial, outcome *chaos.Outcome, err error) error {
		r := runOf(t.Seed, outcome, err, o.Replay(o.Settings, t))
		b.add(t.Scenario.Name, t.Subject.Name(), r)
		r.log(o.Log, t.Scenario.Name)
		if o.Done == nil {
			return nil
		}
		var history []byte
		if outcome != nil {
			history = outcome.History
		}
		return o.Done(b, t, r, history)
	})
}

// log says what a run showed, unless it was safe.
func (r Run) log(w io.Writer, scenario string) {
	what := string(r.Verdict)
	switch {
	case r.Verdict == check.Safe:
		return
	case r.Verdict == "":
		what = "not run"
	case len(r.Violations) > 0:
		what += ", " + words(r.Violations[0])
	}
	fmt.Fprintf(w, "  %s: %s\n", what, r.why(scenario))
	if r.Cause != "" {
		fmt.Fprintf(w, "    cause: %s\n", plain(r.Cause))
	}
}
