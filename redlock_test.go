package redlock_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// openFresh makes a client of the nodes as they are. New nodes are in quarantine.
func openFresh(t testing.TB, f *fleet.Fleet, change ...func(*redlock.Config)) *redlock.Client {
	t.Helper()
	cfg := redlock.Config{Nodes: redlock.Nodes(f.URLs()...)}
	for _, ch := range change {
		ch(&cfg)
	}
	c, err := redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// open makes a client of nodes that are ready to grant.
func open(t testing.TB, f *fleet.Fleet, change ...func(*redlock.Config)) *redlock.Client {
	t.Helper()
	c := openFresh(t, f, change...)
	_ = enroll(t, c) // where a node is away on purpose, the others are enrolled
	return c
}

// enroll has all nodes that are up grant. The error is why a node was not enrolled.
func enroll(t testing.TB, c *redlock.Client) (err error) {
	t.Helper()
	inQuarantine := func(n redlock.NodeStatus) bool { return n.Connected && n.Quarantine > 0 }
	for range 10 { // on a busy machine, nodes may be too slow
		if err = c.Enroll(soon(t)); err == nil || !slices.ContainsFunc(c.Status(soon(t)), inQuarantine) {
			break
		}
	}
	return err
}

// patient is for clients on which nothing depends that takes a NodeTimeout: on a busy machine, a server may answer later
// than within the default.
func patient(cfg *redlock.Config) { cfg.NodeTimeout = 3 * time.Second }

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// owners returns who holds the key on each node, read past any proxy; "" where nobody does.
func owners(t testing.TB, f *fleet.Fleet, key string) []string {
	t.Helper()
	all := make([]string, len(f.Nodes()))
	for i, n := range f.Nodes() {
		conn, err := n.DialDirect(soon(t), 5*time.Second)
		require.NoError(t, err)
		owner, err := redis.String(conn.Do("GET", key))
		conn.Close()
		if err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") { // several share it
			owner, err = "(several)", nil
		}
		if err != redis.ErrNil {
			require.NoError(t, err)
		}
		all[i] = owner
	}
	return all
}

// onFleets runs the test on each kind of fleet that starts quickly.
func onFleets(t *testing.T, o fleet.Options, test func(*testing.T, *fleet.Fleet)) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) { test(t, fleettest.Start(t, kind, o)) })
	}
}

// holds waits until every node has the key for this owner.
func holds(t testing.TB, f *fleet.Fleet, key, owner string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, slices.Repeat([]string{owner}, len(f.Nodes())), owners(t, f, key))
	}, 5*time.Second, 5*time.Millisecond)
}

// spread has the lease renewed, and waits until every node has the key, and the client knows it: elsewhere a renewal
// takes the key. An Acquire asks a bare quorum. It also waits until every node has answered the renewal, which would put
// back a key that the test deletes, and counts in the next one whatever happens to its marker.
func spread(t testing.TB, f *fleet.Fleet, key string, l *redlock.Lease) {
	t.Helper()
	require.NoError(t, l.Extend(soon(t)))
	everyNode := func() bool {
		return redlock.KnownToHave(l) == len(f.Nodes()) && redlock.Proven(l) == len(f.Nodes()) && redlock.Answered(l)
	}
	require.Eventually(t, everyNode, 5*time.Second, time.Millisecond)
	holds(t, f, key, l.Token())
}

// clears waits until no node has the key.
func clears(t testing.TB, f *fleet.Fleet, key string) {
	t.Helper()
	holds(t, f, key, "")
}

func TestOneClientHoldsAndTheNextGetsItAfterRelease(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f), open(t, f), soon(t)
		first, err := a.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		require.True(t, first.Valid())
		require.Greater(t, first.Remaining(), 9*time.Second)
		require.Equal(t, []string{"x"}, first.Names())

		_, err = b.Mutex("x").TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum)
		var round *redlock.RoundError
		require.ErrorAs(t, err, &round)
		require.Equal(t, 3, round.Need)

		require.NoError(t, first.Extend(ctx))
		require.NoError(t, first.Release(ctx))
		require.NoError(t, first.Release(ctx), "a second release returns what the first did")
		require.False(t, first.Valid())
		require.Zero(t, first.Remaining())
		require.ErrorIs(t, first.Extend(ctx), redlock.ErrReleased)
		require.ErrorIs(t, context.Cause(first.Context()), redlock.ErrReleased)

		second, err := b.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		require.Greater(t, second.Fence(), first.Fence())
		require.NoError(t, second.Release(ctx))
		clears(t, f, "x")
	})
}

func TestAWaiterIsWokenByTheRelease(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a := open(t, f, unasked, patient)
		refused := make(chan struct{}, 100)
		b := open(t, f, unasked, patient, func(cfg *redlock.Config) {
			cfg.Hooks.Refused = func([]string, error) { refused <- struct{}{} }
		})
		held, err := a.Mutex("x").Acquire(soon(t))
		require.NoError(t, err)
		waiter := begin(t, b, "x")
		<-refused
		<-refused // once before it subscribed, once after
		begun := time.Now()
		require.NoError(t, held.Release(soon(t)))
		l := waiter.has(t)
		require.Less(t, time.Since(begun), 10*time.Second, "it did not sleep until the expiry, 30s off")
		require.NoError(t, l.Release(soon(t)))
	})
}

func TestSeveralNamesAreHadAllOrNone(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		b, err := c.Mutex("b").Acquire(ctx)
		require.NoError(t, err)
		_, err = c.Mutex("a", "b", "c").TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		clears(t, f, "a")
		clears(t, f, "c")
		require.NoError(t, b.Release(ctx))

		all, err := c.Mutex("c", "a", "b").Acquire(ctx)
		require.NoError(t, err)
		require.Greater(t, all.Fence(), b.Fence())
		for _, name := range all.Names() {
			_, err := c.Mutex(name).TryAcquire(ctx)
			require.ErrorIs(t, err, redlock.ErrHeld)
		}
		require.NoError(t, all.Extend(ctx))
		require.NoError(t, all.Release(ctx))
		for _, name := range all.Names() {
			clears(t, f, name)
		}
	})
}

func TestLeaseIsRenewedWhileItIsHeld(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		t.Parallel()
		const ttl = 3 * time.Second
		extended := make(chan time.Duration, 100)
		c := open(t, f, func(cfg *redlock.Config) {
			cfg.TTL, cfg.NodeTimeout = ttl, time.Second
			cfg.Hooks.Extended = func(_ redlock.LeaseInfo, left, _ time.Duration) { extended <- left }
		})
		l, err := c.Mutex("x").Acquire(soon(t))
		require.NoError(t, err)
		for range 6 { // two TTLs
			select {
			case left := <-extended:
				require.Greater(t, left, ttl/2)
			case <-l.Context().Done():
				require.Fail(t, "it ended", "%v", context.Cause(l.Context()))
			}
			require.True(t, l.Valid())
		}
		require.NoError(t, l.Context().Err())
		require.NoError(t, l.Release(soon(t)))
	})
}

func TestLeaseEndsByItselfWithoutRenewalOrPastItsLongestHold(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f, func(cfg *redlock.Config) { cfg.TTL = 100 * time.Millisecond }), soon(t)
		for _, lock := range []redlock.Lock{
			c.Mutex("once").WithoutRenewal(),
			c.Mutex("most").WithMaxHold(150 * time.Millisecond),
		} {
			l, err := lock.Acquire(ctx)
			require.NoError(t, err)
			select {
			case <-l.Context().Done():
			case <-time.After(5 * time.Second):
				require.Fail(t, "it does not end")
			}
			require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrLost)
			require.False(t, l.Valid())
			require.ErrorIs(t, l.Release(ctx), redlock.ErrLost)
		}
	})
}

// A program that has a longest hold in its configuration may say for ever with the longest duration there is.
// The context ends a little before the lease, and not at once.
func TestAShortLongestHoldIsOfUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enrolled(t, 1)
		for _, longest := range []time.Duration{time.Millisecond, 15 * time.Millisecond, time.Minute} {
			acquired := time.Now()
			l, err := all[0].Mutex("x").WithMaxHold(longest).Acquire(t.Context())
			require.NoError(t, err)
			<-l.Context().Done()
			require.GreaterOrEqual(t, time.Since(acquired), longest*9/10)
			require.ErrorIs(t, l.Release(t.Context()), redlock.ErrLost)
		}
	})
}

func TestTheLongestHoldOfAllIsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enrolled(t, 1)
		l, err := all[0].Mutex("x").WithMaxHold(math.MaxInt64).Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, l.Valid())
		time.Sleep(time.Minute)
		require.True(t, l.Valid())
		require.NoError(t, l.Release(t.Context()))
	})
}

func TestHolderLearnsAtTheNextRenewalThatItsKeysAreGone(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		l, err := c.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		spread(t, f, "x", l)
		for _, n := range f.Nodes()[:3] {
			conn, err := n.DialDirect(ctx, time.Second)
			require.NoError(t, err)
			_, err = conn.Do("DEL", "x")
			require.NoError(t, err)
			conn.Close()
		}
		require.ErrorIs(t, l.Extend(ctx), redlock.ErrLost)
		require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrLost)
		require.ErrorIs(t, l.Release(ctx), redlock.ErrLost)
		clears(t, f, "x")
	})
}

// R2: A node that lost the key gets it back.
func TestANodeThatLostTheKeyIsPlantedAgain(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		l, err := c.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		spread(t, f, "x", l)
		for _, n := range f.Nodes()[3:] {
			conn, err := n.DialDirect(ctx, time.Second)
			require.NoError(t, err)
			_, err = conn.Do("FLUSHALL")
			require.NoError(t, err)
			conn.Close()
		}
		require.NoError(t, l.Extend(ctx))
		holds(t, f, "x", l.Token())
		require.NoError(t, l.Release(ctx))
		clears(t, f, "x")
	})
}

func TestClosingEndsLeasesAndWaiters(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, ctx := open(t, f), soon(t)
		l, err := a.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		waiter := make(chan error, 1)
		b := open(t, f)
		go func() {
			_, err := b.Mutex("x").Acquire(ctx)
			waiter <- err
		}()
		require.NoError(t, b.Close())
		require.ErrorIs(t, <-waiter, redlock.ErrClosed)
		require.NoError(t, a.Close())
		require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrClosed)
		clears(t, f, "x")
		_, err = a.Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, redlock.ErrClosed)
	})
}

func TestADroppedLeaseStopsRenewing(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Embedded, fleet.Options{}), soon(t)
	a := open(t, f, func(cfg *redlock.Config) { cfg.TTL = 200 * time.Millisecond })
	b := open(t, f)
	func() {
		l, err := a.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		within := l.With(context.WithValue(l.With(context.Background()), new(int), 1))
		require.NoError(t, within.Err())
		require.NoError(t, l.With(l.Context()).Err())
	}()
	collecting, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for collecting.Err() == nil {
			runtime.GC()
			time.Sleep(10 * time.Millisecond)
		}
	}()
	l, err := b.Mutex("x").Acquire(ctx)
	stop()
	<-done
	require.NoError(t, err)
	require.NoError(t, l.Release(ctx))
}
