package main

import (
	"context"
	"errors"
	"flag"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock/chaos/scoreboard"
	"github.com/quorumlock/redlock/chaos/subject"
)

// newChaosScoreboard is redlock chaos scoreboard. With other libraries, it is the program in compare/scoreboard.
func newChaosScoreboard() *cobra.Command {
	board := &scoreboard.Command{
		Known: subject.All(), Default: "redlock,plain-redlock,watchdog,single", Child: childCommand(), Replay: scoreboard.Redlock,
	}
	cmd := &cobra.Command{
		Use:   "scoreboard",
		Short: "Run every scenario with several subjects and several seeds, and print one table",
		Long: `Runs each scenario with each subject, once for each seed, and prints a table: a row for each scenario, a column for
each subject. A cell says how many of its runs were unsafe, and one kind of violation: unsafe 3/5: overlap (503 ms).
All subjects are judged alike. Below the table is what did not run, and why.

Everything takes more than an hour. Progress is printed on standard error, with the time left. If a signal ends it, the
table has what ran until then. With --resume FILE the runs are kept in that file, and the same command goes on.

Each run in FILE, and in the object of --json, has the command that repeats it.

Exit code: 0 every run was safe, 1 at least one was unsafe, 2 it could not run, or a run was unsure or failed, or a
scenario that you named could not run, 64 usage, 128+n if signal n ended it (130: INT).`,
		Example: "  redlock chaos scoreboard --resume board.json --out board.md\n" +
			"  redlock chaos scoreboard --scenario failover,restart-empty --subject redlock,single --seeds 2",
		Args: takesNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			ctx, progress := untilBroken(ctx, cmd.ErrOrStderr())
			b, err := board.Run(ctx, cmd.OutOrStdout(), progress)
			switch {
			case errors.As(err, new(scoreboard.UsageError)):
				return &exitError{exitUsage, err}
			case err != nil && ctx.Err() != nil:
				say(progress, "%v", context.Cause(ctx))
				return &exitError{stoppedCode(ctx), nil}
			case err != nil && b != nil: // the board is printed, with --json together with the error
				say(cmd.ErrOrStderr(), "%v", err)
				return &exitError{exitUnable, nil}
			case err != nil:
				return &exitError{exitUnable, err}
			}
			if code := board.Code(b); code != 0 {
				return &exitError{code, nil}
			}
			return nil
		},
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	board.Flags(flags)
	cmd.Flags().AddGoFlagSet(flags)
	return cmd
}
