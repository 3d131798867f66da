package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// slack is how long after the end of its context a call may return, on a machine with too much to do. A call that waits
// for its nodes instead takes twice as long.
const slack = 4 * time.Second

func p90(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*90/100]
}

// cycles measures Acquire, Extend and Release, each by itself.
func cycles(t *testing.T, c *redlock.Client, name string, n int) (acquire, extend, release []time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a client that waits for a node needs much longer
	defer cancel()
	for range n {
		t0 := time.Now()
		l, err := c.Mutex(name).Acquire(ctx)
		require.NoError(t, err)
		t1 := time.Now()
		require.NoError(t, l.Extend(ctx))
		t2 := time.Now()
		require.NoError(t, l.Release(ctx))
		acquire, extend, release = append(acquire, t1.Sub(t0)), append(extend, t2.Sub(t1)), append(release, time.Since(t2))
	}
	return
}

func TestOneStoppedNodeOfFiveSlowsNothing(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c := open(t, f, redlock.NeverSlow, patient)
	cycles(t, c, "warm", 200)
	// The machine's own noise is larger than what is measured, so the best of some pairs counts: up to ten, until they
	// are good enough. What no noise explains is a call that waits for the stopped node, for NodeTimeout.
	const limit = 1.5
	best := map[string]float64{"acquire": 1e9, "extend": 1e9, "release": 1e9}
	for pairs := 0; pairs < 10 && max(best["acquire"], best["extend"], best["release"]) > limit; pairs++ {
		a, e, r := cycles(t, c, "x", 400)
		stopped := f.Nodes()[max(redlock.ProbeFor(c, "x"), 0)] // one that would be asked
		require.NoError(t, stopped.Pause())
		sa, se, sr := cycles(t, c, "x", 400)
		require.NoError(t, stopped.Resume())
		for op, pair := range map[string][2][]time.Duration{"acquire": {a, sa}, "extend": {e, se}, "release": {r, sr}} {
			best[op] = min(best[op], float64(p90(pair[1]))/float64(p90(pair[0])))
			require.Less(t, slices.Max(pair[1]), 2*time.Second, "%s: a call waits for the stopped node", op)
		}
	}
	t.Logf("p90 with one of five stopped, against all up: %v", best)
	for op, ratio := range best {
		require.LessOrEqual(t, ratio, limit, op)
	}
}

func TestNoCallOutlivesItsContext(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c := open(t, f, func(cfg *redlock.Config) { cfg.NodeTimeout, cfg.TTL, cfg.MaxTTL = 2*slack, 8*slack, 8*slack })
	l, err := c.Mutex("held").Acquire(soon(t))
	require.NoError(t, err)
	for _, n := range f.Nodes()[:3] { // no quorum answers
		require.NoError(t, n.Pause())
	}
	calls := map[string]func(context.Context) error{
		"Acquire":    func(ctx context.Context) error { _, err := c.Mutex("x").Acquire(ctx); return err },
		"TryAcquire": func(ctx context.Context) error { _, err := c.Mutex("x").TryAcquire(ctx); return err },
		"Extend":     l.Extend,
		"Release":    l.Release,
		"queued": func(ctx context.Context) error {
			go func() { _, _ = c.Mutex("q").Acquire(ctx) }()
			_, err := c.Mutex("q").Acquire(ctx)
			return err
		},
	}
	for _, name := range []string{"Acquire", "TryAcquire", "Extend", "queued", "Release"} {
		for _, limit := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			begun := time.Now()
			err := calls[name](ctx)
			over := time.Since(begun) - limit
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.Less(t, over, slack, "%s with %v", name, limit)
		}
	}
	for _, n := range f.Nodes()[:3] {
		require.NoError(t, n.Resume())
	}
	clears(t, f, "held")
	clears(t, f, "x")
	clears(t, f, "q")
}

func TestAContextThatEndsDuringAcquireLeavesNothing(t *testing.T) {
	onFleets(t, fleet.Options{Links: true}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		require.NoError(t, c.Mutex("warm").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
		for _, n := range f.Nodes() {
			require.NoError(t, n.Delay(2*time.Millisecond))
		}
		cut := 0
		for i := range 100 {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(i%50)*100*time.Microsecond)
			l, err := c.Mutex("x").Acquire(ctx)
			cancel()
			if err == nil {
				require.NoError(t, l.Release(soon(t)))
				continue
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cut++
		}
		require.Positive(t, cut)
		clears(t, f, "x")
	})
}

func TestTenThousandContendedFailuresLeaveNoKey(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	const clients, goroutines = 4, 8
	each := fifth(400)
	var failures, wins atomic.Int64
	var wg sync.WaitGroup
	patient := func(cfg *redlock.Config) { cfg.NodeTimeout = 4 * time.Second } // timeouts are not tested here
	for range clients {
		c := open(t, f, patient)
		for range goroutines {
			wg.Go(func() {
				for range each {
					l, err := c.Mutex("x").TryAcquire(context.Background())
					if err == nil {
						wins.Add(1)
						assert.NoError(t, l.Release(context.Background()))
						continue
					}
					assert.ErrorIs(t, err, redlock.ErrHeld)
					failures.Add(1)
				}
			})
		}
	}
	holder := open(t, f, patient)
	wg.Go(func() { // keeps the lock taken most of the time, so that nearly all fail
		for failures.Load()+wins.Load() < int64(clients*goroutines*each) {
			_, _ = holder.Mutex("x").TryDo(context.Background(), func(context.Context, *redlock.Lease) error {
				time.Sleep(5 * time.Millisecond)
				return nil
			})
		}
	})
	wg.Wait()
	t.Logf("%d failures, %d wins", failures.Load(), wins.Load())
	require.GreaterOrEqual(t, failures.Load(), int64(fifth(10_000)))
	clears(t, f, "x")
}

// R3: With renewals on, the clock ends the lease before another client can own the lock.
func TestAHolderThatIsCutOffStopsBelievingBeforeAnotherAcquires(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Links: true})
	const ttl, holders, each = 2 * time.Second, 5, 20
	other := openDirect(t, f, patient)
	var held, wg sync.WaitGroup
	cut := make(chan struct{})
	for h := range holders {
		holder := open(t, f, func(cfg *redlock.Config) { cfg.TTL = ttl })
		for i := range each {
			held.Add(1)
			wg.Go(func() {
				name := fmt.Sprintf("%d/%d", h, i)
				l, err := holder.Mutex(name).Acquire(soon(t))
				if !assert.NoError(t, err) {
					held.Done()
					return
				}
				time.Sleep(time.Duration(i) * ttl / each) // cut off at different ages, some renewed
				held.Done()
				<-cut
				next, err := other.Mutex(name).Acquire(soon(t))
				valid, ended := l.Valid(), l.Context().Err() != nil
				if !assert.NoError(t, err) {
					return
				}
				assert.False(t, valid, "%s: the clock has not ended it", name)
				assert.True(t, ended, "%s: its context has not ended", name) // a timer does that, which has a quarter of a second
				<-l.Context().Done()
				assert.ErrorIs(t, context.Cause(l.Context()), redlock.ErrLost)
				assert.Greater(t, next.Fence(), l.Fence())
				assert.NoError(t, next.Release(soon(t)))
			})
		}
	}
	held.Wait()
	for _, n := range f.Nodes() {
		require.NoError(t, n.Cut())
	}
	close(cut)
	wg.Wait()
	require.NoError(t, f.Heal())
}

// openDirect makes a client that connects past the links, so that no link fault touches it.
func openDirect(t testing.TB, f *fleet.Fleet, change ...func(*redlock.Config)) *redlock.Client {
	urls := make([]string, len(f.Nodes()))
	for i, n := range f.Nodes() {
		urls[i] = n.DirectURL()
	}
	return open(t, f, append(change, func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(urls...) })...)
}

// A5: On one ordered connection, a release cannot overtake its acquire. One pause is shorter than the connection's
// timeout. The other is longer, so that the release goes over a new connection.
func TestReleaseCannotOvertakeItsAcquire(t *testing.T) {
	for _, pause := range []time.Duration{0, 1500 * time.Millisecond} {
		t.Run(pause.String(), func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{})
			c, ctx := open(t, f, func(cfg *redlock.Config) { cfg.NodeTimeout = 50 * time.Millisecond }), soon(t)
			require.NoError(t, c.Mutex("warm").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
			for range 3 {
				paused := f.Nodes()[:3]
				for _, n := range paused {
					require.NoError(t, n.Pause())
				}
				_, err := c.Mutex("x").TryAcquire(ctx)
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				time.Sleep(pause)
				for _, n := range paused {
					require.NoError(t, n.Resume())
				}
				// Once all nodes answer on this connection again, everything that was sent before has been done.
				require.EventuallyWithT(t, func(t *assert.CollectT) {
					l, err := c.Mutex("y").TryAcquire(ctx)
					if assert.NoError(t, err) {
						assert.NoError(t, l.Release(ctx))
					}
				}, 5*time.Second, 10*time.Millisecond)
				clears(t, f, "x")
			}
		})
	}
}

func TestReleasesOwedToANodeThatWasAwayAreSentFirst(t *testing.T) {
	t.Parallel() // it waits
	f := fleettest.Start(t, fleet.Process, fleet.Options{Links: true})
	c := open(t, f, func(cfg *redlock.Config) { cfg.NodeTimeout = 500 * time.Millisecond; cfg.TTL = 30 * time.Second })
	l, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	spread(t, f, "x", l)
	require.NoError(t, f.Nodes()[0].Cut())
	require.NoError(t, l.Release(soon(t)))
	require.Equal(t, l.Token(), owners(t, f, "x")[0], "the release has not reached the node that is cut off")
	over, cancel := context.WithCancel(context.Background())
	cancel() // so that Status asks no node
	require.Eventually(t, func() bool { return !c.Status(over)[0].Connected }, 20*time.Second, 10*time.Millisecond,
		"the client has not given up the connection")
	require.NoError(t, f.Nodes()[0].Heal())
	clears(t, f, "x")
}

// L1: An answer that comes after Release has returned does not change its result.
func TestEveryReleaseOfALeaseReturnsTheSame(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Links: true})
	c, ctx := open(t, f), soon(t)
	l, err := c.Mutex("x").WithoutRenewal().Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", l)
	nodes := f.Nodes()
	tell(t, nodes[2], "DEL", "x")
	for _, n := range nodes[3:] {
		require.NoError(t, n.Pause())
	}
	first := l.Release(ctx)
	require.ErrorIs(t, first, redlock.ErrNoQuorum)
	require.ErrorContains(t, first, "no answer in time")
	for _, n := range nodes[3:] {
		require.NoError(t, n.Resume())
	}
	clears(t, f, "x") // a quorum has deleted it by now
	require.Equal(t, first, l.Release(ctx))
}

func TestScriptsThatTheServerForgotAreLoadedAgain(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c, ctx := open(t, f), soon(t)
	l, err := c.Mutex("held").Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "held", l)
	for _, n := range f.Nodes() {
		tell(t, n, "SCRIPT", "FLUSH")
	}
	_ = l.Release(ctx) // its votes are unknown, and it is still owed (L3)
	clears(t, f, "held")
	require.NoError(t, c.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
}

func TestANodeThatRestartsIsUsedAgain(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		t.Parallel() // they wait
		c := open(t, f, ample)
		for _, n := range f.Nodes()[:3] {
			require.NoError(t, n.Kill())
		}
		_, err := c.Mutex("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotErrorIs(t, err, redlock.ErrHeld)
		for _, n := range f.Nodes()[:3] {
			require.NoError(t, n.Start(soon(t), fleet.Empty))
		}
		l, err := c.Mutex("x").Acquire(soon(t))
		require.NoError(t, err)
		require.NoError(t, l.Release(soon(t)))
	})
}

// A server that has forgotten its scripts has not forgotten what it granted. It votes, and Status says so at once.
func TestANodeThatForgotItsScriptsVotes(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	open(t, f, patient) // all nodes vote from the first moment on, so that the log has nothing to say of a quorum
	var log journal
	c := openFresh(t, f, patient, log.to)
	require.Eventually(t, func() bool { return noneWithoutVote(c.Status(soon(t))) }, 8*time.Second, time.Millisecond)
	for range 3 {
		for _, n := range f.Nodes() {
			tell(t, n, "SCRIPT", "FLUSH")
		}
		for _, n := range c.Status(soon(t)) {
			require.NoError(t, n.Err)
		}
	}
	require.NoError(t, c.Close())
	require.Empty(t, log.found(quorumLines))
}

func noneWithoutVote(nodes []redlock.NodeStatus) bool {
	return !slices.ContainsFunc(nodes, func(n redlock.NodeStatus) bool { return n.Err != nil })
}
