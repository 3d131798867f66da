package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/compare/internal/subject"
	"github.com/quorumlock/redlock/internal/sleep"
)

// scaleGoroutines acquire and release the leases.
const scaleGoroutines = 256

// RunScale lets one client hold and renew many leases for a while. It measures their cost and how many were lost.
func RunScale(ctx context.Context, set Setting, s subject.Subject, leases int, ttl time.Duration, progress func(string)) (sample Sample, err error) {
	before, goroutines := heap(), runtime.NumGoroutine()
	client, err := s.Open(ctx, subject.Options{URLs: set.Servers.URLs(), Goroutines: scaleGoroutines, TTL: ttl})
	if err != nil {
		return nil, err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, client.Close())
		}
	}()

	began := time.Now()
	held, err := acquireMany(ctx, client, set.Prefix, leases)
	if err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	sample = Sample{LeasesTaken: float64(leases), Acquiring: time.Since(began).Seconds(), SecondsKept: set.Time.Seconds()}
	progress(fmt.Sprintf("%d leases acquired in %.1f s, now held for %v", leases, sample[Acquiring], set.Time))

	kept := usageNow()
	if err := sleep.For(ctx, set.Time); err != nil {
		return nil, err
	}
	end := usageNow()
	sample[LeaseCPU] = 100 * float64(end.cpu-kept.cpu) / float64(end.at.Sub(kept.at))
	sample[Goroutines] = float64(runtime.NumGoroutine() - goroutines)
	// This includes the names of the leases, and the slice of leases.
	sample[LeaseBytes] = (float64(heap()) - float64(before)) / float64(leases)
	for _, lease := range held {
		if tracked, ok := lease.(subject.Tracked); ok && !tracked.Held() {
			sample[Lost]++
		}
	}
	sample[Lost] += 0 // present even if it is 0

	began = time.Now()
	var failures atomic.Int64
	err = forEach(ctx, leases, func(i int) error {
		if err := held[i].Release(context.WithoutCancel(ctx)); err != nil && failures.Add(1) == 1 {
			progress(fmt.Sprintf("a release failed: %v", err))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sample[Failures], sample[TimeToUnlock] = float64(failures.Load()), time.Since(began).Seconds()
	closed = true
	if err := client.Close(); err != nil {
		return nil, err
	}
	left, err := set.Servers.Sweep(ctx)
	sample[Leftovers] = float64(left)
	return sample, err
}

// acquiringMax is how long an acquire without contention may take.
const acquiringMax = 2 * time.Minute

func acquireMany(ctx context.Context, client subject.Client, prefix string, leases int) ([]subject.Lease, error) {
	// Cancelled only if it takes too long: leases may depend on the context of their acquire.
	ctx, giveUp := context.WithCancelCause(ctx)
	late := time.AfterFunc(acquiringMax, func() { giveUp(fmt.Errorf("not acquired within %v", acquiringMax)) })
	defer late.Stop()
	held := make([]subject.Lease, leases)
	err := forEach(ctx, leases, func(i int) (err error) {
		held[i], err = client.Acquire(ctx, fmt.Sprintf("%s/%d", prefix, i))
		return err
	})
	if err != nil {
		giveUp(err)
	}
	return held, err
}

// forEach calls do for each number below n, in several goroutines, until an error or the end of ctx.
func forEach(ctx context.Context, n int, do func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range scaleGoroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// RunIdle measures the cost of a client that has used one lock and is now idle.
func RunIdle(ctx context.Context, set Setting, s subject.Subject) (sample Sample, err error) {
	before, goroutines := heap(), runtime.NumGoroutine()
	connections, err := set.Servers.connections(ctx)
	if err != nil {
		return nil, err
	}
	client, err := s.Open(ctx, subject.Options{URLs: set.Servers.URLs(), Goroutines: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	lease, err := client.Acquire(ctx, set.Prefix+"/once")
	if err != nil {
		return nil, err
	}
	if err := lease.Release(ctx); err != nil {
		return nil, err
	}
	if err := sleep.For(ctx, settle); err != nil {
		return nil, err
	}
	after, err := set.Servers.connections(ctx)
	if err != nil {
		return nil, err
	}
	sample = Sample{Goroutines: float64(runtime.NumGoroutine() - goroutines), ClientConns: float64(after - connections)}
	sample[ClientBytes] = float64(heap()) - float64(before)
	return sample, nil
}
