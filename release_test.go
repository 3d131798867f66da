package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// away kills nodes and waits until the client knows.
func away(t *testing.T, c *redlock.Client, f *fleet.Fleet, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		require.NoError(t, f.Nodes()[i].Kill())
	}
	require.Eventually(t, func() bool {
		status := c.Status(soon(t))
		for _, i := range nodes {
			if status[i].Connected {
				return false
			}
		}
		return true
	}, 5*time.Second, time.Millisecond)
}

// L1: One node released the key, one never had it, one is away. Nobody else can have had the lock, so it is not
// ErrLost.
func TestALeaseThatWasValidThroughoutIsNeverSaidToBeLost(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c, ctx := open(t, f, redlock.AskAll), soon(t)
	tell(t, f.Nodes()[2], "SET", "x", "somebody's leftover", "PX", 60_000)
	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	away(t, c, f, 0)
	require.True(t, l.Valid())
	err = l.Release(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotErrorIs(t, err, redlock.ErrLost)

	tell(t, f.Nodes()[2], "DEL", "x")
	require.NoError(t, f.Nodes()[0].Start(ctx, fleet.Empty))
	require.Eventually(t, func() bool { return c.Enroll(ctx) == nil }, 5*time.Second, 10*time.Millisecond)
	tell(t, f.Nodes()[2], "SET", "y", "somebody's leftover", "PX", 60_000)
	require.NoError(t, c.Mutex("y").Do(ctx, func(context.Context, *redlock.Lease) error {
		away(t, c, f, 0)
		return nil
	}), "what was done was done under a valid lease")
}

// L1: The lease was valid when it was released, and the release was on its way for so long that the keys expired before it came.
func TestALockThatExpiredBeforeItsReleaseCameIsNoLoss(t *testing.T) {
	for name, c := range map[string]struct{ ttl, nodeTimeout, left, lag time.Duration }{
		"a short TTL":      {ttl: 200 * time.Millisecond, left: 70 * time.Millisecond, lag: 150 * time.Millisecond},
		"servers far away": {nodeTimeout: 2 * time.Second, left: 500 * time.Millisecond, lag: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 1)
				client := w.connect(t, 0, func(cfg *redlock.Config) { cfg.NodeTimeout = c.nodeTimeout })
				require.NoError(t, client.Enroll(t.Context()))
				time.Sleep(10 * time.Second)
				lock := client.Mutex("x").WithoutRenewal()
				if c.ttl != 0 {
					lock = lock.WithTTL(c.ttl)
				}
				late := func(_ context.Context, l *redlock.Lease) error {
					time.Sleep(l.Remaining() - c.left)
					w.lag(c.lag)
					require.True(t, l.Valid())
					return nil
				}
				require.NoError(t, lock.Do(t.Context(), late))
				w.lag(0)
				time.Sleep(2 * c.lag) // what is on its way would hold up the acquire, and the keys would last longer
				l, err := lock.Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, late(t.Context(), l))
				err = l.Release(t.Context())
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.ErrorContains(t, err, "the lock may have expired before the release came")
			})
		})
	}
}

// L1: A node in quarantine never had the lock, and says that it is gone. One of the two that had it has just forgotten it.
// Nobody else can have had the lock.
func TestANodeThatNeverHadTheLockDoesNotHelpToProveItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		c := w.connect(t, 0, redlock.AskAll)
		require.NoError(t, c.Enroll(t.Context()))
		restart := func(s *server) {
			s.stop()
			s.start(false)
			time.Sleep(3 * time.Second) // the client is connected again, and begins a quarantine
		}
		restart(w.servers[0])
		require.NoError(t, c.Mutex("x").WithoutRenewal().Do(t.Context(), func(_ context.Context, l *redlock.Lease) error {
			synctest.Wait()
			require.Empty(t, w.owners("x")[0])
			restart(w.servers[1])
			require.True(t, l.Valid())
			require.ErrorIs(t, l.Extend(t.Context()), redlock.ErrNoQuorum)
			require.True(t, l.Valid())
			err := l.Release(t.Context())
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotErrorIs(t, err, redlock.ErrLost)
			return nil
		}), "it was done under a valid lease")
	})
}

// L1: The last answer proves the loss, and Release waits for it.
func TestWorkIsToldThatItsLockWasTakenByForce(t *testing.T) {
	for _, nodes := range []int{3, 4, 5} {
		for dead := range (nodes-1)/2 + 1 {
			t.Run(fmt.Sprintf("nodes=%d dead=%d", nodes, dead), func(t *testing.T) {
				f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: nodes, Links: true})
				c, operator, ctx := open(t, f), openDirect(t, f), soon(t)
				err := c.Mutex("x").Do(ctx, func(_ context.Context, l *redlock.Lease) error {
					spread(t, f, "x", l)
					for i := range dead {
						away(t, c, f, i)
					}
					require.NoError(t, f.Nodes()[nodes-1].Delay(20*time.Millisecond))
					return operator.ForceRelease(ctx, "x")
				})
				require.ErrorIs(t, err, redlock.ErrLost)
				require.NotErrorIs(t, err, redlock.ErrNoQuorum)
				require.NotContains(t, err.Error(), "\n")
			})
		}
	}
}

// R3: One of five nodes is away and three have no key. Two denials already rule out a quorum. Extend waits for the
// third, which tells a lost lease from an outage.
func TestExtendWaitsForTheAnswersThatTellALostLeaseFromAnOutage(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 5, Links: true})
	c, ctx := open(t, f), soon(t)
	l, err := c.Mutex("x").WithoutRenewal().Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", l)
	for _, n := range f.Nodes()[2:] {
		tell(t, n, "DEL", "x")
	}
	away(t, c, f, 0)
	require.NoError(t, f.Nodes()[4].Delay(20*time.Millisecond))
	require.ErrorIs(t, l.Extend(ctx), redlock.ErrLost)
	require.False(t, l.Valid())
	require.ErrorIs(t, l.Release(ctx), redlock.ErrLost)
}

// L1: Several goroutines may release a lease at once. All of them learn of the nodes' answers when these come.
func TestAllWhoReleaseALeaseAtOnceReturnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const roundTrip = 100 * time.Millisecond
		w, all := enrolled(t, 1)
		for _, s := range w.servers {
			s.slow(0, roundTrip)
		}
		time.Sleep(time.Minute) // long enough to have measured the round trips
		l, err := all[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		begun := time.Now()
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				assert.NoError(t, l.Release(t.Context()))
				assert.LessOrEqual(t, time.Since(begun), roundTrip)
			})
		}
		calls.Wait()
	})
}

// L1: A bare quorum had the lock, and one of its nodes is silent. Release waits for that until it is late, and not for
// NodeTimeout.
func TestAReleaseOfABareQuorumWaitsForASilentNodeUntilItIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		time.Sleep(time.Minute) // long enough to have measured the round trips
		l, err := all[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		had := w.having("x")
		require.Len(t, had, 2)
		had[1].links[0].hold(requests, +1)
		begun := time.Now()
		require.NoError(t, l.Release(t.Context()))
		require.Less(t, time.Since(begun), nodeTimeout/4)
		had[1].links[0].hold(requests, -1)
	})
}

// R2: A node that granted after the round was won had the keys too. If they are taken away there, no renewal takes them
// back.
func TestWhatALateNodeGrantedIsNotTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		c := w.connect(t, 0, redlock.AskAll)
		require.NoError(t, c.Enroll(t.Context()))
		late := w.servers[2]
		late.slow(0, 100*time.Millisecond)
		l, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.False(t, late.redis.Exists("x"))
		time.Sleep(time.Second)
		require.True(t, late.redis.Del("x"))
		require.True(t, w.servers[0].redis.Del("x"))
		time.Sleep(4 * time.Second) // a renewal has asked
		require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrLost)
		require.False(t, late.redis.Exists("x"))
	})
}

// R3: An Extend that waits for silent nodes may outlast its lease, or the lease is released, or its client closed. Then it
// does not say that the lease is valid for what was left.
func TestAnExtendThatOutlastsItsLeaseSaysHowTheLeaseEnded(t *testing.T) {
	for name, how := range map[string]struct {
		end  func(*redlock.Client, *redlock.Lease)
		want error
	}{
		"expired":  {func(*redlock.Client, *redlock.Lease) {}, redlock.ErrLost},
		"released": {func(_ *redlock.Client, l *redlock.Lease) { _ = l.Release(context.Background()) }, redlock.ErrReleased},
		"closed":   {func(c *redlock.Client, _ *redlock.Lease) { _ = c.Close() }, redlock.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 1)
				l, err := all[0].Mutex("x").WithoutRenewal().Acquire(t.Context())
				require.NoError(t, err)
				time.Sleep(l.Remaining() - nodeTimeout/2)
				require.True(t, l.Valid())
				for _, s := range w.servers {
					s.links[0].hold(requests, +1)
				}
				var ending sync.WaitGroup
				ending.Go(func() {
					time.Sleep(nodeTimeout / 10)
					how.end(all[0], l)
				})
				err = l.Extend(t.Context())
				require.False(t, l.Valid())
				require.ErrorIs(t, err, how.want)
				require.NotErrorIs(t, err, redlock.ErrNoQuorum)
				ending.Wait()
			})
		})
	}
}

// L1: Of a lease that a bare quorum has, one node deleted the keys and the other one is late: the lock is released. That the
// late one turns out to have lost them does not change what further calls return.
func TestEveryReleaseReturnsTheSameWhateverALateNodeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		l, err := all[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		var late *server // one of the two that have it
		for i, owner := range w.owners("x") {
			if owner != "" {
				late = w.servers[i]
			}
		}
		late.tell("DEL", "x")
		late.links[0].hold(replies, +1)
		require.NoError(t, l.Release(t.Context()))
		late.links[0].hold(replies, -1)
		time.Sleep(time.Second)
		require.NoError(t, l.Release(t.Context()))
	})
}

// A context that carries the lease ends with it, and does not cut short the wait of the call that ends it. What the caller
// put on top of that bounds the wait all the same.
func TestTheDeadlineOfAContextUnderTheLeaseBoundsTheCallThatEndsIt(t *testing.T) {
	const limit = 10 * time.Millisecond
	deadline := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, limit)
	}
	ended := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}
	none := func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
	for name, call := range map[string]func(context.Context, *redlock.Lease) error{
		"Release":   func(ctx context.Context, l *redlock.Lease) error { return l.Release(ctx) },
		"Detach":    func(ctx context.Context, l *redlock.Lease) error { _, err := l.Detach(ctx); return err },
		"Downgrade": func(ctx context.Context, l *redlock.Lease) error { _, err := l.Downgrade(ctx); return err },
	} {
		for kind, under := range map[string]struct {
			ctx  func(context.Context) (context.Context, context.CancelFunc)
			took time.Duration
			err  error
		}{
			"with a deadline":   {deadline, limit, context.DeadlineExceeded},
			"that has ended":    {ended, 0, context.Canceled},
			"with nothing else": {none, nodeTimeout, redlock.ErrNoQuorum},
		} {
			t.Run(name+" under one "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, all := enrolled(t, 1)
					l, err := all[0].Mutex("x").Acquire(t.Context())
					require.NoError(t, err)
					synctest.Wait()
					for _, s := range w.servers {
						s.links[0].hold(replies, 1)
					}
					ctx, cancel := under.ctx(l.With(t.Context()))
					defer cancel()
					began := time.Now()
					err = call(ctx, l)
					require.Equal(t, under.took, time.Since(began))
					if name == "Downgrade" { // the reader's lease is valid also if no node has answered
						require.NoError(t, err)
						return
					}
					require.ErrorIs(t, err, under.err)
					for _, s := range w.servers {
						s.links[0].hold(replies, -1)
					}
					if name == "Release" {
						synctest.Wait()
						for _, s := range w.servers {
							require.Zero(t, s.timeToLive("x"), "it was sent all the same")
						}
					}
				})
			})
		}
	}
}
