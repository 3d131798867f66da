package redlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// A machine wakes up, and no timer has noticed that a lease is over. The context that carries it holds nothing.
func TestALeaseThatASuspendEndedIsNotHeldByItsContext(t *testing.T) {
	for how, acquire := range map[string]func(redlock.Lock, context.Context) (*redlock.Lease, error){
		"Acquire": redlock.Lock.Acquire, "TryAcquire": redlock.Lock.TryAcquire,
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c, suspend := suspendable(t)
				l, err := c.Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				cleanUp := context.WithoutCancel(l.With(t.Context()))
				synctest.Wait()
				suspend(time.Minute)
				again, err := acquire(c.Mutex("x"), cleanUp)
				require.NoError(t, err)
				require.NoError(t, again.Release(t.Context()))
			})
		})
	}
}

func TestTheReleaseOfALeaseThatASuspendEndedSaysThatItWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Int32
		w, c, suspend := suspendable(t, func(cfg *redlock.Config) {
			cfg.Hooks.Lost = func(redlock.LeaseInfo, error) { lost.Add(1) }
		})
		l, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		suspend(time.Minute)
		for _, s := range w.servers {
			s.links[0].hold(requests, +1) // the network comes back later
		}
		require.ErrorIs(t, l.Release(t.Context()), redlock.ErrLost)
		for _, s := range w.servers {
			s.links[0].hold(requests, -1)
		}
		synctest.Wait()
		require.EqualValues(t, 1, lost.Load())
	})
}

// suspendable is a client in virtual time, and what suspends its machine beside servers that go on.
func suspendable(t *testing.T, options ...func(*redlock.Config)) (w *world, c *redlock.Client, suspend func(time.Duration)) {
	w = virtual(t, 3, 1)
	clock := &leaping{Clock: redlock.SystemClock()}
	c = w.connect(t, 0, append(options, func(cfg *redlock.Config) { cfg.Clock = clock })...)
	require.NoError(t, c.Enroll(t.Context()))
	time.Sleep(time.Second)
	return w, c, func(d time.Duration) {
		clock.slept.Add(int64(d))
		for _, s := range w.servers {
			s.step(d)
		}
	}
}
