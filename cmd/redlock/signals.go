package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// What signals do to a command of redlock. redlock run passes them on while its command runs; see child.forward.

// A stopSignal is the signal that ended a command of redlock.
type stopSignal struct{ sig syscall.Signal }

func (s *stopSignal) Error() string { return "interrupted by " + signalName(s.sig) }
func (s *stopSignal) code() int     { return exitSignal + int(s.sig) }

func signalName(sig syscall.Signal) string {
	switch sig {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGQUIT:
		return "SIGQUIT"
	case syscall.SIGPIPE:
		return "SIGPIPE"
	}
	return "a signal (" + sig.String() + ")"
}

// An inbox has the signals that come to redlock run.
type inbox struct {
	signals chan os.Signal
	pauser  *pauser     // hears of a pause once a command has run in a process group of its own
	stop    *stopSignal // the first that was got and tells redlock to end; nil: none
}

// newInbox begins to catch the signals, until it is closed.
func newInbox() *inbox {
	in := &inbox{signals: make(chan os.Signal, 16), pauser: newWriterPauser()}
	listen(in.signals)
	return in
}

func (in *inbox) close() {
	signal.Stop(in.signals)
	in.pauser.close()
}

// got remembers that a signal came.
func (in *inbox) got(s os.Signal) syscall.Signal {
	sig := s.(syscall.Signal)
	if in.stop == nil && stops(sig) {
		in.stop = &stopSignal{sig}
	}
	return sig
}

// interruptible ends the context at INT, TERM, HUP and QUIT, so that everything that was started is cleaned up:
// containers, for example, would outlive a terminal that is closed, and a terminal would stay without a cursor. Whoever
// does not want to wait for that sends a second one.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	notify(signals, stops)
	go func() {
		select {
		case s := <-signals:
			nextEnds(signals)
			cancel(&stopSignal{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// untilBroken also ends the context when nobody reads from w any more, as in redlock chaos run 2>&1 | head. Otherwise that
// would end the process at once, with nothing cleaned up.
func untilBroken(ctx context.Context, w io.Writer) (context.Context, io.Writer) {
	outliveReaders()
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &brokenPipe{w, cancel}
}

type brokenPipe struct {
	io.Writer
	end context.CancelCauseFunc
}

func (p *brokenPipe) Write(text []byte) (int, error) {
	n, err := p.Writer.Write(text)
	if errors.Is(err, syscall.EPIPE) {
		p.end(&stopSignal{syscall.SIGPIPE})
	}
	return n, err
}

// sameSignal is how long a second signal counts as the first. A terminal that closes, and a wrapper that passes on what
// was typed, send two at once.
const sameSignal = 300 * time.Millisecond

// nextEnds lets the signals of a channel end redlock at once, as they end a program that does not handle them.
func nextEnds(signals chan<- os.Signal) {
	time.AfterFunc(sameSignal, func() { signal.Stop(signals) })
}

// unlessEnded does what may wait for others for ever, as reading a pipe does. If the context ends before that is done, it
// goes on, and redlock ends.
func unlessEnded(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stoppedBy is the signal that ended an interruptible context; nil: none did.
func stoppedBy(ctx context.Context) (stopped *stopSignal) {
	errors.As(context.Cause(ctx), &stopped)
	return stopped
}

// stoppedCode is the exit code of a command whose interruptible context has ended before the command did.
func stoppedCode(ctx context.Context) int {
	if stopped := stoppedBy(ctx); stopped != nil {
		return stopped.code()
	}
	return exitSignal + int(syscall.SIGINT)
}

// stoppable does what a command does until a signal ends it, and says which.
func stoppable(cmd *cobra.Command, do func(ctx context.Context) error) error {
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	err := do(ctx)
	if stopped := stoppedBy(ctx); err != nil && stopped != nil {
		return &exitError{stopped.code(), stopped}
	}
	return err
}
