package redlock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// ready makes a client of nodes that are ready to grant.
func ready(t testing.TB, f *fleet.Fleet) *Client {
	c, err := New(Config{Nodes: Nodes(f.URLs()...)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, c.Enroll(ctx))
	return c
}

// W2: A subscription may break at any moment, also between two looks at the set of subscriptions.
func TestASubscriptionMayBreakAtAnyMoment(t *testing.T) {
	_, ok := nodeSet(0).first()
	require.False(t, ok)
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c := ready(t, f)
	stop := make(chan struct{})
	var flapping, waiters sync.WaitGroup
	flapping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				for n := range 3 {
					c.waiters.confirm(n, i%2 == 0) // what a subscriber does when its connection opens or breaks
				}
			}
		}
	})
	lock := c.Mutex("x").spec
	for range 4 {
		waiters.Go(func() {
			for range 1000 { // one pass of Acquire's loop, after a refusal
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
				w := waiter{client: c, res: lock.res, inbox: c.waiters.listen(lock.res)}
				r := c.newRound(plan{call: call{script: c.protocol.acquire, keys: lock.res.keys}})
				owner := newToken("")
				for i := range 3 {
					r.record(i, answer{vote: denied, denial: &denial{reason: held, left: time.Second, owner: owner}})
				}
				_ = w.wait(ctx, r)
				w.end()
				cancel()
			}
		})
	}
	waiters.Wait()
	close(stop)
	flapping.Wait()
}

// Old keys are looked for now and then, not at each refusal. With many waiters, that cost more than everything else.
func TestARefusalCostsTheSameHoweverManyWait(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	refusals := func(waiters int) time.Duration {
		c := ready(t, f)
		all := make([]*resource, waiters)
		for i := range all {
			all[i] = newResource("", fmt.Sprint("name/", i), nil)
			c.waiters.listen(all[i])
		}
		begun := time.Now()
		for i := range 2000 {
			c.waiters.contend(all[i%waiters])
		}
		return time.Since(begun)
	}
	few, many := refusals(100), refusals(20_000)
	for range 4 { // one of them may have to wait for a processor
		many = min(many, refusals(20_000))
	}
	t.Logf("2000 refusals beside 100 waiters: %v, beside 20000: %v", few, many)
	require.Less(t, many, 100*few+100*time.Millisecond) // it once was a thousand times as much
}

// A key that nobody waits for, and that was last contended long ago, is forgotten.
func TestTheWatchForgetsWhatWasContendedLongAgo(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	c := ready(t, f)
	e := c.waiters.listen(newResource("", "waited for", nil))
	defer c.waiters.remove(e)
	for i := range 3 * minPruned {
		c.waiters.contend(newResource("", fmt.Sprint("name/", i), nil))
	}
	require.Eventually(t, func() bool {
		c.waiters.mu.Lock()
		defer c.waiters.mu.Unlock()
		return len(c.waiters.keys) == 1
	}, 10*time.Second, 10*time.Millisecond)
}

// A lock has at most a thousand names, because one script holds up everybody else on its server.
func TestALockHasNoMoreThanAThousandNames(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	c := ready(t, f)
	names := make([]string, 50_000)
	for i := range names {
		names[i] = fmt.Sprint("name/", i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l, err := c.Mutex(names[0], names[1:maxNames]...).Acquire(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Release(ctx))
	_, err = c.Mutex(names[0], names[1:maxNames+1]...).Acquire(ctx)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "1001 names")
	_, err = c.Mutex(names[0], names[1:]...).TryAcquire(ctx)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = c.Mutex(names[0], append(names[1:500:500], names[7])...).TryAcquire(ctx)
	require.ErrorContains(t, err, `"name/7" is given twice`)
}

// BenchmarkMutexOfManyNames measures Mutex alone.
func BenchmarkMutexOfManyNames(b *testing.B) {
	c := ready(b, fleettest.Start(b, fleet.Process, fleet.Options{Nodes: 1}))
	for _, count := range []int{1, 10, 1000, 50_000} {
		names := make([]string, count)
		for i := range names {
			names[i] = fmt.Sprint("name/", i)
		}
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Mutex(names[0], names[1:]...)
			}
		})
	}
}
