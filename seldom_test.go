package redlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// W3: Whatever a waiter can reach of the nodes, and whatever these say, it does not ask again and again. Each of its rounds is
// work for all of them.
func TestNoWaiterAsksAgainAndAgain(t *testing.T) {
	kinds := []func(c *redlock.Client, number int) redlock.Lock{
		func(c *redlock.Client, _ int) redlock.Lock { return c.Mutex("x") },
		func(c *redlock.Client, _ int) redlock.Lock { return c.Mutex("x", "y", "z") },
		func(c *redlock.Client, _ int) redlock.Lock { return c.Mutex("x").Fair() },
		func(c *redlock.Client, _ int) redlock.Lock { return c.Semaphore("x", 1) },
		func(c *redlock.Client, _ int) redlock.Lock { return c.Semaphore("x", 3).WithPermits(2) },
		func(c *redlock.Client, number int) redlock.Lock {
			if number == 0 {
				return c.RWMutex("x").Writer()
			}
			return c.RWMutex("x").Reader()
		},
		func(c *redlock.Client, number int) redlock.Lock {
			if number == 0 {
				return c.RWMutex("x").Reader()
			}
			return c.RWMutex("x").Writer()
		},
	}
	for seed := range uint64(trials(25)) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			nodes, clients := 3+2*random.IntN(2), 2+random.IntN(3)
			kind := random.IntN(len(kinds))
			w := virtual(t, nodes, clients)
			all, refused := make([]*redlock.Client, clients), make([]atomic.Int64, clients)
			for i := range all {
				all[i] = w.connect(t, i, func(cfg *redlock.Config) {
					cfg.Hooks.Refused = func([]string, error) { refused[i].Add(1) }
				})
			}
			require.NoError(t, all[0].Enroll(t.Context()))
			for i, c := range all {
				c.Status(t.Context())
				for _, s := range w.servers {
					s.slow(i, time.Duration(1+random.Int64N(1<<random.IntN(15)))*10*time.Microsecond) // up to 160 ms
					if random.IntN(4) == 0 {
						s.links[i].hold(random.IntN(2), 1)
						defer s.links[i].hold(requests, -2)
						defer s.links[i].hold(replies, -2)
					}
				}
			}
			for _, s := range w.servers {
				switch random.IntN(12) {
				case 0:
					s.stop()
				case 1:
					s.step(10 * time.Second)
				case 2:
					s.flush()
				case 3:
					s.forgetScripts()
				}
			}
			time.Sleep(10 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			var waiters sync.WaitGroup
			defer waiters.Wait()
			defer cancel()
			for i, c := range all {
				waiters.Go(func() {
					if l, err := kinds[kind](c, i).Acquire(ctx); err == nil {
						<-ctx.Done()
						_ = l.Release(context.Background())
					}
				})
				time.Sleep(time.Second)
			}
			time.Sleep(5 * time.Second)
			for second := range 20 {
				var before []int64
				for i := range refused {
					before = append(before, refused[i].Load())
				}
				time.Sleep(time.Second)
				for i := range refused {
					require.Less(t, refused[i].Load()-before[i], int64(100), "seed %d, kind %d, client %d, in second %d", seed, kind, i, second)
				}
			}
		})
	}
}
