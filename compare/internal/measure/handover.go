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
)

// RunHandover has two clients take one lock from each other, the one always waiting while the other holds,
// and says how long the lock is nobody's between them. It goes on for the setting's time and for at least
// minHandovers.
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
		// Asked in between, so that it is as fast or as slow as the machine was meanwhile.
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
	// The first ones are not counted: connections are made, subscriptions begin.
	unsettled    = 2
	minHandovers = 5
	// The waiting client has waited for a time of this range, so that one that polls is in any phase of it.
	waitMin, waitMax = 5 * time.Millisecond, 25 * time.Millisecond
	// asleepAfter is when a client that still waits for a lock that was released has missed it.
	asleepAfter = 10 * time.Second
)

var errAsleep = fmt.Errorf("it still waited %v after the release", asleepAfter)

type handover struct {
	name     string
	clients  [2]subject.Client // the first one holds the lease
	lease    subject.Lease
	rounds   int
	giveUp   context.CancelCauseFunc // ends all: leases may hang on the context that they were asked for with
	failures atomic.Int64

	afterReturn, afterCall, roundTrips []time.Duration
}

// once hands the lock over, and changes the roles.
func (h *handover) once(ctx context.Context) error {
	type had struct {
		lease subject.Lease
		err   error
		at    time.Time
	}
	got := make(chan had, 1)
	var stopping atomic.Bool
	go func() {
		lease, err := patient(ctx, h.clients[1], h.name, &stopping, func(error) { h.failures.Add(1) })
		got <- had{lease, err, time.Now()}
	}()
	err := sleep(ctx, waitMin+rand.N(waitMax-waitMin))
	called := time.Now()
	err = errors.Join(err, h.lease.Release(context.WithoutCancel(ctx)))
	returned := time.Now()
	asleep := time.AfterFunc(asleepAfter, func() { h.giveUp(errAsleep) })
	next := <-got // also where ctx has ended, since waiting ends with it
	asleep.Stop()
	h.lease = next.lease
	h.clients[0], h.clients[1] = h.clients[1], h.clients[0]
	if err = errors.Join(err, next.err); err != nil {
		return fmt.Errorf("hand-over: %w", cmp.Or(context.Cause(ctx), err))
	}
	if h.rounds++; h.rounds > unsettled {
		// The other may well have it before the release has returned: it hears of it at the same time.
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
