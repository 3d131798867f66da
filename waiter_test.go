package redlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// W2: Every client here begins to wait while others release. A release between a refusal and the subscription that
// follows it must not be missed, or a waiter sleeps until the key expires.
func TestNoWaiterSleepsPastARelease(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	const clients = 24
	for run := range fifth(10) {
		name := fmt.Sprint("hot/", run)
		var wg sync.WaitGroup
		for range clients {
			c := open(t, f, patient, func(cfg *redlock.Config) {
				redlock.LostPoll(time.Minute)(cfg)
				cfg.TTL = 30 * time.Second
			})
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // less than the TTL
				defer cancel()
				for range 2 {
					assert.NoError(t, c.Mutex(name).Do(ctx, func(context.Context, *redlock.Lease) error {
						time.Sleep(time.Millisecond)
						return nil
					}))
				}
				assert.NoError(t, c.Close())
			})
		}
		wg.Wait()
		clears(t, f, name)
	}
}

// W1: Waiters of one process are served in order of arrival, and only one of them contends.
func TestWaitersOfOneProcessAreServedInOrder(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		first, err := c.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				l, err := c.Mutex("x").Acquire(ctx)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				assert.NoError(t, l.Release(ctx))
			})
			require.Eventually(t, func() bool { return redlock.InLine(c, "x") == i+1 }, 5*time.Second, 100*time.Microsecond)
		}
		require.NoError(t, first.Release(ctx))
		wg.Wait()
		require.IsIncreasing(t, order)
	})
}

// W2: If a holder dies, no message comes. Its waiters wait until its keys expire, and no longer.
func TestAWaiterSleepsUntilTheExpiryOfADeadHolder(t *testing.T) {
	for kind, poll := range map[fleet.Kind]time.Duration{
		fleet.Process: time.Hour, // so that nothing but the expiry ends its sleep
		// Such a server may say, while a key expires, that it has no expiry. The next poll sets that right.
		fleet.Embedded: time.Second,
	} {
		t.Run(string(kind), func(t *testing.T) {
			f := fleettest.Start(t, kind, fleet.Options{Links: true})
			dead := open(t, f, func(cfg *redlock.Config) { cfg.TTL = 500 * time.Millisecond })
			alive := openDirect(t, f, redlock.LostPoll(poll))
			_, err := dead.Mutex("x").WithoutRenewal().Acquire(soon(t))
			require.NoError(t, err)
			begun := time.Now()
			for _, n := range f.Nodes() {
				require.NoError(t, n.Cut())
			}
			l, err := alive.Mutex("x").Acquire(soon(t))
			require.NoError(t, err)
			require.Less(t, time.Since(begun), 10*time.Second, "it did not sleep on")
			require.NoError(t, l.Release(soon(t)))
		})
	}
}

// W2: A node reserves one of two keys for a client that cannot get the other. That client passes it on to the waiter
// that wants this key alone.
func TestAKeyThatIsKeptInVainIsPassedOn(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1}), soon(t)
	c, first := open(t, f), f.Nodes()[0]
	a, err := c.Mutex("a").Acquire(ctx)
	require.NoError(t, err)
	b, err := c.Mutex("b").Acquire(ctx)
	require.NoError(t, err)
	waiting := func(n int) (all []string) {
		require.Eventually(t, func() bool {
			all, err = redis.Strings(tell(t, first, "ZRANGE", "redlock:wait:a", 0, -1), nil)
			return err == nil && len(all) == n
		}, 5*time.Second, time.Millisecond)
		return all
	}
	both, one := make(chan *redlock.Lease, 1), make(chan *redlock.Lease, 1)
	acquire := func(had chan<- *redlock.Lease, name string, more ...string) {
		other := open(t, f)
		go func() {
			l, err := other.Mutex(name, more...).Acquire(ctx)
			assert.NoError(t, err)
			had <- l
		}()
	}
	acquire(both, "a", "b")
	waiting(1)
	acquire(one, "a")
	next := waiting(2)[1]

	conn, err := first.DialDirect(ctx, 5*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	messages := redis.PubSubConn{Conn: conn}
	require.NoError(t, messages.PSubscribe("redlock:released:*"))
	require.IsType(t, redis.Subscription{}, messages.Receive())
	require.NoError(t, a.Release(ctx))
	for {
		m, ok := messages.Receive().(redis.Message)
		require.True(t, ok, "no waiter got a message")
		if m.Channel == "redlock:released:"+next {
			break
		}
	}
	require.NoError(t, (<-one).Release(ctx))
	require.NoError(t, b.Release(ctx))
	require.NoError(t, (<-both).Release(ctx))
}

// Another library may use an empty value as a lock.
func TestAKeyWithAnEmptyValueIsHeld(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 1}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		tell(t, f.Nodes()[0], "SET", "x", "")
		for _, lock := range []redlock.Lock{c.Mutex("x"), c.Mutex("y", "x")} {
			_, err := lock.TryAcquire(ctx)
			require.ErrorIs(t, err, redlock.ErrHeld)
		}
	})
}

// A2: Of a long text that another program wrote under the lock's name, a refusal has the beginning. The error still says what
// it is. Inspect reads all of it, so a release by force still deletes what it saw.
func TestALongTextOfAnotherProgramIsHeldAndCanBeReleasedByForce(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c, text := open(t, f, patient), strings.Repeat("word ", 100_000)+"end"
	for _, n := range f.Nodes() {
		tell(t, n, "SET", "x", text)
	}
	for name, lock := range map[string]redlock.Lock{
		"mutex": c.Mutex("x"), "fair": c.Mutex("x").Fair(), "reader": c.RWMutex("x").Reader(), "permit": c.Semaphore("x", 2),
	} {
		_, err := lock.TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrHeld, name)
		require.ErrorContains(t, err, `held by "word word word w"… (not a lock of this library), without expiry`, name)
		var denial *redlock.Denial
		require.ErrorAs(t, err, &denial, name)
		require.True(t, strings.HasPrefix(text, denial.Owner), name)
	}
	state, err := c.Inspect(soon(t), "x")
	require.NoError(t, err)
	require.Equal(t, text, state.Token)
	require.NoError(t, c.ForceRelease(soon(t), "x"))
	clears(t, f, "x")
}
