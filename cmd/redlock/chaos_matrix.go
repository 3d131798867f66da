package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock/chaos"
	chaoscheck "github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/report"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/scoreboard"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/internal/fleet"
)

// newChaosMatrix is redlock chaos matrix, which makes the table in docs/failover.md.
func newChaosMatrix() *cobra.Command {
	var kind, which string
	var seed uint64
	asJSON := false
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Run every scenario with this library and the locks that fail it, and print a Markdown table",
		Long: `Runs each scenario with this library, and with each baseline that is known to be unsafe in it. Some scenarios are run
with every kind of lock of this library. Each run is as short as the scenario allows. Prints one row per run, as a
Markdown table. This takes several minutes.

Exit code: 0 this library was always safe and each baseline unsafe where it should be, 1 otherwise, 2 it could not run,
64 usage, 128+n if signal n ended it (130: INT).`,
		Example: "  redlock chaos matrix --fleet process > table.md",
		Args:    takesNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plays, err := playsOf(which)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			o := chaos.Options{Fleet: kind, Seed: seed, Subject: subject.Redlock{}}
			if err := o.Validate(); err != nil {
				return &exitError{exitUsage, err}
			}
			if err := fleet.Available(fleet.Kind(kind)); err != nil {
				return &exitError{exitUnable, err}
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			ctx, progress := untilBroken(ctx, cmd.ErrOrStderr())
			rows := markdownRow
			if asJSON {
				rows = nil
			}
			return matrix(ctx, o, plays, rows, cmd.OutOrStdout(), progress)
		},
	}
	cmd.Flags().StringVar(&which, "scenario", allScenarios, "names, separated by commas, or all")
	cmd.Flags().StringVar(&kind, "fleet", "process", "embedded, process or docker")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of everything that is random")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object at the end, as in report.json, instead of the table")
	return cmd
}

// oursIn returns the subjects of this library that are run in a scenario: the mutex, and in some all kinds of locks.
func oursIn(play scenario.Scenario) (names []string) {
	for _, s := range subject.Ours() {
		if play.Kinds || len(names) == 0 {
			names = append(names, s.Name())
		}
	}
	return names
}

const markdownHead = "| scenario | subject | verdict | overlaps | overlap, ms | lost updates | stale writes, fenced / not | orphans past TTL | first acquire after the fault, ms |\n" +
	"| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"

// A matrixResult is what --json prints: the runs, and whether each verdict is the expected one.
type matrixResult struct {
	jsonFailure
	Expected bool         `json:"expected"`
	Runs     []report.Run `json:"runs"`
	LeftOut  []leftOut    `json:"left_out,omitempty"`
}

// end is how a matrix ends whose runs are over.
func (r *matrixResult) end(kind string) (code int, why error) {
	switch {
	case len(r.Runs) == 0:
		return exitUnable, fmt.Errorf("no scenario can be done on the %s fleet", kind)
	case !r.Expected:
		return exitFailed, errors.New("not every verdict is the one that " + docsURL + "failover.md expects")
	}
	return 0, nil
}

// matrix writes each row as soon as its run has ended. If row is nil, it writes everything at the end, as JSON.
func matrix(ctx context.Context, o chaos.Options, plays []scenario.Scenario, row func(*chaos.Outcome) string, out, progress io.Writer) error {
	o.Length, o.Child = time.Second, childCommand()
	if row != nil {
		if _, err := fmt.Fprint(out, markdownHead); err != nil {
			return &exitError{exitUnable, err}
		}
	}
	trials, err := matrixTrials(plays, o.Seed)
	if err != nil {
		return &exitError{exitUnable, err}
	}
	result := matrixResult{Expected: true, Runs: []report.Run{}}
	err = scoreboard.Each(ctx, o, trials, progress, func(t scoreboard.Trial, outcome *chaos.Outcome, err error) error {
		switch {
		case errors.Is(err, chaos.ErrUnable):
			say(progress, "%v", err)
			result.LeftOut = append(result.LeftOut, leftOut{t.Scenario.Name, err.Error()})
			return nil
		case err != nil:
			return err
		}
		if !asExpected(t.Subject.Name(), outcome) {
			result.Expected = false
			complain(progress, outcome)
		}
		result.Runs = append(result.Runs, runOf(outcome))
		if row == nil {
			return nil
		}
		_, err = fmt.Fprint(out, row(outcome))
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return &exitError{stoppedCode(ctx), context.Cause(ctx)}
	case err != nil:
		return &exitError{exitUnable, err}
	}
	result.Expected = result.Expected && len(result.Runs) > 0
	code, why := result.end(o.Fleet)
	if row == nil {
		if why != nil {
			result.failed(why, kindOf(code))
			why = nil // it is in the object
		}
		if err := writeJSON(out, result); err != nil {
			return &exitError{exitUnable, err}
		}
	}
	if code != 0 {
		return &exitError{code, why}
	}
	return nil
}

// matrixTrials are the runs of the matrix: in each scenario this library, and the baselines that are unsafe in it.
func matrixTrials(plays []scenario.Scenario, seed uint64) (trials []scoreboard.Trial, err error) {
	for _, play := range plays {
		for _, name := range append(oursIn(play), play.Fails...) {
			s, err := subject.ByName(name)
			if err != nil {
				return nil, err
			}
			trials = append(trials, scoreboard.Trial{Scenario: play, Subject: s, Seed: seed})
		}
	}
	return trials, nil
}

// asExpected reports whether the outcome is the expected one: safe for a lock of this library, unsafe for the others. A
// scenario that was aborted, or a lock that panicked, shows no safety.
func asExpected(name string, o *chaos.Outcome) bool {
	if !subject.IsOurs(name) {
		return o.Verdict == chaoscheck.Unsafe
	}
	return o.Verdict == chaoscheck.Safe && o.Error == "" && len(o.Panics) == 0
}

func markdownRow(o *chaos.Outcome) string {
	first := "–"
	if ms := o.FirstAcquireAfterFault; ms != nil {
		first = fmt.Sprintf("%.0f", *ms)
	}
	verdict := string(o.Verdict)
	if o.Verdict != chaoscheck.Safe {
		verdict = "**" + verdict + "**"
	}
	if o.Error != "" {
		verdict += ", aborted"
	}
	if len(o.Panics) > 0 {
		verdict += ", panicked"
	}
	if len(o.LeftOut) > 0 {
		verdict += fmt.Sprintf(", %d not checked", len(o.LeftOut))
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %.0f | %d | %d / %d | %d | %s |\n", o.Scenario, o.Subject, verdict, o.Overlaps, o.OverlapTime,
		o.LostUpdates, o.FencedStaleAccepted, o.StaleWritesAccepted-o.FencedStaleAccepted, o.OrphansPast, first)
}
