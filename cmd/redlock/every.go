package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/redlock"
)

// redlock run --every: the command again and again, on whichever host has the lock.

// checkEvery refuses what makes no sense for a lock that is held from run to run.
func (o *runOptions) checkEvery() error {
	switch {
	case !o.given("every"):
	case o.every <= 0:
		return usage("--every %v: give more than 0", o.every)
	case o.given("max-hold"):
		return usage("--every holds the lock from run to run, and --max-hold ends that: give one of them")
	case o.given("at-least"):
		return usage("--every holds the lock from run to run, so --at-least adds nothing: give one of them")
	case o.kind.read || o.given("semaphore"):
		return usage("--every is for one leader; leave out --read and --semaphore")
	}
	return nil
}

// again leads until a signal ends it, or the lock is not acquired within --wait, or the command cannot be executed. patience
// is --wait, of which the first wait may have used a part already.
func (o *runner) again(ctx context.Context, patience waiting) (code int, reason string, err error) {
	for {
		code, reason, err = o.once(ctx, o.lead)
		if code != exitLost || o.in.stop != nil { // the command's own code is the result only after a signal
			return code, reason, err
		}
		if !o.json {
			say(o.stderr, "%v; waiting for the lock again", err)
		}
		o.patience = patience
	}
}

// lead runs the command again and again under one lease. It ends when the lease is lost, and when a signal told it to. Then
// the result is that of the command, if it ran.
func (o *runner) lead(lease *redlock.Lease) (code int, reason string, err error) {
	clock := redlock.SystemClock()
	first := clock.Now()
	for {
		code, reason, err = o.underLease(lease)
		reapOrphans() // in a container, each run may leave some
		if !errors.As(err, new(*notRunError)) {
			o.report.Runs++
			if code != 0 { // also one that was ended
				o.report.RunsFailed++
			}
		}
		if err != nil || o.in.stop != nil {
			return code, reason, err
		}
		pause := toNext(o.every, clock.Now().Sub(first))
		if code != 0 && !o.json {
			say(o.stderr, "the command failed (%s); it runs again in %v", howItEnded(code, reason), pause.Round(time.Millisecond))
		}
		if err := o.pause(lease, clock.Now().Add(pause)); err != nil {
			return codeOf(err)
		}
	}
}

// toNext is how long it is to the next multiple of the interval.
func toNext(every, sinceFirst time.Duration) time.Duration { return every - sinceFirst%every }

// howItEnded says how the command ended, given its exit code.
func howItEnded(code int, reason string) string {
	if reason == "signal" {
		return fmt.Sprintf("signal %d", code-exitSignal)
	}
	return fmt.Sprintf("exit code %d", code)
}

// pause waits until then. Its error, which has an exit code, is a signal, or that the lease is lost.
func (o *runner) pause(lease *redlock.Lease, until redlock.Instant) error {
	clock := redlock.SystemClock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case s := <-o.in.signals: // there is no command to pass it on to
			if o.in.got(s); o.in.stop != nil {
				return &exitError{o.in.stop.code(), fmt.Errorf("%w between two runs", o.in.stop)}
			}
			continue
		case <-o.in.pauser.asked:
			_ = o.in.pauser.pause() // if it cannot stop, it goes on
		case <-lease.Context().Done():
		case <-timer.C:
		}
		left := until.Sub(clock.Now())
		if left <= 0 || !lease.Valid() {
			return o.lostLease(lease, "between two runs")
		}
		timer.Reset(min(left, longestSleep))
	}
}
