package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/quorumlock/redlock"
)

// A runReport is what --json prints at the end.
type runReport struct {
	Key           string   `json:"key"`
	Keys          []string `json:"keys"`
	Fence         uint64   `json:"fence"` // 0: the lock was not acquired
	WaitedSeconds float64  `json:"waited_seconds"`
	HeldSeconds   float64  `json:"held_seconds"`
	ExitCode      int      `json:"exit_code"`
	Reason        string   `json:"reason"`                  // exited, signal, or a kind of failure
	Detail        string   `json:"detail,omitempty"`        // the failure, or why the lock was not released
	OtherPermits  int      `json:"other_permits,omitempty"` // how many permits others give the semaphore, if that is another number
	Runs          int      `json:"runs,omitempty"`          // with --every: how often the command ran
	RunsFailed    int      `json:"runs_failed,omitempty"`   // how many of these did not exit with 0
	jsonFailure
}

// runReported runs the command under the lock, and reports it with --json.
func runReported(ctx context.Context, o *runOptions, args []string, dash int) error {
	r := &runReport{Keys: []string{}}
	var code int
	var reason string
	err := o.parse(args, dash)
	if len(o.keys) > 0 {
		r.Key, r.Keys = o.keys[0], o.keys
	}
	if err != nil {
		code, reason, err = codeOf(err)
	} else {
		code, reason, err = lockAndRun(ctx, o, r)
	}
	r.ExitCode, r.Reason = code, reason
	if !o.json {
		return &exitError{code, err}
	}
	if err != nil {
		r.failed(err, reason)
		r.Detail = r.Error
	}
	_ = writeJSON(o.stderr.to, r) // where that fails, nobody could read why: the code is left to tell what happened
	return &exitError{code, nil}
}

func lockAndRun(ctx context.Context, o *runOptions, r *runReport) (code int, reason string, err error) {
	defer o.stderr.flush() // last, when the lock is free and signals end redlock again
	in := newInbox()
	defer in.close()

	journal, err := openJournal(o.journal)
	if err != nil {
		return codeOf(err)
	}
	defer func() { o.reportJournal(r, journal.close()) }() // after the client was closed
	var nodes []redlock.Node
	closeNodes, err := unlessStopped(ctx, in, func(ctx context.Context) (closeNodes func(), err error) {
		nodes, closeNodes, err = o.openNodes(ctx)
		return closeNodes, err
	})
	if closeNodes != nil {
		defer closeNodes()
	}
	if err != nil {
		return codeOf(err)
	}
	notice, renewals := &waitNotice{o: o}, &renewalNotice{}
	defer func() { r.OtherPermits = int(notice.permits.Load()) }()
	if !o.json {
		renewals.stderr = o.stderr
	}
	began, patience := time.Now(), o.patience
	cfg, err := unlessStopped(ctx, in, func(ctx context.Context) (redlock.Config, error) {
		return o.awaitConfig(ctx, nodes, journal.of(redlock.Hooks{Refused: notice.refused, Extended: renewals.extended, ExtendFailed: renewals.failed}))
	})
	waited := time.Since(began)
	r.WaitedSeconds = inSeconds(waited)
	if err != nil {
		return codeOf(err)
	}
	if err := o.checkTimes(cfg.TTL, cmp.Or(cfg.MaxTTL, usualMaxTTL)); err != nil {
		return codeOf(err)
	}
	// With less validity, the command would be ended as soon as it started.
	length := o.kind.length(cfg.TTL)
	cfg.MinValidity = o.killAfter + margin(length)
	client, err := o.start(ctx, cfg)
	if err != nil {
		return codeOf(err)
	}
	defer client.Close()
	journal.watch(client)

	lock := o.kind.lock(client, o.keys).WithOwner(o.owner)
	work := &runner{runOptions: o, client: client, lock: lock, notice: notice, renewals: renewals,
		in: in, length: length, report: r, waited: waited}
	if o.every > 0 {
		return work.again(ctx, patience)
	}
	return work.once(ctx, work.underLease)
}

// reportJournal tells what is wrong with the journal. The work ended as it did.
func (o *runOptions) reportJournal(r *runReport, err error) {
	switch {
	case err == nil:
	case !o.json:
		say(o.stderr, "%v", err)
	case r.Detail == "":
		r.Detail = oneLine(err.Error())
	}
}

// A runner is a redlock run that is connected: it takes the lock and works under it, once or again and again.
type runner struct {
	*runOptions
	client   *redlock.Client
	lock     redlock.Lock
	notice   *waitNotice
	renewals *renewalNotice
	in       *inbox
	length   time.Duration // of a lease without a renewal
	report   *runReport

	waited, held time.Duration // in all
}

// once waits for the lock, does the work under it, and releases it.
func (o *runner) once(ctx context.Context, work func(*redlock.Lease) (int, string, error)) (code int, reason string, err error) {
	r, began := o.report, time.Now()
	stopNotice := o.notice.start(ctx, o.client)
	lease, err := unlessStopped(ctx, o.in, func(ctx context.Context) (*redlock.Lease, error) { return o.acquire(ctx, o.client, o.lock) })
	if stopNotice(); lease != nil && err != nil { // stopped at the moment when it was acquired
		_ = o.release(ctx, o.client, lease, false)
	}
	acquired := time.Now()
	o.waited += acquired.Sub(began)
	r.WaitedSeconds = inSeconds(o.waited)
	if err != nil {
		o.notice.comparePermits(err) // the hook may still be on its way
		return codeOf(err)
	}
	r.Fence = lease.Fence()
	stopNotice = o.renewals.watch(lease)
	code, reason, err = work(lease)
	stopNotice()
	lost := !lease.Valid()
	released := o.release(ctx, o.client, lease, !errors.As(err, new(*notRunError)))
	o.held += time.Since(acquired)
	r.HeldSeconds = inSeconds(o.held)
	switch {
	case err != nil || lost || released == nil:
	case errors.Is(released, redlock.ErrLost):
		return exitLost, kindOf(exitLost), fmt.Errorf("%s while the command ran; the command ended before redlock noticed (exit code %d)",
			takenAway(released), code)
	case o.json:
		r.Detail = notReleased(released)
	default:
		say(o.stderr, "%s", notReleased(released))
	}
	return code, reason, err
}

func notReleased(err error) string {
	return "it is not known whether the lock was released; if not, it expires by itself: " + sentence(err)
}

// release ends the lease. If the command never ran, a minimum hold ends with it: others may do its work.
func (o *runOptions) release(ctx context.Context, client *redlock.Client, lease *redlock.Lease, ran bool) error {
	ctx = context.WithoutCancel(ctx)
	err := lease.Release(ctx)
	if !ran && o.kind.atLeast > 0 {
		for _, key := range o.keys {
			_ = client.ReleaseToken(ctx, key, lease.Token()) // what fails here expires
		}
	}
	return err
}

// inSeconds leaves out what is less than a millisecond.
func inSeconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}

// unlessStopped does what comes before the command. Until that is done, signals end it: there is no command to pass them
// to. If one came at the very end, it returns both what was done and the signal.
func unlessStopped[T any](ctx context.Context, in *inbox, do func(context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			case <-in.pauser.asked:
				_ = in.pauser.pause() // if it cannot stop, it goes on
			case s := <-in.signals:
				if sig := s.(syscall.Signal); stops(sig) {
					nextEnds(in.signals)
					stop(&stopSignal{sig})
					return
				}
			}
		}
	}()
	result, err := do(ctx)
	close(over)
	<-done
	if stopped := (*stopSignal)(nil); errors.As(context.Cause(ctx), &stopped) {
		return result, &exitError{stopped.code(), fmt.Errorf("%w before the lock was acquired", stopped)}
	}
	return result, err
}

// codeOf returns the parts of an exitError.
func codeOf(err error) (code int, reason string, _ error) {
	exit := &exitError{exitFailed, err}
	errors.As(err, &exit)
	return exit.code, exit.kind(), exit.err
}
