package redlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/redlocktest"
)

func TestInspectTellsWhoHoldsALock(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		inspect := func() *redlock.State {
			s, err := c.Inspect(ctx, "x")
			require.NoError(t, err)
			require.Equal(t, "x", s.Name)
			require.Len(t, s.Nodes, 5)
			return s
		}
		require.Equal(t, redlock.NodeState{Node: c.Status(ctx)[0].Name}, inspect().Nodes[0], "nobody ever held it")

		l, err := c.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		spread(t, f, "x", l)
		s := inspect()
		require.True(t, s.Held)
		require.Equal(t, l.Token(), s.Token)
		require.Equal(t, l.Fence(), s.Fence)
		require.Positive(t, s.Remaining)
		require.LessOrEqual(t, s.Remaining, 10*time.Second)
		for _, n := range s.Nodes {
			require.NoError(t, n.Err)
			require.True(t, n.Held)
			require.Equal(t, l.Token(), n.Token)
			require.Equal(t, l.Fence(), n.Fence)
		}

		require.NoError(t, l.Release(ctx))
		clears(t, f, "x")
		s = inspect()
		require.False(t, s.Held)
		require.Empty(t, s.Token)
		require.Equal(t, l.Fence(), s.Fence, "fencing tokens are not forgotten")

		for _, n := range f.Nodes()[:3] {
			tell(t, n, "SET", "x", "another library's")
		}
		s = inspect()
		require.True(t, s.Held)
		require.Equal(t, "another library's", s.Token)
		require.Negative(t, s.Remaining, "it never expires")
		require.False(t, s.Nodes[4].Held)
		tell(t, f.Nodes()[0], "DEL", "x")
		s = inspect()
		require.False(t, s.Held, "two of five are no quorum")
		require.Equal(t, `"x" is held by nobody on a quorum; 2 of 5 nodes have it`, s.String())
		require.True(t, s.Nodes[1].Held)
	})
}

// Another program's string may look like a reservation, which is free to its waiter, or have the text that stands for those
// that share a lock. It is held all the same, and only as what it is.
func TestWhatOnlyLooksLikeOursIsHeld(t *testing.T) {
	const digits = "0123456789abcdef0123456789abcdef"
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f, patient), soon(t)
		set := func(value string, options ...any) {
			for _, n := range f.Nodes() {
				tell(t, n, "SET", append([]any{"x", value}, options...)...)
			}
		}
		inspect := func() *redlock.State {
			s, err := c.Inspect(ctx, "x")
			require.NoError(t, err)
			return s
		}
		expires := []any{"PX", 600000}
		for _, foreign := range []struct {
			value   string
			options []any
		}{
			{"next:/home?p=2", nil}, {"next:/home?p=2", expires}, {"next:" + digits, nil}, {"next:" + digits + "0", expires},
			{"next:", expires}, {"next:" + strings.ToUpper(digits), expires},
			{"readers", nil}, {"readers", expires}, {"permits", nil}, {"permits", expires}, {"PERMITS", expires}, {"", nil}, {"", expires},
		} {
			set(foreign.value, foreign.options...)
			s := inspect()
			require.True(t, s.Held, "%q", foreign)
			require.Equal(t, foreign.value, s.Token)
			require.Empty(t, s.Sharers)
			for _, n := range s.Nodes {
				require.True(t, n.Held && !n.Reserved && !n.NotString, "%q", foreign)
				require.Equal(t, foreign.value, n.Token)
			}
			for _, lock := range []redlock.Lock{c.Mutex("x"), c.Mutex("x", "y"), c.Mutex("x").Fair(), c.RWMutex("x").Reader(), c.Semaphore("x", 2)} {
				_, err := lock.TryAcquire(ctx)
				var round *redlock.RoundError
				require.ErrorAs(t, err, &round, "%q", foreign)
				require.ErrorIs(t, err, redlock.ErrHeld, "%q", foreign)
				for _, node := range round.Err.Errors {
					if denial := (*redlock.Denial)(nil); errors.As(node, &denial) { // a quorum of them, and one may be late
						require.Equal(t, redlock.ReasonHeld, denial.Reason, "%q", foreign)
					}
				}
			}
			require.Equal(t, foreign.value, inspect().Token, "nobody took its place")
			require.NoError(t, c.ForceRelease(ctx, "x"))
			require.False(t, inspect().Held)
		}
		set("next:"+digits, expires...)
		require.True(t, inspect().Nodes[0].Reserved)
		require.False(t, inspect().Held)
		for _, n := range f.Nodes() {
			tell(t, n, "DEL", "x")
			tell(t, n, "HSET", "x", "a", "b")
		}
		s := inspect()
		require.True(t, s.Held && s.Nodes[0].NotString)
		require.Empty(t, s.Token)
		require.ErrorIs(t, c.ForceRelease(ctx, "x"), redlock.ErrInvalid)
	})
}

func TestInspectOfTooFewNodesTellsWhatTheySaid(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c, ctx := open(t, f), soon(t)
	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", l)
	for _, n := range f.Nodes()[2:] {
		require.NoError(t, n.Kill())
	}
	s, err := c.Inspect(ctx, "x")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	var round *redlock.RoundError
	require.ErrorAs(t, err, &round)
	require.Equal(t, []int{3, 2, 3}, []int{round.Need, round.Granted, round.Unknown})
	require.False(t, s.Held)
	require.Equal(t, l.Token(), s.Nodes[0].Token)
	require.Error(t, s.Nodes[4].Err)
	require.ErrorIs(t, c.ForceRelease(ctx, "x"), redlock.ErrNoQuorum)
	holder, err := c.Inspect(ctx, "x")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.Equal(t, l.Token(), holder.Nodes[0].Token, "nothing was deleted")

	_, err = c.Inspect(ctx, "redlock:fence")
	require.ErrorIs(t, err, redlock.ErrInvalid)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.Inspect(gone, "x")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, c.Close())
	_, err = c.Inspect(ctx, "x")
	require.ErrorIs(t, err, redlock.ErrClosed)
	require.ErrorIs(t, c.ForceRelease(ctx, "x"), redlock.ErrClosed)
}

// A node in quarantine answers but has no vote: it may have forgotten the keys that it lacks.
func TestInspectDoesNotCountNodesThatHaveNoVote(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c, ctx := open(t, f), soon(t)
	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", l)
	for _, n := range f.Nodes()[1:3] {
		tell(t, n, "FLUSHALL") // the client is connected, and does not know
	}
	tell(t, f.Nodes()[3], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	tell(t, f.Nodes()[3], "CONFIG", "SET", "maxmemory", "100mb")
	cfg := redlock.Config{Nodes: redlock.Nodes(f.URLs()...)}
	fresh, err := redlock.New(cfg)
	require.NoError(t, err)
	defer fresh.Close()
	s, err := fresh.Inspect(ctx, "x")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	var round *redlock.RoundError
	require.ErrorAs(t, err, &round)
	require.Equal(t, []int{3, 2, 0, 3}, []int{round.Need, round.Granted, round.Denied, round.Unknown})
	require.Equal(t, []int{2, 3}, []int{s.Votes, s.Quorum})
	for i, n := range s.Nodes {
		var quarantine *redlock.QuarantineError
		require.Equal(t, i == 1 || i == 2, errors.As(n.Err, &quarantine), "%d: %v", i, n.Err)
		require.Equal(t, i != 1 && i != 2, n.Held)
	}
	require.ErrorContains(t, s.Nodes[3].Err, "noeviction")
	require.ErrorContains(t, err, s.Nodes[3].Node)
	require.NoError(t, fresh.ForceRelease(ctx, "x"), "all of them answered")
	for _, n := range f.Nodes() {
		require.EqualValues(t, 0, tell(t, n, "EXISTS", "x"))
	}

	s, err = c.Inspect(ctx, "x") // the older client, which believed that they vote
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.Equal(t, 2, s.Votes)
}

// A key that a node lacks may have expired there by a wrong clock. What acquires do not count, Inspect does not either.
func TestInspectDoesNotCountANodeWhoseClockIsOutOfStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
		require.NoError(t, err)
		defer c.Close()
		lease, err := c.Mutex("x").Acquire(t.Context()) // on a bare quorum
		require.NoError(t, err)
		state, err := c.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.True(t, state.Held)
		owner := slices.IndexFunc(state.Nodes, func(n redlock.NodeState) bool { return n.Held })
		nodes.StepClock(owner, time.Hour)

		state, err = c.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.False(t, state.Held)
		require.Equal(t, 2, state.Votes)
		require.ErrorContains(t, state.Nodes[owner].Err, "out of step", "it may have forgotten that it granted the name")
		require.True(t, lease.Valid())

		nodes.Kill((owner + 1) % 3)
		_, err = c.Mutex("y").TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		state, err = c.Inspect(t.Context(), "y")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Equal(t, 1, state.Votes)
		var round *redlock.RoundError
		require.ErrorAs(t, err, &round)
		require.Equal(t, []int{1, 0, 2}, []int{round.Granted, round.Denied, round.Unknown})
		require.Len(t, round.Err.Errors, 2, "each node once")
	})
}

// Nodes that forgot the lock say nothing about whether somebody still relies on it.
func TestForceReleaseDoesNotSayThatNobodyHoldsWhatTheNodesForgot(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		holder, ctx := open(t, f), soon(t)
		l, err := holder.Mutex("x").WithTTL(20 * time.Second).Acquire(ctx) // its next renewal is far
		require.NoError(t, err)
		for _, n := range f.Nodes() {
			tell(t, n, "FLUSHALL")
		}
		operator, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...)})
		require.NoError(t, err)
		defer operator.Close()
		err = operator.ForceRelease(ctx, "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorAs(t, err, new(*redlock.QuarantineError), "it says why they have no vote")
		require.True(t, l.Valid())
	})
}

func TestForceReleaseTakesALockFromWhoeverHoldsIt(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f), open(t, f), soon(t)
		require.NoError(t, b.ForceRelease(ctx, "x"), "nobody holds it")
		held, err := a.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		spread(t, f, "x", held)
		waiter := make(chan *redlock.Lease, 1)
		go func() {
			l, _ := b.Mutex("x").Acquire(ctx)
			waiter <- l
		}()
		require.Never(t, func() bool { return len(waiter) > 0 }, 50*time.Millisecond, 10*time.Millisecond)
		require.NoError(t, b.ForceRelease(ctx, "x"))
		next := <-waiter
		require.NotNil(t, next)
		require.Greater(t, next.Fence(), held.Fence(), "the resource can tell them apart")
		require.ErrorIs(t, held.Extend(ctx), redlock.ErrLost)
		require.ErrorIs(t, context.Cause(held.Context()), redlock.ErrLost)
		require.NoError(t, next.Release(ctx))
		clears(t, f, "x")

		for _, n := range f.Nodes() {
			tell(t, n, "SET", "x", "another library's, for ever")
		}
		require.NoError(t, b.ForceRelease(ctx, "x"))
		clears(t, f, "x")
		tell(t, f.Nodes()[3], "HSET", "x", "no", "lock")
		err = b.ForceRelease(ctx, "x")
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, "no lock")
	})
}
