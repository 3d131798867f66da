package redlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// R3: Work under a lost lease has the drift to stop. A tick that was due when the lease was lost must not release it
// sooner.
func TestALostLeaseIsNotReleasedByATickThatWasDueBefore(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	c, err := New(Config{Nodes: Nodes(f.URLs()...)})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Enroll(context.Background()))
	l, err := c.Mutex("x").Acquire(context.Background())
	require.NoError(t, err)
	h := l.ownership
	released := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.release != nil
	}
	h.lose(errExpired)
	h.tick(c.cfg.Clock.Now())
	require.False(t, released())
	h.tick(h.dueRelease())
	require.True(t, released())
}

// A meddling clock calls a function when it is read.
type meddling struct {
	Clock
	read atomic.Pointer[func()]
}

func (m *meddling) Now() Instant {
	if f := m.read.Swap(nil); f != nil {
		(*f)()
	}
	return m.Clock.Now()
}

// L2: The scheduler takes an ownership out of its queue for each tick. Another goroutine may end the lease during the tick,
// and not have sent the release. Close must find the ownership all the same.
func TestCloseFindsALeaseThatEndsDuringItsTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := func(context.Context) (redis.Conn, error) { return nil, errors.New("away") }
		clock := &meddling{Clock: SystemClock()}
		c, err := New(Config{Nodes: []Node{{Name: "a", Dial: away}}, Clock: clock})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		now := clock.Now()
		r := c.newRound(plan{t0: now})
		o := &ownership{client: c, lock: c.Mutex("x").spec, tokenArg: "token", place: -1, renewing: true, renewal: r}
		o.until.Store(int64(now.Add(time.Minute)))
		ends := func() { o.end(ErrReleased) }
		late := now.Add(c.cfg.nodeTimeout(o.lock.ttl)) // when the nodes are silent
		synctest.Wait()                                // the client's goroutines have looked at the clock
		clock.read.Store(&ends)                        // the failure of the renewal looks at the clock first
		o.tick(late)
		require.ErrorIs(t, o.cause(), ErrReleased, "it ended during the tick")
		require.Contains(t, c.scheduler.all(), o)
		o.sendRelease()
		require.NotContains(t, c.scheduler.all(), o)
	})
}

// R1: A renewal succeeds while the tick, which has found the lease about to expire, does not hold the mutex. The lease goes on.
func TestALeaseDoesNotExpireThatWasRenewedInTheSameMoment(t *testing.T) {
	c, l := leased(t)
	o, now := l.ownership, c.cfg.Clock.Now()
	o.until.Store(int64(now.Add(o.lead())))
	o.prolong(c.newRound(plan{t0: now}))
	o.expire(o.lead())
	require.NoError(t, o.cause())
	require.True(t, l.Valid())
	o.until.Store(int64(c.cfg.Clock.Now()))
	o.expire(0)
	require.ErrorIs(t, o.cause(), errExpired)
}

// R2: The lease may expire while the answer that would renew it waits for the mutex.
func TestARenewalLooksAtTheClockWhileItHoldsTheMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := func(context.Context) (redis.Conn, error) { return nil, errors.New("away") }
		clock := &meddling{Clock: SystemClock()}
		c, err := New(Config{Nodes: []Node{{Name: "a", Dial: away}}, Clock: clock})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		l := leaseOf(c)
		o, r, free := l.ownership, c.newRound(plan{t0: clock.Now()}), false
		before := o.validUntil()
		reads := func() {
			if free = o.mu.TryLock(); free {
				o.mu.Unlock()
			}
		}
		o.until.Store(int64(before.Add(-55 * time.Second)))
		synctest.Wait() // the client's goroutines have looked at the clock
		clock.read.Store(&reads)
		o.prolong(r)
		require.False(t, free)
		require.Greater(t, o.validUntil(), before.Add(-55*time.Second), "renewed")
	})
}

// R1: A renewal knows who was vouched for when it began. Keys that were planted since are not proven by that, so a node
// that refused its command is not asked again.
func TestARenewalIsNotSentAgainAfterKeysWerePlanted(t *testing.T) {
	c, l := leased(t)
	o, sent := l.ownership, 0
	r := c.renew(o)
	require.True(t, o.whileHeld(r, func() { sent++ }))
	o.plant(1)
	require.False(t, o.whileHeld(r, func() { sent++ }))
	require.True(t, o.whileHeld(c.renew(o), func() { sent++ }))
	require.Equal(t, 2, sent)
}
