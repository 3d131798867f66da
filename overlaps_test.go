package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// someOf draws so many of the names "account 0" to "account <of - 1>".
func someOf(r *rand.Rand, count, of int) []string {
	var names []string
	for _, i := range r.Perm(of)[:count] {
		names = append(names, fmt.Sprint("account ", i))
	}
	return names
}

// W1: Many goroutines of one process want names that overlap. Their attempts do not take names from each other, so few
// are refused: without turns, a thousand for each lease.
func TestOverlappingNamesOfOneProcessAreAskedForInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 1)
		for _, s := range w.servers {
			s.slow(0, time.Millisecond)
		}
		var refused, leases atomic.Int64
		c := w.connect(t, 0, func(cfg *redlock.Config) {
			cfg.Hooks.Refused = func([]string, error) { refused.Add(1) }
		})
		require.NoError(t, c.Enroll(t.Context()))
		var all sync.WaitGroup
		for i := range 16 {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			all.Go(func() {
				for range 20 {
					names := someOf(r, 3, 10)
					if r.IntN(4) == 0 {
						names = names[:1]
					}
					lease, err := c.Mutex(names[0], names[1:]...).Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					leases.Add(1)
					time.Sleep(time.Millisecond)
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		t.Logf("%d leases, %d refusals, in %v", leases.Load(), refused.Load(), time.Since(w.began))
		require.Less(t, refused.Load(), 3*leases.Load())
	})
}

// A waiter that sleeps, because one of its names is held, keeps nobody from the others.
func TestAWaiterForTwoNamesKeepsNobodyFromTheFreeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enrolled(t, 2)
		holder, c := all[0], all[1]
		held, err := holder.Mutex("b").Acquire(t.Context())
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			lease, err := c.Mutex("a", "b").Acquire(t.Context())
			if err == nil {
				err = lease.Release(t.Context())
			}
			got <- err
		}()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout)
		defer cancel()
		lease, err := c.Mutex("a").Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-got)
	})
}

// Whoever gives up while it awaits its turn is told so at once, and nobody waits for it.
func TestWhoGivesUpAmongOverlappingNamesIsInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		c := all[0]
		for _, s := range w.servers {
			s.slow(0, 200*time.Millisecond)
		}
		var done sync.WaitGroup
		acquire := func(ctx context.Context, want error, names ...string) {
			done.Go(func() {
				lease, err := c.Mutex(names[0], names[1:]...).Acquire(ctx)
				if want != nil {
					require.ErrorIs(t, err, want)
					require.ErrorIs(t, err, redlock.ErrHeld)
					return
				}
				require.NoError(t, err)
				require.NoError(t, lease.Release(t.Context()))
			})
			synctest.Wait()
		}
		began := time.Now()
		acquire(t.Context(), nil, "x", "y")
		done.Wait()
		alone := time.Since(began)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began = time.Now()
		acquire(t.Context(), nil, "a", "b")
		acquire(ctx, context.DeadlineExceeded, "b", "c")
		acquire(t.Context(), nil, "c", "d")
		done.Wait()
		require.LessOrEqual(t, time.Since(began), alone+11*time.Millisecond, "the third waited for the second only")
	})
}

// Nodes that are away make an attempt take long. Those behind it do not wait for that: each asks by itself, and learns
// of the outage.
func TestInAnOutageOverlappingNamesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		for _, s := range w.servers[:2] {
			s.links[0].hold(requests, +1)
			defer s.links[0].hold(requests, -1)
		}
		var done sync.WaitGroup
		for i := range 8 {
			done.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 4*nodeTimeout)
				defer cancel()
				_, err := all[0].Mutex("shared", fmt.Sprint("own ", i)).Acquire(ctx)
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
			})
		}
		done.Wait()
	})
}
