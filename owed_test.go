package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// A jumpingClock is the system's clock, and can be set ahead.
type jumpingClock struct{ ahead atomic.Int64 }

func (c *jumpingClock) Now() redlock.Instant {
	return redlock.SystemClock().Now().Add(time.Duration(c.ahead.Load()))
}

// L3: A node may be gone for good. A release stays owed to it as long as there may be something to delete, and no
// longer.
func TestWhatANodeIsOwedIsForgottenOnceItsKeysHaveExpired(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	clock := &jumpingClock{}
	c := open(t, f, redlock.AskAll, func(cfg *redlock.Config) { cfg.Clock = clock })
	const leases = 50
	var held []*redlock.Lease
	for i := range leases {
		l, err := c.Mutex("x/" + string(rune('a'+i))).Acquire(soon(t))
		require.NoError(t, err)
		held = append(held, l)
	}
	require.NoError(t, f.Nodes()[2].Kill())
	require.Eventually(t, func() bool { return !c.Status(soon(t))[2].Connected }, 5*time.Second, time.Millisecond)
	for _, l := range held {
		require.NoError(t, l.Release(soon(t)))
	}
	require.Equal(t, leases, redlock.Owed(c, 2))
	clock.ahead.Add(int64(30 * time.Second)) // MaxTTL: what was sent before may still be on its way
	time.Sleep(50 * time.Millisecond)
	require.Equal(t, leases, redlock.Owed(c, 2))
	clock.ahead.Add(int64(3 * time.Minute))
	require.Eventually(t, func() bool { return redlock.Owed(c, 2) == 0 }, 5*time.Second, time.Millisecond)
}

// L3: A node may refuse a release: it is full, or lacks its replicas. It is asked again even if its connection is never
// idle.
func TestANodeThatRefusesAReleaseIsAskedAgainUnderLoad(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	// Under load, it is asked again every four NodeTimeouts.
	c := open(t, f, func(cfg *redlock.Config) { cfg.TTL, cfg.NodeTimeout = 30*time.Second, 500*time.Millisecond })
	l, err := c.Mutex("x").WithoutRenewal().Acquire(soon(t))
	require.NoError(t, err)
	spread(t, f, "x", l)
	node := f.Nodes()[2]
	require.NoError(t, node.Delay(20*time.Millisecond)) // so that something is always in flight there
	load, stop := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	for range 16 {
		workers.Go(func() {
			for load.Err() == nil {
				_, _ = c.Inspect(load, "y")
				time.Sleep(time.Millisecond) // the machine has other things to do
			}
		})
	}
	tell(t, node, "ACL", "SETUSER", "default", "-del") // before Redis 7.0, scripts write without replicas too
	require.NoError(t, l.Release(soon(t)))
	require.Eventually(t, func() bool { return redlock.Owed(c, 2) == 1 }, 5*time.Second, time.Millisecond)
	require.Equal(t, l.Token(), owners(t, f, "x")[2], "it refused")
	tell(t, node, "ACL", "SETUSER", "default", "+del")
	require.Eventually(t, func() bool { return owners(t, f, "x")[2] == "" }, 20*time.Second, 10*time.Millisecond)
	clears(t, f, "x")
}

// Servers have forgotten their scripts, and the client may not load them again: the release is asked for every second, and
// not as fast as the server refuses it.
func TestAReleaseWhoseScriptCannotBeLoadedIsOwed(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	c := open(t, f)
	l, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	node := f.Nodes()[0]
	tell(t, node, "SCRIPT", "FLUSH")
	tell(t, node, "ACL", "SETUSER", "default", "-script")
	require.ErrorIs(t, l.Release(soon(t)), redlock.ErrNoQuorum)
	require.Eventually(t, func() bool { return redlock.Owed(c, 0) == 1 }, 5*time.Second, time.Millisecond)
	require.Equal(t, l.Token(), owners(t, f, "x")[0], "it refused")
	tell(t, node, "ACL", "SETUSER", "default", "+script")
	clears(t, f, "x")
}

// A release that the server refused because it had forgotten the script is sent as soon as that is loaded, also by a client
// that does nothing else.
func TestAReleaseFollowsTheScriptThatTheServerForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 1, 10)
		clients := make([]*redlock.Client, 10)
		for i := range clients {
			clients[i] = w.connect(t, i)
		}
		require.NoError(t, clients[0].Enroll(t.Context()))
		for i := range trials(30) {
			var leases []*redlock.Lease
			for j, c := range clients {
				l, err := c.Mutex(fmt.Sprint("x", j)).Acquire(t.Context())
				require.NoError(t, err)
				leases = append(leases, l)
			}
			w.servers[0].forgetScripts()
			for _, l := range leases {
				go l.Release(t.Context())
			}
			time.Sleep(nodeTimeout)
			for _, l := range leases {
				require.False(t, w.servers[0].redis.Exists(l.Names()[0]), "round %d", i)
			}
			time.Sleep(10 * time.Second) // until all is quiet
		}
	})
}

// L1, R3: A server that may not read a key does not know whose it is. That is no proof that the lease is lost.
func TestALeaseIsNotLostWhereTheKeysMayNotBeRead(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c := open(t, f)
	for _, lock := range []struct {
		redlock.Lock
		right string // without which its keys cannot be read
	}{
		{c.Mutex("x"), "get"},
		{c.Mutex("x", "y"), "get"},
		{c.RWMutex("x").Reader(), "zrange"},
		{c.Semaphore("x", 2), "zrange"},
	} {
		l, err := lock.Acquire(soon(t))
		require.NoError(t, err)
		if lock.right == "get" {
			spread(t, f, "x", l)
		} else {
			spreadEntries(t, f, l)
		}
		for _, n := range f.Nodes() {
			fleettest.SetUser(t, n, "default", "-"+lock.right)
		}
		require.ErrorIs(t, l.Extend(soon(t)), redlock.ErrNoQuorum)
		require.True(t, l.Valid())
		require.ErrorIs(t, l.Release(soon(t)), redlock.ErrNoQuorum)
		for _, n := range f.Nodes() {
			fleettest.SetUser(t, n, "default", "+"+lock.right)
		}
		for _, name := range l.Names() {
			clears(t, f, name)
		}
	}
}

// L3, W1: A release that handed the lock to a waiter of its own process tells no other. If the connection breaks, that
// waiter's acquire does not arrive behind it. Sent again, the release tells the first waiter of the queue.
func TestAnOwedReleaseOfAHandOverTellsTheNextWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		quiet := redlock.LostPoll(time.Hour) // only a message, or the key's end, wakes a waiter
		c, other := w.connect(t, 0, quiet), w.connect(t, 1, quiet)
		require.NoError(t, c.Enroll(t.Context()))
		other.Status(t.Context())
		held, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		acquire := func(c *redlock.Client) <-chan *redlock.Lease {
			got := make(chan *redlock.Lease, 1)
			go func() {
				l, err := c.Mutex("x").Acquire(t.Context())
				assert.NoError(t, err)
				got <- l
			}()
			time.Sleep(100 * time.Millisecond) // by then it waits
			return got
		}
		elsewhere, here := acquire(other), acquire(c)

		first := redlock.ProbeFor(other, "x") // has the other client in its queue
		link := w.servers[first].links[0]
		link.hold(requests, 1)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, (<-here).Release(t.Context()))
		link.reset()
		link.hold(requests, -1)
		began := time.Now()
		require.NoError(t, (<-elsewhere).Release(t.Context()))
		require.Less(t, time.Since(began), 2*time.Second)
	})
}
