package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/access"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// R2: The nodes that an acquire asked are a bare quorum. Of these, two of five stop right after it. The renewal takes the
// keys on the other two, which are in a quarantine at first and leave it between two renewals.
func TestALeaseOutlivesTwoOfFiveNodesThatStopRightAfterItsAcquire(t *testing.T) {
	for _, wait := range []bool{false, true} {
		for first := range 5 {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 5, 2)
				c, other := w.connect(t, 0), w.connect(t, 1)
				require.NoError(t, c.Enroll(t.Context()))
				other.Status(t.Context())
				time.Sleep(10 * time.Second)
				l, err := c.Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				var with, without []*server
				for i := range w.servers {
					if s := w.servers[(first+i)%5]; s.timeToLive("x") > 0 {
						with = append(with, s)
					} else {
						without = append(without, s)
					}
				}
				require.Len(t, with, 3, "a bare quorum was asked")
				if wait {
					for _, s := range without { // they forget, and the lease does not need them now
						s.flush()
					}
					time.Sleep(time.Minute) // the quarantine ends
				}
				with[0].stop()
				with[1].stop()
				for range 10 {
					time.Sleep(11 * time.Second)
					require.True(t, l.Valid())
					_, err = other.Mutex("x").TryAcquire(t.Context())
					require.ErrorIs(t, err, redlock.ErrHeld)
				}
				require.NoError(t, l.Release(t.Context()))
				next, err := other.Mutex("x").TryAcquire(t.Context())
				require.NoError(t, err)
				require.Greater(t, next.Fence(), l.Fence())
			})
		}
	}
}

// R2: On real servers, with each pair of five.
func TestEveryLeaseOutlivesAnyTwoOfFiveNodesThatStopRightAfterItsAcquire(t *testing.T) {
	const nodes, leases, ttl = 5, 100, 3 * time.Second // leases for each of ten pairs
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: nodes})
	lived, all := 0, 0
	for i := range nodes {
		for j := range i {
			var held [leases]*redlock.Lease
			renewed := make(chan string, 10*leases)
			c := open(t, f, func(cfg *redlock.Config) {
				cfg.TTL = ttl
				cfg.Hooks.Extended = func(l redlock.LeaseInfo, _, _ time.Duration) { renewed <- l.Names[0] }
			})
			for k := range held {
				var err error
				held[k], err = c.Mutex(fmt.Sprint("x", k)).Acquire(soon(t))
				require.NoError(t, err)
			}
			require.NoError(t, f.Nodes()[i].Pause())
			require.NoError(t, f.Nodes()[j].Pause())
			late := time.NewTimer(4 * ttl)
			times := map[string]int{}
			for done := 0; done < leases; { // two renewals by the nodes that are left
				select {
				case name := <-renewed:
					if times[name]++; times[name] == 2 {
						done++
					}
				case <-late.C:
					done = leases
				}
			}
			for _, l := range held {
				all++
				if l.Valid() {
					lived++
				}
			}
			require.NoError(t, f.Heal())
			require.NoError(t, c.Close())
		}
	}
	require.Equal(t, all, lived)
	t.Logf("%d of %d leases live on", lived, all)
}

// R2: A node in quarantine does not take the keys, and takes them in the first renewal after its end.
func TestARenewalTakesTheKeysOnANodeThatHasLeftItsQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		c, other := w.connect(t, 0), w.connect(t, 1)
		require.NoError(t, c.Enroll(t.Context()))
		other.Status(t.Context())
		time.Sleep(10 * time.Second)
		var forgot *server
		l, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		for _, s := range w.servers {
			if s.timeToLive("x") == 0 {
				forgot = s
			}
		}
		require.NotNil(t, forgot)
		forgot.flush()
		for _, s := range w.servers { // nothing is planted: the others are cut off while it is in quarantine
			if s != forgot {
				s.links[0].hold(requests, +1)
			}
		}
		require.NotErrorIs(t, l.Extend(t.Context()), redlock.ErrLost)
		require.Zero(t, forgot.timeToLive("x"), "it is in quarantine")
		for _, s := range w.servers {
			if s != forgot {
				s.links[0].hold(requests, -1)
			}
		}
		require.Eventually(t, func() bool {
			for _, s := range c.Status(t.Context()) {
				if s.Err != nil {
					return false
				}
			}
			return true
		}, 5*time.Minute, time.Second)
		require.NoError(t, l.Extend(t.Context()))
		synctest.Wait()
		require.Positive(t, forgot.timeToLive("x"))
		require.True(t, l.Valid())
		_, err = other.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
	})
}

// R1: However many requests wait on the nodes, those that renew a lease are sent.
func TestALeaseIsRenewedWhileTheNodesAreOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		c := all[0]
		l, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		defer l.Release(t.Context())
		time.Sleep(time.Second)
		for i, s := range w.servers {
			s.links[0].hold(requests, +1)
			for range 1 << 15 {
				access.Of(c).Get(i, "y", func(string, error) {})
			}
		}
		_, err = c.Mutex("y").TryAcquire(t.Context())
		require.ErrorContains(t, err, "too many requests")
		left := l.Remaining()
		extended := make(chan error)
		go func() { extended <- l.Extend(t.Context()) }()
		synctest.Wait()
		for _, s := range w.servers {
			s.links[0].hold(requests, -1)
		}
		require.NoError(t, <-extended)
		require.Greater(t, l.Remaining(), left)
	})
}

// R1: A node forgets the vote that it gave to another client, whose round goes on, and then gets the keys of a lease by a
// plant. If the lease counted that node and no longer needed another one, the round could win with the two.
func TestANodeThatForgotAVoteDoesNotCountBecauseTheKeysWerePlanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 150 * time.Millisecond // the other's round lasts longer
		w, all := enrolled(t, 2)
		time.Sleep(10 * time.Second)
		lease, err := all[0].Mutex("x").WithTTL(ttl).Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		var forgot, left *server // the node that is not asked first, and one of the two that are
		for _, s := range w.servers {
			if s.timeToLive("x") == 0 {
				forgot = s
			} else {
				left = s
			}
		}
		require.NotNil(t, forgot)
		forgot.links[0].hold(requests, +1)
		left.links[1].hold(requests, +1)
		time.Sleep(time.Millisecond) // the other's ballot is larger
		var other *redlock.Lease
		acquired := make(chan struct{})
		go func() {
			defer close(acquired)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			other, err = all[1].Mutex("x").Acquire(ctx)
		}()
		until := func(what string, done func() bool) {
			t.Helper()
			for range 300 {
				if done() {
					return
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			require.FailNow(t, what)
		}
		until("it votes for the other", func() bool { return forgot.timeToLive("x") > time.Second })
		forgot.flush()
		forgot.links[0].hold(requests, -1)
		until("the keys are planted", func() bool { return forgot.timeToLive("x") > 0 })
		left.links[0].hold(requests, +1)
		until("the key of the node that is left has expired", func() bool { return left.timeToLive("x") == 0 })
		left.links[1].hold(requests, -1)
		<-acquired
		require.NoError(t, err)
		require.False(t, lease.Valid() && other.Valid(), "two have the lock")
		require.True(t, other.Valid())
	})
}

// Q2, R1: A lease outlives the loss of all data on each node in turn, if a quarantine lies between. In a quarantine, the node
// does not count.
func TestAPlantedNodeCountsAfterItsQuarantine(t *testing.T) {
	for _, wait := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, all := enrolled(t, 1)
			c := all[0]
			l, err := c.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, l.Extend(t.Context()))
			synctest.Wait()
			w.servers[0].flush()
			require.NoError(t, l.Extend(t.Context()))
			synctest.Wait()
			require.Positive(t, w.servers[0].timeToLive("x"), "planted")
			if wait {
				time.Sleep(time.Minute)
			}
			w.servers[1].stop()
			err = l.Extend(t.Context())
			if wait {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, "it may have forgotten what it granted")
			time.Sleep(time.Minute)
			require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrLost)
		})
	}
}

// R2, R3: One node of the bare quorum forgets before the first renewal, and something stays for a while where the lease
// never had its key. Nobody else can have the lock, and the lease lives on.
func TestALeaseIsNotLostBecauseOfANodeThatNeverHadItsKey(t *testing.T) {
	for name, extend := range map[string]bool{"renewed": false, "extended": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 1)
				time.Sleep(10 * time.Second)
				l, err := all[0].Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				var never, forgot *server
				for _, s := range w.servers {
					if s.timeToLive("x") == 0 {
						never = s
					} else {
						forgot = s
					}
				}
				require.NoError(t, never.redis.Set("x", "another's"))
				forgot.flush()
				if extend {
					require.ErrorIs(t, l.Extend(t.Context()), redlock.ErrNoQuorum)
				} else {
					time.Sleep(6 * time.Second)
				}
				require.NoError(t, context.Cause(l.Context()))
				never.redis.Del("x")
				time.Sleep(20 * time.Second)
				require.NoError(t, context.Cause(l.Context()))
				require.NoError(t, l.Release(t.Context()))
			})
		})
	}
}

// R2: Waiters may pass the third node from one to the next, so that it is never free. The lease takes it from a waiter that it
// is reserved for.
func TestALeaseLivesOnWhenANodeRestartsWhileOthersWait(t *testing.T) {
	for seed := range uint64(trials(5)) {
		livesOnWhileOthersWait(t, seed, func(c *redlock.Client) redlock.Lock { return c.Mutex("x") })
		if t.Failed() {
			return
		}
	}
}

func TestAPermitLivesOnWhenANodeRestartsWhileOthersWait(t *testing.T) {
	livesOnWhileOthersWait(t, 0, func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 1) })
}

func livesOnWhileOthersWait(t *testing.T, seed uint64, lock func(*redlock.Client) redlock.Lock) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 4)
		var clients []*redlock.Client
		for i := range 4 {
			clients = append(clients, w.connect(t, i, func(cfg *redlock.Config) { redlock.Seed(cfg, 100*seed+uint64(i)) }))
			for _, s := range w.servers {
				s.slow(i, time.Millisecond)
			}
		}
		require.NoError(t, clients[0].Enroll(t.Context()))
		for _, c := range clients {
			c.Status(t.Context())
		}
		time.Sleep(10 * time.Second)
		l, err := lock(clients[0]).Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		for i, s := range w.servers { // of the two that have it, the one that is not asked first
			if i != redlock.ProbeFor(clients[0], "x") && s.timeToLive("x") > 0 {
				s.stop()
				s.start(false)
				break
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // longer than the lease without a renewal
		defer cancel()
		for _, c := range clients[1:] {
			go func() {
				if l, err := lock(c).Acquire(ctx); err == nil {
					_ = l.Release(context.WithoutCancel(ctx))
				}
			}()
		}
		select {
		case <-ctx.Done():
		case <-l.Context().Done():
			cancel()
		}
		require.NoError(t, context.Cause(l.Context()), "seed %d", seed)
		require.NoError(t, l.Release(t.Context()))
	})
}

// R3: A node that restarted lacks the key, and another client's attempt has the one that never had it. Extend waits for the third.
// Meanwhile the scheduled renewal takes the key, and has a quorum. So the denial of before is no loss.
func TestExtendDoesNotLoseALeaseThatAnotherRenewalHasAQuorumFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		time.Sleep(10 * time.Second)
		l, err := all[0].Mutex("x").WithTTL(10 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		var n, m, o *server
		for _, s := range w.servers {
			switch {
			case s.timeToLive("x") == 0:
				n = s
			case m == nil:
				m = s
			default:
				o = s
			}
		}
		m.stop()
		m.start(false)
		time.Sleep(2 * time.Second) // m is connected again, in quarantine
		synctest.Wait()
		n.tell("SET", "x", "another client's attempt", "PX", 5000)
		o.links[0].hold(replies, +1)
		extended := make(chan error, 1)
		go func() { extended <- l.Extend(t.Context()) }()
		time.Sleep(time.Millisecond)
		n.tell("DEL", "x")
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		require.Positive(t, n.timeToLive("x"))
		o.links[0].hold(replies, -1)
		require.NotErrorIs(t, <-extended, redlock.ErrLost)
		require.True(t, l.Valid(), "lost, though n and o have the key")
		require.NoError(t, l.Release(t.Context()))
	})
}
