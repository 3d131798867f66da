package redlock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client without servers, and the lease that it holds for a minute.
func leased(t *testing.T) (*Client, *Lease) {
	c, err := New(Config{Nodes: Nodes("redis://127.0.0.1:1")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, leaseOf(c)
}

func leaseOf(c *Client) *Lease {
	now := c.cfg.Clock.Now()
	o := &ownership{client: c, lock: c.Mutex("x").spec, tokenArg: "token", written: now, place: -1, leases: 1}
	o.until.Store(int64(now.Add(time.Minute)))
	o.start()
	return &Lease{ownership: o, parent: context.Background()}
}

// L1, L2: Whoever ends a lease ends all its contexts first, and only then sends anything: also those that end with another
// context too. A re-entered lease ends its own.
func TestEveryContextOfALeaseHasEndedBeforeAnythingIsSent(t *testing.T) {
	c, _ := leased(t)
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "its value"), time.Hour)
	defer cancel()
	for range 100 { // another goroutine could be fast enough sometimes
		l := leaseOf(c)
		o := l.ownership
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

// With: One that never ends gives its values, and the lease has nothing to forget.
func TestAContextOfALeaseMayHaveTheValuesOfOneThatNeverEnds(t *testing.T) {
	type key struct{}
	c, l := leased(t)
	ctx := context.WithValue(context.Background(), key{}, "its value")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, never := range []context.Context{ctx, context.WithoutCancel(ended), detached{ended}} {
		l := leaseOf(c)
		under := l.With(never)
		child, cancel := context.WithCancel(under)
		defer cancel()
		require.Equal(t, "its value", child.Value(key{}))
		carried, _ := LeaseFrom(child)
		require.Same(t, l, carried)
		require.NoError(t, child.Err())
		require.Empty(t, l.ownership.joints)
		l.ownership.end(ErrClosed)
		require.ErrorIs(t, context.Cause(under), ErrClosed)
		require.ErrorIs(t, context.Cause(child), ErrClosed)
		require.ErrorIs(t, context.Cause(l.With(never)), ErrClosed, "made after its end")
	}
	again := l.reenter(l.With(ctx))
	under := again.With(ctx)
	again.leave()
	require.ErrorIs(t, context.Cause(under), ErrReleased)
	require.NoError(t, l.Context().Err())
}

// A detached context is what programs wrote before there was context.WithoutCancel: it never ends, and asks one that does for
// its values.
type detached struct{ context.Context }

func (detached) Deadline() (at time.Time, ok bool) { return at, false }
func (detached) Done() <-chan struct{}             { return nil }
func (detached) Err() error                        { return nil }

// With: It ends with its other context at once, as that one does.
func TestAContextOfALeaseEndsWithItsOtherContext(t *testing.T) {
	_, l := leased(t)
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

// A guarded context is of a type of the user's. Its methods take a mutex.
type guarded struct {
	context.Context
	sync.Locker
}

func (g guarded) Value(key any) any {
	g.Lock()
	defer g.Unlock()
	return g.Context.Value(key)
}

func (g guarded) Done() <-chan struct{} {
	g.Lock()
	defer g.Unlock()
	return g.Context.Done()
}

// With: The methods of a context of the user's may block, or call the lease. The end of a lease does not wait for that, nor
// do the contexts of other leases.
func TestAContextOfTheUsersHoldsUpNoEndOfALease(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for name, end := range map[string]func(c *Client, l *Lease) (cause error){
		"released": func(_ *Client, l *Lease) error { _ = l.Release(over); return ErrReleased },
		"lost":     func(_ *Client, l *Lease) error { l.ownership.lose(errExpired); return ErrLost },
		"closed":   func(c *Client, _ *Lease) error { _ = c.Close(); return ErrClosed },
		"handed over": func(_ *Client, l *Lease) error {
			extended, _ := l.ownership.beginRenewal()
			_, _ = l.leaveTo("ticket", extended)
			return ErrReleased
		},
		"one of several": func(_ *Client, l *Lease) error {
			l.reenter(context.Background())
			l.leave()
			return ErrReleased
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, l := leased(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var mu sync.Mutex
			of := []context.Context{l.Context(), l.With(guarded{ctx, &mu}), l.With(ctx), leaseOf(c).With(guarded{ctx, &mu})}
			if name != "closed" {
				of = of[:3]
			}
			mu.Lock() // so whoever asks the user's context waits for the end of the test
			defer mu.Unlock()
			want := end(c, l)
			for _, ctx := range of {
				require.ErrorIs(t, context.Cause(ctx), want)
			}
		})
	}
}

// Context asks the context of the Acquire for its values. The lease can be released meanwhile.
func TestAContextOfTheUsersHoldsUpNoReleaseWhileItIsAsked(t *testing.T) {
	_, l := leased(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	asked, answer := make(chan struct{}), make(chan struct{})
	l.parent = asking{ctx, func() {
		asked <- struct{}{}
		<-answer
	}}
	made := make(chan context.Context)
	go func() { made <- l.Context() }()
	<-asked
	require.NotErrorIs(t, l.Release(ctx), ErrLost) // would wait for the answer
	close(answer)
	require.ErrorIs(t, context.Cause(<-made), ErrReleased)
}

type asking struct {
	context.Context
	asked func()
}

func (a asking) Value(key any) any {
	a.asked()
	return a.Context.Value(key)
}

// The clean-up of a dropped lease ends the contexts of that lease, but not itself: it runs on a goroutine of the runtime's,
// outside of any testing/synctest bubble.
func TestTheContextsOfADroppedLeaseEndWithTheNextTick(t *testing.T) {
	_, l := leased(t)
	o := l.ownership
	under := func() context.Context {
		again := l.reenter(context.Background())
		own := again.own // it does not refer to the lease
		return own
	}()
	left := func() bool {
		runtime.GC()
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.left) > 0
	}
	require.Eventually(t, left, time.Minute, time.Millisecond)
	require.NoError(t, under.Err())
	o.tick(o.client.cfg.Clock.Now())
	require.ErrorIs(t, context.Cause(under), ErrReleased)
	require.NoError(t, l.Context().Err())
}
