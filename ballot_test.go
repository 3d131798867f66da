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
	for _, highest := range []uint64{hugeBallot + 1, hugeBallot + 2} {
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
