package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// Readers, writers and holders of permits, all at once on real servers, of which one dies. Everybody gets in, and nobody
// who may not.
func TestReadersWritersAndPermitsAllAtOnce(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 5})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var readers, writers, permits, done atomic.Int64
	const each, most = 25, 3
	check := func(ok bool, what string) {
		if !ok {
			t.Errorf("%s: %d readers, %d writers, %d permits", what, readers.Load(), writers.Load(), permits.Load())
		}
	}
	var all sync.WaitGroup
	for id := range 3 {
		c := open(t, f, patient)
		for worker := range 6 {
			random := rand.New(rand.NewPCG(uint64(id), uint64(worker)))
			all.Go(func() {
				for range each {
					count, lock := &readers, c.RWMutex("x").Reader()
					switch random.IntN(5) {
					case 0:
						count, lock = &writers, c.RWMutex("x").Writer()
					case 1, 2:
						count, lock = &permits, c.Semaphore("y", most)
					}
					ended, giveUp := context.WithCancel(ctx)
					if random.IntN(5) == 0 { // somebody gives up while waiting
						ended, giveUp = context.WithTimeout(ctx, time.Duration(random.Int64N(int64(3*time.Millisecond))))
					}
					l, err := lock.Acquire(ended)
					giveUp()
					if err != nil {
						if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
							t.Error(err)
						}
						continue
					}
					n := count.Add(1)
					switch count {
					case &readers:
						check(writers.Load() == 0, "a reader beside a writer")
					case &writers:
						check(n == 1 && readers.Load() == 0, "a writer beside others")
					case &permits:
						check(n <= most, "more leases than permits")
					}
					time.Sleep(time.Duration(random.Int64N(int64(2 * time.Millisecond))))
					count.Add(-1)
					if done.Add(1) == 100 {
						if err := f.Nodes()[2].Kill(); err != nil {
							t.Error(err)
						}
					}
					// A node that dies may leave it unknown whether a quorum deleted the entry (L1).
					if err := l.Release(ctx); err != nil && !(done.Load() >= 100 && errors.Is(err, redlock.ErrNoQuorum)) {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	require.Greater(t, done.Load(), int64(100))
	for i, n := range f.Nodes() {
		if i != 2 {
			for _, key := range []string{"x", "y"} {
				require.Eventually(t, func() bool { return tell(t, n, "EXISTS", key) == int64(0) }, 5*time.Second, time.Millisecond)
			}
		}
	}
}
