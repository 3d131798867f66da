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
	}, 5*time.Second, 10*time.Millisecond)
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
	require.Eventually(t, func() bool { return heap() < before+5<<20 }, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, l.Release(soon(t)))
}
