package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// S1: Two kinds of lock on one name exclude each other, whichever came first, except readers and holders of permits
// among themselves. So does SET NX of another library.
func TestTheKindsOfLockOnOneNameExcludeEachOther(t *testing.T) {
	kinds := []struct {
		name string
		lock func(c *redlock.Client) redlock.Lock
	}{
		{"mutex", func(c *redlock.Client) redlock.Lock { return c.Mutex("x") }},
		{"reader", func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }},
		{"writer", func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }},
		{"semaphore", func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 2) }},
	}
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f), open(t, f), soon(t)
		for _, first := range kinds {
			for _, second := range kinds {
				t.Run(first.name+" then "+second.name, func(t *testing.T) {
					l, err := first.lock(a).Acquire(ctx)
					require.NoError(t, err)
					again, err := second.lock(b).TryAcquire(ctx)
					if first.name == second.name && (first.name == "reader" || first.name == "semaphore") {
						require.NoError(t, err)
						require.NoError(t, again.Release(ctx))
					} else {
						require.ErrorIs(t, err, redlock.ErrHeld)
						var denial *redlock.Denial
						require.ErrorAs(t, err, &denial)
						require.NotEmpty(t, denial.Owner)
					}
					require.NoError(t, l.Release(ctx))
					clears(t, f, "x")
				})
			}
			t.Run(first.name+" and another library", func(t *testing.T) {
				l, err := first.lock(a).Acquire(ctx)
				require.NoError(t, err)
				taken := 0
				for _, n := range f.Nodes() {
					if tell(t, n, "SET", "x", "theirs", "NX", "PX", "10000") != nil {
						taken++
						tell(t, n, "DEL", "x")
					}
				}
				require.Less(t, taken, 3, "another library must not win a quorum")
				require.NoError(t, l.Release(ctx))
				for _, n := range f.Nodes() {
					tell(t, n, "SET", "x", "theirs", "PX", "10000")
				}
				_, err = first.lock(a).TryAcquire(ctx)
				require.ErrorIs(t, err, redlock.ErrHeld)
				for _, n := range f.Nodes() {
					tell(t, n, "DEL", "x")
				}
			})
		}
	})
}

func TestReadersShareAndAWriterWaitsForTheLast(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f, unasked), open(t, f, unasked), soon(t)
		first, err := a.RWMutex("x").Reader().Acquire(ctx)
		require.NoError(t, err)
		second, err := b.RWMutex("x").Reader().Acquire(ctx)
		require.NoError(t, err)
		require.Greater(t, second.Fence(), first.Fence())
		done := make(chan *redlock.Lease, 1)
		go func() {
			l, err := b.RWMutex("x").Writer().Acquire(ctx)
			if err == nil {
				done <- l
			}
			close(done)
		}()
		require.Eventually(t, func() bool { return redlock.Waiters(b) == 1 }, 8*time.Second, time.Millisecond)
		require.NoError(t, first.Extend(ctx))
		require.NoError(t, first.Release(ctx))
		require.Empty(t, done)
		require.True(t, second.Valid())
		require.NoError(t, second.Release(ctx))
		writer := <-done
		require.NotNil(t, writer, "the last reader wakes the writer")
		require.Greater(t, writer.Fence(), second.Fence())
		require.NoError(t, writer.Release(ctx))
		clears(t, f, "x")
	})
}

func TestNoMoreLeasesThanPermits(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f, unasked), open(t, f, unasked), soon(t)
		var held []*redlock.Lease
		for i := range 5 {
			c := []*redlock.Client{a, b}[i%2]
			l, err := c.Semaphore("x", 5).Acquire(ctx)
			require.NoError(t, err)
			held = append(held, l)
		}
		_, err := b.Semaphore("x", 5).TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		state, err := a.Inspect(ctx, "x")
		require.NoError(t, err)
		require.True(t, state.Held)
		require.Len(t, state.Sharers, 5)
		slots := map[int]bool{}
		for _, s := range state.Sharers {
			require.Equal(t, 5, s.Permits)
			slots[s.Slots[0]] = true
		}
		require.Len(t, slots, 5)
		done := make(chan *redlock.Lease, 1)
		go func() {
			l, err := b.Semaphore("x", 5).Acquire(ctx)
			if err == nil {
				done <- l
			}
			close(done)
		}()
		require.Eventually(t, func() bool { return redlock.Waiters(b) == 1 }, 8*time.Second, time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, held[2].Release(ctx))
		l := <-done
		require.NotNil(t, l)
		held[2] = l
		for _, l := range held {
			require.NoError(t, l.Release(ctx))
		}
		clears(t, f, "x")
	})
}

var _ = context.Background
