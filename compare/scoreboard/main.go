// Command scoreboard is redlock chaos scoreboard with other lock libraries as subjects.
//
//	go run ./scoreboard --help
//	go run ./scoreboard --resume board.json --out board.md    # everything: more than an hour
//
// It starts its own servers, with the redis-server on PATH, and stops them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/quorumlock/redlock/chaos/scoreboard"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/chaos/traffic"
	peers "github.com/quorumlock/redlock/compare/internal/subject"
)

// The exit codes are those of redlock chaos.
const (
	exitUnable = 2
	exitUsage  = 64
	exitSignal = 128
)

// clientCommand makes this program the client that a scenario stops or kills.
const clientCommand = "chaos-client"

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// known are the subjects: this library, the others, and then the baselines of the harness.
func known() []subject.Subject {
	return append(append([]subject.Subject{subject.Redlock{}}, peers.Peers()...), subject.Baselines()...)
}

// columns are the names of the default subjects.
func columns() string {
	names := []string{subject.Redlock{}.Name()}
	for _, p := range peers.Peers() {
		names = append(names, p.Name())
	}
	return strings.Join(names, ",")
}

func find(name string) (subject.Subject, error) {
	for _, s := range known() {
		if s.Name() == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("there is no subject %q", name)
}

// replay is the command of this program that repeats a run, and keeps its history.
func replay(s scoreboard.Settings, t scoreboard.Trial) string {
	return fmt.Sprintf("(cd compare && go run ./scoreboard --scenario %s --subject %s --fleet %s --seconds %v --seed %d --seeds 1 --histories .)",
		t.Scenario.Name, t.Subject.Name(), s.Fleet, s.Seconds, t.Seed)
}

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == clientCommand {
		if err := traffic.ServeChild(ctx, os.Stdin, stdout, find); err != nil {
			fmt.Fprintln(stderr, "scoreboard:", err)
			return exitUnable
		}
		return 0
	}
	command := &scoreboard.Command{Known: known(), Default: columns(), Replay: replay}
	if self, err := os.Executable(); err == nil { // else scenarios that need it are left out by name
		command.Child = []string{self, clientCommand}
	}
	flags := flag.NewFlagSet("scoreboard", flag.ContinueOnError)
	flags.SetOutput(stderr)
	command.Flags(flags)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage // the flag set has said why
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "scoreboard: it takes flags only, but %q is none\n", flags.Arg(0))
		return exitUsage
	}
	ctx, stopped, end := interruptible(ctx)
	defer end()
	b, err := command.Run(ctx, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "scoreboard:", err)
	}
	switch {
	case errors.As(err, new(scoreboard.UsageError)):
		return exitUsage
	case err != nil && stopped() != 0:
		return exitSignal + int(stopped())
	case err != nil:
		return exitUnable
	}
	return command.Code(b)
}

// interruptible ends the context at a signal, so that everything that was started is cleaned up. stopped is the signal; 0:
// there was none.
func interruptible(ctx context.Context) (_ context.Context, stopped func() syscall.Signal, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals) // a second one ends it at once
			cancel(stopSignal{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	stopped = func() syscall.Signal {
		var s stopSignal
		errors.As(context.Cause(ctx), &s)
		return s.Signal
	}
	return ctx, stopped, func() { signal.Stop(signals); cancel(nil) }
}

type stopSignal struct{ syscall.Signal }

func (s stopSignal) Error() string { return "interrupted by the signal " + s.Signal.String() }
