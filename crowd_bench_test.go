package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// BenchmarkCrowd is a crowd in one process that wants locks at the same moment, on three servers beside it: readers that
// have waited for a writer, locks of their own, and tries of these. It reports when the middle one and the last one had
// its lock, and how many rounds each has taken.
func BenchmarkCrowd(b *testing.B) {
	for _, kind := range []string{"readers", "locks", "tries"} {
		for _, size := range []int{1000, 4000, 20000} {
			b.Run(fmt.Sprintf("%s=%d", kind, size), func(b *testing.B) {
				f := fleettest.Start(b, fleet.Process, fleet.Options{Nodes: 3})
				for range b.N {
					crowd(b, f, kind, size)
				}
			})
		}
	}
}

func crowd(b *testing.B, f *fleet.Fleet, kind string, size int) {
	var refused, failed atomic.Int64
	c := open(b, f, func(cfg *redlock.Config) {
		cfg.Hooks.Refused = func([]string, error) { refused.Add(1) }
	})
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
	defer cancel()
	writer, err := c.RWMutex("x").Writer().Acquire(ctx)
	require.NoError(b, err)
	var begun time.Time
	start, took := make(chan struct{}), make([]time.Duration, size)
	leases := make([]*redlock.Lease, size)
	var all sync.WaitGroup
	for i := range size {
		all.Go(func() {
			var err error
			switch lock := c.Mutex(fmt.Sprint("x", i)); kind {
			case "readers":
				leases[i], err = c.RWMutex("x").Reader().Acquire(ctx)
			case "locks":
				<-start
				leases[i], err = lock.Acquire(ctx)
			case "tries":
				<-start
				leases[i], err = lock.TryAcquire(ctx)
			}
			if err != nil {
				failed.Add(1)
				b.Log(err)
			}
			took[i] = time.Since(begun)
		})
	}
	for kind == "readers" && refused.Load() < int64(size) && ctx.Err() == nil { // until all wait
		time.Sleep(10 * time.Millisecond)
	}
	refused.Store(0)
	begun = time.Now()
	close(start)
	require.NoError(b, writer.Release(ctx))
	all.Wait()
	slices.Sort(took)
	b.ReportMetric(took[size/2].Seconds(), "p50-s")
	b.ReportMetric(took[size-1].Seconds(), "last-s")
	b.ReportMetric(float64(refused.Load())/float64(size), "refused/op")
	b.ReportMetric(float64(failed.Load()), "failed")
	for _, l := range leases {
		all.Go(func() {
			if l != nil {
				_ = l.Release(ctx)
			}
		})
	}
	all.Wait()
	require.NoError(b, c.Close())
}
