package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// What a client may say of its first round. That one begins when a quorum has connected, and before every node has said
// whether it may grant.

// The last node of a quorum is reached while the round is under way. Another one has forgotten everything.
func TestANodeThatIsReachedDuringTheFirstRoundCompletesTheQuorum(t *testing.T) {
	for name, call := range map[string]func(*testing.T, *redlock.Client, redlock.Ticket) error{
		"TryAcquire": func(t *testing.T, c *redlock.Client, _ redlock.Ticket) error {
			_, err := c.Mutex("free").TryAcquire(t.Context())
			return err
		},
		"Adopt": func(t *testing.T, c *redlock.Client, ticket redlock.Ticket) error {
			_, err := c.Adopt(t.Context(), ticket)
			return err
		},
	} {
		// The round lasts 10 ms. So some of these nodes are reached before it, some during it, and some after it.
		for reached := 10 * time.Millisecond; reached <= 60*time.Millisecond; reached += time.Millisecond {
			t.Run(fmt.Sprint(name, " ", reached), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, all := enrolled(t, 2)
					lease, err := all[0].Mutex("x").Acquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, lease.Extend(t.Context())) // now every node has it
					ticket, err := lease.Detach(t.Context())
					require.NoError(t, err)
					w.servers[2].flush()
					for _, i := range []int{0, 2} {
						w.servers[i].slow(1, 10*time.Millisecond)
					}
					fresh := w.connect(t, 1, func(cfg *redlock.Config) {
						dial := cfg.Nodes[1].Dial
						cfg.Nodes[1].Dial = func(ctx context.Context) (redis.Conn, error) {
							time.Sleep(reached)
							return dial(ctx)
						}
					})
					require.NoError(t, call(t, fresh, ticket))
				})
			})
		}
	}
}

// New servers are judged once they have heard of each other. Their answers of before say nothing.
func TestAFirstRoundWaitsUntilNewServersAreJudged(t *testing.T) {
	for seed := range uint64(trials(10)) * 10 {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 3+int(seed%3), 1)
			for i, s := range w.servers {
				if s.slow(0, 10*time.Millisecond); seed%2 == 0 { // else all answer at the same instant
					s.slow(0, 40*time.Millisecond)
					s.links[0].random, s.links[0].seed = nil, seed<<8|uint64(i)
				}
			}
			c := w.connect(t, 0)
			if seed%2 == 1 { // not one round too early
				require.NoError(t, redlock.AwaitAll(c, t.Context()))
			}
			_, err := c.Mutex("x").TryAcquire(t.Context())
			require.ErrorAs(t, err, new(*redlock.QuarantineError), "seed %d", seed)
			require.NotContains(t, err.Error(), "other nodes", "seed %d", seed)
		})
	}
}
