package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

const hugeBallot = 1<<53 - 2

// F2: One node says that it granted ballots near the largest number there is. Nobody goes above that: the node has no
// vote, and the others grant as always.
func TestOneNodeDoesNotUseUpTheFencingTokens(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, nodes, 2)
			one, other := w.connect(t, 0), w.connect(t, 1)
			require.NoError(t, one.Enroll(t.Context()))
			other.Status(t.Context())
			w.servers[1].raiseFence(hugeBallot)
			near := func(l *redlock.Lease, err error) *redlock.Lease {
				require.NoError(t, err)
				ahead := time.Duration(l.Fence()-uint64(time.Now().UnixMicro())) * time.Microsecond
				require.Less(t, ahead, time.Minute)
				return l
			}
			for i := range 20 {
				name := fmt.Sprint("name-", i%4)
				l := near(one.Mutex(name).Acquire(t.Context()))
				_, err := other.Mutex(name).TryAcquire(t.Context())
				require.ErrorIs(t, err, redlock.ErrHeld)
				next := make(chan *redlock.Lease, 1)
				go func() { next <- near(other.Mutex(name).Acquire(t.Context())) }()
				synctest.Wait()
				require.NoError(t, l.Release(t.Context()))
				began := time.Now()
				require.NoError(t, (<-next).Release(t.Context()))
				require.Less(t, time.Since(began), time.Second)
				near(other.Mutex(name).TryAcquire(t.Context())).Release(t.Context())
				near(one.Mutex(name).Fair().Acquire(t.Context())).Release(t.Context())
			}
		})
	}
}

// With another node away, the node that is not believed is missed. The error says what is wrong with it.
func TestANodeWhoseFencingTokensAreFarAheadIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		c := w.connect(t, 0)
		require.NoError(t, c.Enroll(t.Context()))
		w.servers[1].raiseFence(hugeBallot)
		w.servers[2].stop()
		_, err := c.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotErrorIs(t, err, redlock.ErrHeld)
		require.ErrorContains(t, err, "ahead of the servers' clocks")
		require.ErrorContains(t, err, "delete that key on this node")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = c.Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)

		w.servers[1].tell("DEL", "redlock:fence")
		l, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
	})
}

// F2: All clocks were far ahead once, and were set right. A quorum says so, and fencing tokens keep their order.
func TestFencingTokensGrowThoughAllClocksAreSetBack(t *testing.T) {
	for _, how := range []string{"Acquire", "TryAcquire", "Fair", "Adopt"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 5, 2)
				for _, s := range w.servers {
					s.step(30 * 24 * time.Hour)
				}
				before := w.connect(t, 0)
				require.NoError(t, before.Enroll(t.Context()))
				l, err := before.Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Release(t.Context()))
				var ticket redlock.Ticket
				if how == "Adopt" {
					other, err := before.Mutex("y").Acquire(t.Context())
					require.NoError(t, err)
					ticket, err = other.Detach(t.Context())
					require.NoError(t, err)
				}
				require.NoError(t, before.Close())
				for _, s := range w.servers {
					s.step(-30 * 24 * time.Hour)
				}
				for _, s := range w.servers {
					s.raiseFence(l.Fence()) // of all slots: also those of the ticket's name, whoever granted them
				}
				after := w.connect(t, 1)
				time.Sleep(10 * time.Second)
				for i := range 10 {
					began := time.Now()
					var next *redlock.Lease
					switch {
					case how == "TryAcquire":
						next, err = after.Mutex("x").TryAcquire(t.Context())
					case how == "Fair":
						next, err = after.Mutex("x").Fair().Acquire(t.Context())
					case how == "Adopt" && i == 0:
						next, err = after.Adopt(t.Context(), ticket)
					default:
						next, err = after.Mutex("x").Acquire(t.Context())
					}
					var refusal *redlock.RoundError
					if errors.As(err, &refusal) {
						t.Logf("%+v", refusal)
					}
					require.NoError(t, err)
					require.Less(t, time.Since(began), 10*time.Second)
					require.Greater(t, next.Fence(), l.Fence())
					require.NoError(t, next.Release(t.Context()))
					l = next
				}
			})
		})
	}
}

// F2: A quorum has the largest number there is, which only another program can have written. Nobody can go above it: the nodes
// are named, and not asked again and again.
func TestAQuorumThatHasUsedUpTheFencingTokensIsNamed(t *testing.T) {
	for _, highest := range []uint64{1<<53 - 1<<50 + 1, hugeBallot - 3, hugeBallot + 1, hugeBallot + 2} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 3, 1)
			var rounds atomic.Int64
			c := w.connect(t, 0, func(cfg *redlock.Config) {
				cfg.Hooks.Refused = func([]string, error) { rounds.Add(1) }
			})
			require.NoError(t, c.Enroll(t.Context()))
			w.servers[0].raiseFence(highest)
			w.servers[1].raiseFence(highest)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := c.Mutex("x").Acquire(ctx)
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotErrorIs(t, err, redlock.ErrHeld)
			require.ErrorContains(t, err, "a program has written to redlock:fence there")
			require.Less(t, rounds.Load(), int64(100))
		})
	}
}

// reach has the client reach these servers, or no longer.
func (w *world) reach(client int, reached bool, servers ...int) {
	by := +1
	if reached {
		by = -1
	}
	for _, i := range servers {
		w.servers[i].links[client].hold(requests, by)
	}
}

// F1: A client reaches only one server, whose clock is hours ahead. It cannot win, and leaves nothing that would cost the
// server its vote once the clock is right.
func TestAClientThatReachesOnlyAWrongClockSpoilsNoFencingTokens(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, nodes, 2)
			all := w.connect(t, 0)
			require.NoError(t, all.Enroll(t.Context()))
			last := w.servers[nodes-1]
			last.step(3 * time.Hour)
			others := []int{0, 1, 2, 3}[:nodes-1]
			w.reach(1, false, others...)
			lonely := w.connect(t, 1)
			for range 3 {
				_, err := lonely.Mutex("x").TryAcquire(t.Context())
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.NotErrorIs(t, err, redlock.ErrHeld)
				require.ErrorContains(t, err, fmt.Sprintf("it was not asked, because a fencing token takes the clocks of more nodes than have been reached [node-%d]", nodes))
			}
			w.reach(1, true, others...)
			last.step(-3 * time.Hour)
			time.Sleep(time.Minute)
			for i := range (nodes - 1) / 2 {
				w.servers[i].stop() // now the last one's vote is needed
			}
			for _, c := range []*redlock.Client{all, lonely} {
				l, err := c.Mutex("x").TryAcquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Release(t.Context()))
			}
		})
	}
}

// F1: The same for a trial (redlock doctor, redlock enroll): in an outage, people make one.
func TestATrialThatReachesOnlyAWrongClockSpoilsNoFencingTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		require.NoError(t, w.connect(t, 0).Enroll(t.Context()))
		last := w.servers[2]
		last.step(3 * time.Hour)
		w.reach(1, false, 0, 1)
		lonely := w.connect(t, 1)
		nodes, err := lonely.Trial(t.Context())
		require.NoError(t, err)
		require.Error(t, nodes[0])
		require.Error(t, nodes[1])
		require.NoError(t, nodes[2], "it answers all that it is asked")
		w.reach(1, true, 0, 1)
		last.step(-3 * time.Hour)
		time.Sleep(time.Minute)
		last.mu.Lock()
		slots, err := last.redis.SortedSet(fenceKey)
		last.mu.Unlock()
		require.NoError(t, err)
		require.NotEmpty(t, slots)
		for slot, highest := range slots {
			require.Less(t, highest, float64(time.Now().UnixMicro()), slot)
		}
		l, err := lonely.Mutex("x").TryAcquire(t.Context())
		require.NoError(t, err)
		require.Less(t, l.Fence(), uint64(time.Now().Add(time.Second).UnixMicro()))
		require.NoError(t, l.Release(t.Context()))
	})
}

// F1: A client needs the clocks of a quorum once. It waits no longer for them than for the nodes themselves.
func TestAnAcquireThatWaitsForNodesHasTheLockWhenAQuorumIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 2)
		require.NoError(t, w.connect(t, 0).Enroll(t.Context()))
		w.reach(1, false, 0, 1, 2, 3, 4)
		late := w.connect(t, 1)
		got := make(chan *redlock.Lease)
		go func() {
			l, _ := late.Mutex("x").Acquire(t.Context())
			got <- l
		}()
		for i := range 3 {
			time.Sleep(10 * time.Second)
			require.Empty(t, got)
			w.reach(1, true, i)
		}
		began := time.Now()
		require.NoError(t, (<-got).Release(t.Context()))
		require.Less(t, time.Since(began), 3*time.Second)
		w.reach(1, true, 3, 4)
	})
}
