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

// L1, L2: Whoever ends a lease ends all its contexts first, and only then sends anything: also those that end with another
// context too. A re-entered lease ends its own.
func TestEveryContextOfALeaseHasEndedBeforeAnythingIsSent(t *testing.T) {
	c, err := New(Config{Nodes: Nodes("redis://127.0.0.1:1")})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "its value"), time.Hour)
	defer cancel()
	for range 100 { // another goroutine could be fast enough sometimes
		o := &ownership{client: c, lock: c.Mutex("x").spec, tokenArg: "token", place: -1, leases: 1}
		o.until.Store(int64(c.cfg.Clock.Now().Add(time.Minute)))
		l := &Lease{ownership: o, parent: t.Context()}
		again := l.reenter(l.With(ctx))
		var of []context.Context
		for _, l := range []*Lease{l, again} {
			child, cancel := context.WithCancel(l.With(ctx))
			defer cancel()
			of = append(of, child)
			require.Equal(t, "its value", child.Value(key{}))
			want, _ := ctx.Deadline()
			got, ok := child.Deadline()
			require.True(t, ok)
			require.Equal(t, want, got)
		}
		again.leave()
		require.ErrorIs(t, context.Cause(of[1]), ErrReleased)
		require.NoError(t, of[0].Err())
		require.ErrorIs(t, context.Cause(again.With(ctx)), ErrReleased, "made after its end")
		o.end(ErrClosed)
		require.ErrorIs(t, context.Cause(of[0]), ErrClosed)
		require.ErrorIs(t, of[0].Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(l.With(ctx)), ErrClosed, "made after its end")
		require.ErrorIs(t, context.Cause(again.With(ctx)), ErrReleased, "it had ended before")
		require.Empty(t, o.joints)
	}
}

// With: It ends with its other context at once, as that one does.
func TestAContextOfALeaseEndsWithItsOtherContext(t *testing.T) {
	c, err := New(Config{Nodes: Nodes("redis://127.0.0.1:1")})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	o := &ownership{client: c, lock: c.Mutex("x").spec, tokenArg: "token", place: -1, leases: 1}
	l := &Lease{ownership: o, parent: t.Context()}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	under := l.With(ctx)
	cancel(why)
	require.Equal(t, why, context.Cause(under))
	late, stop := context.WithTimeout(t.Context(), time.Nanosecond)
	defer stop()
	under = l.With(late)
	<-under.Done()
	require.Equal(t, context.DeadlineExceeded, under.Err())
	require.NoError(t, l.Context().Err())
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
		clock.read.Store(&ends)                        // the failure of the renewal looks at the clock first
		o.tick(late)
		require.ErrorIs(t, o.cause(), ErrReleased, "it ended during the tick")
		require.Contains(t, c.scheduler.all(), o)
		o.sendRelease()
		require.NotContains(t, c.scheduler.all(), o)
	})
}
