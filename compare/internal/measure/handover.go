package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/compare/internal/subject"
	"github.com/quorumlock/redlock/internal/sleep"
)

// RunHandover lets two clients hand one lock back and forth: one always waits while the other holds it. It measures how
// long nobody holds the lock in between. It runs for the time of the setting, and for at least minHandovers.
func RunHandover(ctx context.Context, set Setting, s subject.Subject, fault Fault) (sample Sample, err error) {
	defer func() { err = errors.Join(err, set.Servers.Heal()) }()
	if err := fault.before(set.Servers); err != nil {
		return nil, err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	h := &handover{name: set.Prefix + "/hot", giveUp: giveUp}
	defer func() { err = errors.Join(err, h.close()) }()
	for i := range h.clients {
		if h.clients[i], err = s.Open(ctx, subject.Options{URLs: set.Servers.URLs(), Goroutines: 2}); err != nil {
			return nil, err
		}
	}
	if h.lease, err = h.clients[0].Acquire(ctx, h.name); err != nil {
		return nil, err
	}
	for began := time.Now(); time.Since(began) < set.Time || len(h.afterReturn) < minHandovers; {
		if err := h.once(ctx); err != nil {
			return nil, err
		}
		// Measured in between, so that it reflects the speed of the machine at that time.
		rtt, err := set.Servers.RoundTrip(ctx)
		if err != nil {
			return nil, err
		}
		h.roundTrips = append(h.roundTrips, rtt)
	}
	if err := h.lease.Release(ctx); err != nil {
		return nil, err
	}
	h.lease = nil
	left, err := set.Servers.Sweep(ctx)
	if err != nil {
		return nil, err
	}
	after, full, rtt := middle(h.afterReturn), middle(h.afterCall), middle(h.roundTrips)
	return Sample{
		RTT: micros(rtt), Full: micros(full), Handover: micros(after), Leftovers: float64(left), Failures: float64(h.failures.Load()),
		HandoverRTT: float64(after) / float64(rtt), FullRTT: float64(full) / float64(rtt),
	}, nil
}

const (
	// The first hand-overs are not counted: connections and subscriptions are being opened.
	unsettled    = 2
	minHandovers = 5
	// The client waits for a random time in this range, so that a poller can be in any phase of its interval.
	waitMin, waitMax = 5 * time.Millisecond, 25 * time.Millisecond
	// asleepAfter is how long after the release a waiting client counts as having missed it.
	asleepAfter = 10 * time.Second
)

var errAsleep = fmt.Errorf("it still waited %v after the release", asleepAfter)

type handover struct {
	name     string
	clients  [2]subject.Client // the first one holds the lease
	lease    subject.Lease
	rounds   int
	giveUp   context.CancelCauseFunc // ends everything; leases may depend on the context of their acquire
	failures atomic.Int64

	afterReturn, afterCall, roundTrips []time.Duration
}

// once hands the lock over, and changes the roles.
func (h *handover) once(ctx context.Context) error {
	type acquired struct {
		lease subject.Lease
		err   error
		at    time.Time
	}
	got := make(chan acquired, 1)
	var stopping atomic.Bool
	go func() {
		lease, err := patient(ctx, h.clients[1], h.name, &stopping, func(error) { h.failures.Add(1) })
		got <- acquired{lease, err, time.Now()}
	}()
	err := sleep.For(ctx, waitMin+rand.N(waitMax-waitMin))
	called := time.Now()
	err = errors.Join(err, h.lease.Release(context.WithoutCancel(ctx)))
	returned := time.Now()
	asleep := time.AfterFunc(asleepAfter, func() { h.giveUp(errAsleep) })
	next := <-got // arrives even if ctx has ended, because that ends the wait
	asleep.Stop()
	h.lease = next.lease
	h.clients[0], h.clients[1] = h.clients[1], h.clients[0]
	if err = errors.Join(err, next.err); err != nil {
		return fmt.Errorf("hand-over: %w", cmp.Or(context.Cause(ctx), err))
	}
	if h.rounds++; h.rounds > unsettled {
		// The other client may have the lock before the release returns, because it is notified at the same time.
		h.afterReturn = append(h.afterReturn, max(0, next.at.Sub(returned)))
		h.afterCall = append(h.afterCall, next.at.Sub(called))
	}
	return nil
}

func (h *handover) close() error {
	var errs []error
	if h.lease != nil {
		errs = append(errs, h.lease.Release(context.Background()))
	}
	for _, client := range h.clients {
		if client != nil {
			errs = append(errs, client.Close())
		}
	}
	return errors.Join(errs...)
}

func middle(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
