package redlock_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestAReentrantLockIsLetGoWhenTheLastOfItsLeasesIs(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c, other, ctx := open(t, f), open(t, f), soon(t)
		lock := c.Mutex("a", "b").Reentrant()
		outer, err := lock.Acquire(ctx)
		require.NoError(t, err)
		spread(t, f, "a", outer)
		inner, err := c.Mutex("b").Reentrant().TryAcquire(outer.With(ctx))
		require.NoError(t, err)
		innermost, err := lock.Acquire(inner.Context())
		require.NoError(t, err)
		for _, l := range []*redlock.Lease{inner, innermost} {
			require.Equal(t, []any{outer.Token(), outer.Fence(), outer.Names()}, []any{l.Token(), l.Fence(), l.Names()})
			require.True(t, l.Valid())
		}

		require.NoError(t, outer.Release(ctx), "the order does not matter")
		require.False(t, outer.Valid())
		require.Zero(t, outer.Remaining())
		require.ErrorIs(t, context.Cause(outer.Context()), redlock.ErrReleased)
		require.ErrorIs(t, outer.Extend(ctx), redlock.ErrReleased)
		require.NoError(t, outer.Release(ctx), "a second time counts for nothing")
		require.True(t, inner.Valid())
		require.NoError(t, inner.Context().Err())
		require.NoError(t, inner.Extend(ctx))
		_, err = other.Mutex("b").TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)

		require.NoError(t, innermost.Release(ctx))
		require.True(t, inner.Valid())
		require.NoError(t, inner.Release(ctx))
		require.ErrorIs(t, context.Cause(inner.Context()), redlock.ErrReleased)
		require.NoError(t, inner.Release(ctx))
		clears(t, f, "a")
		clears(t, f, "b")
	})
}

// A release may end the very context that it was given, or the release of the outer lease may have ended it.
func TestALeaseIsReleasedUnderAContextThatItselfEnds(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, ctx := open(t, f), soon(t)
	lock := c.Mutex("x").Reentrant()
	outer, err := lock.Acquire(ctx)
	require.NoError(t, err)
	inner, err := lock.Acquire(outer.With(ctx))
	require.NoError(t, err)
	within := inner.With(outer.With(ctx))
	require.NoError(t, outer.Release(within))
	<-within.Done()
	require.NoError(t, inner.Release(within))
	clears(t, f, "x")
}

func TestALossEndsEveryLeaseOfAReentrantLock(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, ctx := open(t, f), soon(t)
	lock := c.Mutex("x").Reentrant()
	var early *redlock.Lease
	err := lock.Do(ctx, func(ctx context.Context, outer *redlock.Lease) error {
		err := lock.Do(ctx, func(ctx context.Context, inner *redlock.Lease) (err error) {
			early, err = lock.Acquire(ctx)
			require.NoError(t, err)
			require.NoError(t, early.Release(ctx))
			for _, n := range f.Nodes() {
				tell(t, n, "DEL", "x")
			}
			require.ErrorIs(t, inner.Extend(ctx), redlock.ErrLost)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), redlock.ErrLost)
			<-inner.Context().Done() // one after the other
			require.ErrorIs(t, context.Cause(inner.Context()), redlock.ErrLost)
			require.False(t, outer.Valid())
			return nil
		})
		require.ErrorIs(t, err, redlock.ErrLost)
		_, err = lock.Acquire(soon(t)) // without the context it is anybody's
		require.NoError(t, err)
		return nil
	})
	require.ErrorIs(t, err, redlock.ErrLost)
	require.NoError(t, early.Release(ctx), "it was released before the loss")
}

// The loss that Extend finds ends the context that it was given. Which of the two it sees first is chance.
func TestExtendUnderTheLeasesOwnContextSaysThatItIsLost(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, ctx := open(t, f), soon(t)
	for range 50 {
		l, err := c.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		for _, n := range f.Nodes() {
			tell(t, n, "DEL", "x")
		}
		own := l.Context()
		require.ErrorIs(t, l.Extend(own), redlock.ErrLost)
		require.ErrorIs(t, l.Extend(own), redlock.ErrLost)
		require.ErrorIs(t, l.Release(own), redlock.ErrLost)
	}
}

func TestReentryNeedsTheContextAndAllTheNames(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	c, ctx := open(t, f), soon(t)
	lock := c.Mutex("a").Reentrant()
	require.NoError(t, lock.Do(ctx, func(held context.Context, l *redlock.Lease) error {
		_, err := lock.TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld, "another goroutine is another contender")
		for lock, remedy := range map[redlock.Lock]string{c.Mutex("a"): "Reentrant", c.Mutex("b", "a").Reentrant(): "all names at once"} {
			_, err = lock.TryAcquire(held)
			require.ErrorIs(t, err, redlock.ErrHeld, "it does not wait")
			_, err = lock.Acquire(held)
			require.ErrorIs(t, err, redlock.ErrInvalid, "it would wait for itself")
			require.ErrorContains(t, err, remedy)
		}
		return c.Mutex("b").Reentrant().Do(held, func(ctx context.Context, b *redlock.Lease) error {
			require.NotEqual(t, l.Token(), b.Token())
			return lock.Do(ctx, func(_ context.Context, again *redlock.Lease) error { // two contexts further out
				require.Equal(t, l.Token(), again.Token())
				require.NoError(t, again.Release(ctx)) // and Do does so once more
				require.True(t, l.Valid())
				return nil
			})
		})
	}))
	clears(t, f, "a")
}

// The leases stop renewing also where the context of one carries the other.
func TestDroppedLeasesOfAReentrantLockStopRenewing(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c := open(t, f, func(cfg *redlock.Config) { cfg.TTL = 2 * time.Second })
	lock := c.Mutex("x").Reentrant()
	var token string
	func() {
		outer, err := lock.Acquire(soon(t))
		require.NoError(t, err)
		inner, err := lock.Acquire(outer.With(context.Background()))
		require.NoError(t, err)
		require.NoError(t, inner.Context().Err())
		token = inner.Token()
	}()
	require.Contains(t, owners(t, f, "x"), token)
	require.Eventually(t, func() bool {
		runtime.GC()
		for _, owner := range owners(t, f, "x") {
			if owner != "" {
				return false
			}
		}
		return true
	}, 10*time.Second, 20*time.Millisecond)
}

// Extend: One of several leases is released while it waits for the renewal. The others go on, renewed.
func TestExtendOfALeaseThatWasReleasedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		lock := all[0].Mutex("x").Reentrant()
		outer, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		inner, err := lock.Acquire(outer.With(t.Context()))
		require.NoError(t, err)
		for _, s := range w.servers {
			s.slow(0, 50*time.Millisecond)
		}
		time.Sleep(time.Second)
		left := outer.Remaining()
		go func() {
			time.Sleep(10 * time.Millisecond)
			assert.NoError(t, inner.Release(t.Context()))
		}()
		require.ErrorIs(t, inner.Extend(t.Context()), redlock.ErrReleased)
		require.True(t, outer.Valid())
		require.Greater(t, outer.Remaining(), left)
	})
}
