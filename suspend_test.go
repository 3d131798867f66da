package redlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// leaping is the system's clock, ahead by the length of a suspend. So is CLOCK_BOOTTIME when the machine wakes and no
// timer has fired.
type leaping struct {
	redlock.Clock
	slept atomic.Int64
}

func (l *leaping) Now() redlock.Instant {
	return l.Clock.Now().Add(time.Duration(l.slept.Load()))
}

func TestALeaseIsNotValidAfterASuspendThoughNoTimerFired(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		clock := &leaping{Clock: redlock.SystemClock()}
		c, ctx := open(t, f, func(cfg *redlock.Config) { cfg.Clock = clock }), soon(t)
		l, err := c.Mutex("x").WithoutRenewal().Acquire(ctx) // a renewal may be due after the first leap
		require.NoError(t, err)
		require.True(t, l.Valid())
		clock.slept.Store(int64(5 * time.Second)) // of ten
		require.True(t, l.Valid())
		require.Less(t, l.Remaining(), 5*time.Second)
		clock.slept.Store(int64(11 * time.Second))
		require.False(t, l.Valid())
		require.Zero(t, l.Remaining())
		require.ErrorIs(t, l.Extend(ctx), redlock.ErrLost)
	})
}

func TestALossSaysThatTheProcessStoodStill(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	clock := &leaping{Clock: redlock.SystemClock()}
	c, ctx := open(t, f, func(cfg *redlock.Config) { cfg.Clock = clock }), soon(t)
	for _, lock := range []redlock.Lock{c.Mutex("x"), c.Mutex("y").WithoutRenewal()} {
		l, err := lock.Acquire(ctx)
		require.NoError(t, err)
		clock.slept.Add(int64(time.Minute)) // no timer has fired
		err = l.Extend(ctx)
		require.ErrorIs(t, err, redlock.ErrLost)
		if l.Names()[0] == "x" {
			require.ErrorContains(t, err, "it was not renewed before its validity ended: this process, or its machine, stood still for at least 5")
		} else {
			require.NotContains(t, err.Error(), "stood still", "nobody would have renewed it")
		}
	}
}
