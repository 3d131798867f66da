// Command redlock runs commands under a lock, operates the nodes of a lock, and tests locks.
//
//	redlock demo
//	redlock run --nodes redis://a,redis://b,redis://c nightly -- ./backup.sh
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
)

// The exit codes of redlock itself. From 64 on they follow sysexits(3) if it has a suitable code. 126 and 127 are those
// of a shell.
const (
	exitFailed        = 1
	exitUsage         = 64
	exitNoQuorum      = 69 // EX_UNAVAILABLE
	exitHeld          = 75 // EX_TEMPFAIL
	exitLost          = 76
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the signal's number
)

// An exitError ends the program with a code. Its error is nil if everything was already printed, or if the code is that
// of the command.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == guardCommand {
		guardMain(os.Stdin)
		return
	}
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	// What is no command is wrong usage with --help too. Cobra explains the command above it.
	var unknown error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			unknown = unknownCommand(cmd, cmd.Flags().Args())
		}
		if unknown == nil {
			help(cmd, args)
		}
	})
	for _, above := range append(root.Commands(), root) {
		above.InitDefaultHelpFlag() // or cobra takes what follows --help for its value
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = unknown
	}
	if err == nil {
		return 0
	}
	var exit *exitError
	switch {
	case errors.As(err, &exit):
	case errors.As(err, new(*fs.PathError)): // the output could not be written
		exit = &exitError{exitFailed, err}
	default: // an error of cobra: an unknown command, or a wrong number of arguments
		exit = &exitError{exitUsage, err}
	}
	if exit.err == nil {
		return exit.code
	}
	switch {
	case !wantsJSON(args):
		say(stderr, "%v", exit.err)
	case cmd.Name() == "run" && cmd.Parent() == root: // its standard output belongs to the command
		_ = writeJSON(stderr, failureOf(exit))
	case writeJSON(stdout, failureOf(exit)) != nil: // it is standard output that cannot be written
		say(stderr, "%v", exit.err)
	}
	return exit.code
}

// wantsJSON reports whether --json was given, even if other flags could not be parsed.
func wantsJSON(args []string) (wants bool) {
	for _, arg := range args {
		value, given := strings.CutPrefix(arg, "--json=")
		switch {
		case arg == "--":
			return wants
		case arg == "--json":
			wants = true
		case given: // as cobra reads it: the last one counts
			wants, _ = strconv.ParseBool(value)
		}
	}
	return wants
}

// A jsonFailure is what --json prints if a command failed.
type jsonFailure struct {
	Error string `json:"error,omitempty"`
	Kind  string `json:"kind,omitempty"` // held, no-quorum, lost, no-vote, no-lock, usage, interrupted or failed
}

const kindNoVote = "no-vote"

// A noVoteError is about nodes that have no vote.
type noVoteError struct{ error }

func (f *jsonFailure) failed(err error, kind string) { *f = jsonFailure{oneLine(err.Error()), kind} }

// failedBy enters the error that a command ends with, if there is one.
func (f *jsonFailure) failedBy(err error) {
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		f.failed(exit, exit.kind())
	}
}

func failureOf(exit *exitError) (f jsonFailure) {
	f.failed(exit, exit.kind())
	return f
}

// kind is the name of what went wrong.
func (e *exitError) kind() string {
	switch {
	case errors.As(e.err, new(*noLockError)):
		return "no-lock"
	case errors.As(e.err, new(*noVoteError)):
		return kindNoVote
	}
	return kindOf(e.code)
}

// kindOf returns the name of an exit code.
func kindOf(code int) string {
	switch {
	case code == exitUsage:
		return "usage"
	case code == exitHeld:
		return "held"
	case code == exitNoQuorum:
		return "no-quorum"
	case code == exitLost:
		return "lost"
	case code > exitSignal:
		return "interrupted"
	}
	return "failed"
}

// helpWidth is how long a line of a help text is at most.
const helpWidth = 120

func newRoot() *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:   "redlock",
		Short: "Locks on a quorum of Redis nodes",
		Long: `A lock on three, five or seven independent Redis servers (nodes). Whoever got it from a majority of them, a quorum,
holds it, so the death of one server neither loses a lock nor gives it to two holders.

  redlock demo      shows it, with nothing installed
  redlock doctor    says whether your servers are fit for it, and what to change
  redlock run       runs a command while it holds a lock

The commands find the servers in --nodes, --nodes-file, or the environment variable REDLOCK_NODES. New servers are
enrolled once: redlock enroll --only-new.`,
		Example: "  redlock demo\n" +
			"  export REDLOCK_NODES=redis://a:6379,redis://b:6379,redis://c:6379\n" +
			"  redlock enroll --only-new\n" +
			"  redlock run nightly -- ./backup.sh",
		SilenceErrors: true,
		SilenceUsage:  true,
		// An unknown command is an error, not a request for help.
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return thisVersion().print(cmd.OutOrStdout())
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print the version, as redlock version does")
	root.SetFlagErrorFunc(wrongFlag)
	// Flags are explained in lines as long as those of the text above them.
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)))
	cobra.EnableCommandSorting = false // in the order in which a newcomer needs them
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Use a lock:", []*cobra.Command{newRun(), newInspect(), newTop(), newRelease()}},
		{"Look after the servers:", []*cobra.Command{newEnroll(), newDoctor(), newBench()}},
		{"See and test how locks behave:", []*cobra.Command{newDemo(), newChaos(), newAudit()}},
		{"About this program:", []*cobra.Command{newVersion(), newCompletion(), newMan()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	help := newHelp()
	help.GroupID = root.Groups()[len(root.Groups())-1].ID
	root.SetHelpCommand(help)
	root.CompletionOptions.DisableDefaultCmd = true // newCompletion is ours
	return root
}

// failure adds the exit code to an error of the library.
func failure(err error) error {
	switch {
	case errors.Is(err, redlock.ErrInvalid) && !isOutage(err):
		return &exitError{exitUsage, withFlag(err)}
	case errors.Is(err, redlock.ErrHeld):
		return &exitError{exitHeld, err}
	case errors.Is(err, redlock.ErrNoQuorum):
		return &exitError{exitNoQuorum, err}
	}
	return &exitError{exitFailed, err}
}

// isOutage reports whether a round failed because of nodes that are away. If others refuse this client, because it differs
// from them or names a server twice, the rest of the nodes would still be a quorum.
func isOutage(err error) bool {
	var round *redlock.RoundError
	if !errors.As(err, &round) || !errors.Is(round, redlock.ErrNoQuorum) {
		return false
	}
	refused, all := nodeErrors(err)
	return all-count(refused, isInvalid) >= round.Need
}

// A retoldError replaces the text of an error.
type retoldError struct {
	text string
	err  error
}

func (e *retoldError) Error() string { return e.text }
func (e *retoldError) Unwrap() error { return e.err }

// withFlag names the flag instead of the field, where the library or most of the nodes refused what a flag set.
func withFlag(err error) error {
	text := oneLine(err.Error())
	for field, flag := range map[string]string{"TTL": "--ttl", "MaxTTL": "--max-ttl", "NodeTimeout": "--node-timeout",
		"WithMinHold": "--at-least", "WithOwner": "--owner", "name": "KEY", "permits": "--semaphore"} {
		if rest, found := strings.CutPrefix(text, "invalid: "+field+": "); found {
			if strings.HasPrefix(rest, "it ") || strings.HasPrefix(rest, "the ") {
				flag += ":"
			}
			return errors.New(flag + " " + rest)
		}
	}
	refused, all := nodeErrors(err)
	if 2*count(refused, isDiffering) > all {
		return errors.New(withFlags(text, err))
	}
	return err
}

func isInvalid(err error) bool { return errors.Is(err, redlock.ErrInvalid) }

// isDiffering reports whether a node refused because it holds another configuration.
func isDiffering(err error) bool { return errors.As(err, new(*redlock.ConfigError)) }

// count is how many nodes have such an error.
func count(errs []*redlock.NodeError, such func(error) bool) (n int) {
	for _, err := range errs {
		if such(err) {
			n++
		}
	}
	return n
}

// nodeErrors are the errors of the nodes, and how many nodes were asked, if err is that of a round.
func nodeErrors(err error) (errs []*redlock.NodeError, all int) {
	var round *redlock.RoundError
	if !errors.As(err, &round) || round.Err == nil {
		return nil, 0
	}
	for _, err := range round.Err.Errors {
		var node *redlock.NodeError
		if errors.As(err, &node) {
			errs = append(errs, node)
		}
	}
	return errs, round.Granted + round.Denied + round.Unknown
}
