package redlock_test

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// A hook may reach a lease. The library watches for dropped leases. That must not keep a lease and its client in memory
// once the lease is lost and released.
func TestALostLeaseIsForgottenOnceItIsReleased(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	forgotten := func() weak.Pointer[redlock.Lease] {
		leases := make(chan *redlock.Lease, 1)
		cfg := redlock.Config{Nodes: redlock.Nodes(f.URLs()...)}
		cfg.Hooks.Acquired = func(redlock.LeaseInfo, time.Duration, int) { runtime.KeepAlive(leases) }
		c, err := redlock.New(cfg)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Enroll(soon(t)))
		l, err := c.Mutex("x").Acquire(soon(t))
		require.NoError(t, err)
		leases <- l
		for _, n := range f.Nodes() {
			tell(t, n, "DEL", "x")
		}
		require.ErrorIs(t, l.Extend(soon(t)), redlock.ErrLost)
		require.ErrorIs(t, l.Release(soon(t)), redlock.ErrLost)
		return weak.Make(l)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return forgotten.Value() == nil
	}, time.Minute, 10*time.Millisecond)
}

// A lease does not keep the ended contexts that were made of it.
func TestALeaseForgetsTheContextsThatHaveEnded(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	c := open(t, f)
	l, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range 50_000 { // of some 400 bytes each
		ctx, cancel := context.WithCancel(t.Context())
		l.With(ctx)
		cancel()
	}
	require.Eventually(t, func() bool { return heap() < before+5<<20 }, time.Minute, 10*time.Millisecond)
	for range 50_000 { // these never end
		l.With(context.WithoutCancel(t.Context()))
		l.With(context.Background())
	}
	require.Eventually(t, func() bool { return heap() < before+5<<20 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, l.Release(soon(t)))
}

// Leases of a re-entered lock that were dropped without Release do not keep each other in memory, whatever ended them.
func TestReenteredLeasesThatWereDroppedAreForgotten(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *redlock.Client, outer *redlock.Lease){
		"held": func(*testing.T, *redlock.Client, *redlock.Lease) {},
		"lost": func(t *testing.T, c *redlock.Client, outer *redlock.Lease) {
			require.NoError(t, c.ForceRelease(soon(t), "x"))
			<-outer.Context().Done()
		},
		"closed": func(t *testing.T, c *redlock.Client, _ *redlock.Lease) { require.NoError(t, c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
			c := open(t, f)
			lock := c.Mutex("x").Reentrant().WithTTL(time.Second)
			forgotten := func() weak.Pointer[redlock.Lease] {
				outer, err := lock.Acquire(soon(t))
				require.NoError(t, err)
				_, err = lock.Acquire(outer.Context())
				require.NoError(t, err)
				end(t, c, outer)
				return weak.Make(outer)
			}()
			require.Eventually(t, func() bool {
				runtime.GC()
				return forgotten.Value() == nil
			}, time.Minute, 10*time.Millisecond)
		})
	}
}
