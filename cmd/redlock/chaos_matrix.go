package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
)

// newChaosMatrix is redlock chaos matrix: the table of docs/failover.md.
func newChaosMatrix() *cobra.Command {
	var kind string
	var seed uint64
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Run every subject that a scenario is hard on, and print a table in Markdown",
		Long: `Runs each scenario with this library and with each baseline that it is known to be unsafe in, as shortly as
the scenario allows, and prints a row for each, in Markdown. It takes some minutes.

Exit code: 0 this library was safe in all and each baseline unsafe in its own, 1 not so, 2 it could not run.`,
		Example: "  redlock chaos matrix --fleet process > table.md",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return matrix(ctx, chaos.Options{Fleet: kind, Seed: seed}, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&kind, "fleet", "process", "embedded, process or docker")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "of what is done at random")
	return cmd
}

func matrix(ctx context.Context, o chaos.Options, out, progress io.Writer) error {
	o.Length, o.Child = time.Second, childCommand()
	fmt.Fprintln(out, "| scenario | subject | verdict | overlaps | overlap, ms | lost updates | stale writes, fenced / not | orphans past TTL | first acquire after the fault, ms |\n"+
		"| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	expected, ran := true, 0
	plays := scenario.All()
	for i, play := range plays {
		for _, name := range append([]string{"redlock"}, play.Fails...) {
			fmt.Fprintf(progress, "[%d/%d] %s: %s\n", i+1, len(plays), play.Name, name)
			o.Scenario = play.Name
			var err error
			if o.Subject, err = subject.ByName(name); err != nil {
				return &exitError{exitUnable, err}
			}
			outcome, err := chaos.Run(ctx, o)
			switch {
			case ctx.Err() != nil:
				return &exitError{exitSignal + 2, ctx.Err()}
			case errors.Is(err, chaos.ErrUnable):
				say(progress, "%v", err)
				continue
			case err != nil:
				return &exitError{exitUnable, err}
			}
			ran++
			expected = expected && (name == "redlock") == (outcome.Verdict == "safe")
			printRow(out, outcome)
		}
	}
	switch {
	case ran == 0:
		return unable("no scenario can be done on the %s fleet", o.Fleet)
	case !expected:
		return &exitError{exitFailed, errors.New("not every verdict is the one that docs/failover.md expects")}
	}
	return nil
}

func printRow(out io.Writer, o *chaos.Outcome) {
	first := "–"
	if ms := o.FirstAcquireAfterFault; ms != nil {
		first = fmt.Sprintf("%.0f", *ms)
	}
	verdict := string(o.Verdict)
	if o.Verdict != "safe" {
		verdict = "**" + verdict + "**"
	}
	fmt.Fprintf(out, "| %s | %s | %s | %d | %.0f | %d | %d / %d | %d | %s |\n", o.Scenario, o.Subject, verdict, o.Overlaps, o.OverlapTime,
		o.LostUpdates, o.FencedStaleAccepted, o.StaleWritesAccepted-o.FencedStaleAccepted, o.OrphansPast, first)
}
