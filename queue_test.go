package redlock_test

import (
	"context"
	"fmt"
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

// unasked makes clients whose waiters ask again only after a message, for as long as a test takes. They also take no node
// for slow, on a busy machine either: a client to which a node is slow asks one node first at its turn, and that node may
// be the one where another key is held.
func unasked(cfg *redlock.Config) {
	redlock.NeverSlow(cfg)
	redlock.LostPoll(time.Hour)(cfg)
	cfg.TTL = 30 * time.Second
}

// queue returns the waiters for the key on the node, in the order of their turns.
func queue(t testing.TB, n *fleet.Node, key string) []string {
	t.Helper()
	members, err := redis.Strings(tell(t, n, "ZRANGE", "redlock:wait:"+key, 0, -1), nil)
	require.NoError(t, err)
	return members
}

// queues waits until the key has so many waiters on the node.
func queues(t testing.TB, n *fleet.Node, key string, length int) []string {
	t.Helper()
	require.Eventually(t, func() bool { return len(queue(t, n, key)) == length }, 8*time.Second, 2*time.Millisecond,
		"there are not %d waiters", length)
	return queue(t, n, key)
}

// queued waits until the key has a waiter, and returns the node whose queue it is in.
func queued(t testing.TB, f *fleet.Fleet, key string) (first *fleet.Node) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, n := range f.Nodes() {
			if len(queue(t, n, key)) == 1 {
				first = n
			}
		}
		return first != nil
	}, 8*time.Second, time.Millisecond, "nobody waits")
	return first
}

// A claim is an Acquire that is running.
type claim struct {
	cancel context.CancelFunc
	got    chan *redlock.Lease // nil: it failed
}

func begin(t testing.TB, c *redlock.Client, name string, more ...string) claim {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	got := make(chan *redlock.Lease, 1)
	go func() {
		l, _ := c.Mutex(name, more...).Acquire(ctx)
		got <- l
	}()
	return claim{cancel, got}
}

// has waits until the lock is acquired.
func (c claim) has(t testing.TB) *redlock.Lease {
	t.Helper()
	select {
	case l := <-c.got:
		require.NotNil(t, l, "it gave up")
		return l
	case <-time.After(15 * time.Second):
		require.Fail(t, "it sleeps while the lock is free")
		return nil
	}
}

// W2: A waiter that gives up leaves the queue. So the next release is not for it.
func TestAWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	a, b, node := open(t, f, unasked), open(t, f, unasked), f.Nodes()[0]
	held, err := a.Mutex("x", "y").Acquire(soon(t))
	require.NoError(t, err)
	for _, names := range [][]string{{"x"}, {"x", "z"}} {
		waiter := begin(t, b, names[0], names[1:]...)
		queues(t, node, "x", 1)
		waiter.cancel()
		require.Nil(t, <-waiter.got)
		queues(t, node, "x", 0)
	}
	require.NoError(t, held.Release(soon(t)))
}

// W2: The queue lists clients, not their waiters. A client stays in it for its remaining waiters.
func TestAWaiterThatGivesUpLeavesItsClientInTheQueueForOthers(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	a, b, node := open(t, f, unasked), open(t, f, unasked), f.Nodes()[0]
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	one := begin(t, b, "x")
	queues(t, node, "x", 1)
	both := begin(t, b, "x", "y")
	require.Eventually(t, func() bool { return redlock.InLine(b, "x", "y") == 1 && redlock.Waiters(b) == 2 },
		5*time.Second, time.Millisecond)
	both.cancel()
	require.Nil(t, <-both.got)
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, one.has(t).Release(soon(t)))
}

// W2: A client that has the lock has left the queue, however it got the lock.
func TestAHolderIsInNoQueue(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	a, b, node := open(t, f, patient), open(t, f, patient), f.Nodes()[0]
	held, err := a.Mutex("x").WithTTL(3 * time.Second).WithoutRenewal().Acquire(soon(t)) // long enough for b to queue
	require.NoError(t, err)
	waiter := begin(t, b, "x")
	queues(t, node, "x", 1)
	l := waiter.has(t) // when the key expires, which sends no message
	queues(t, node, "x", 0)
	require.NoError(t, l.Release(soon(t)))
	_ = held.Release(soon(t))
}

// W1, W2: A release to a waiter of its own process sends no message. If that waiter gives up, at whatever moment, the
// waiters of other processes get one.
func TestAFavouredWaiterThatGivesUpTellsTheOthers(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	p, e := open(t, f, unasked, patient), open(t, f, unasked, patient)
	for _, n := range f.Nodes() {
		require.NoError(t, n.Delay(2*time.Millisecond))
	}
	for i := range 40 {
		held, err := p.Mutex("x").Acquire(soon(t))
		require.NoError(t, err)
		other := begin(t, e, "x")
		require.Eventually(t, func() bool {
			entered := 0
			for _, n := range f.Nodes() {
				entered += len(queue(t, n, "x"))
			}
			return entered > 0
		}, 5*time.Second, time.Millisecond)
		local := begin(t, p, "x")
		require.Eventually(t, func() bool { return redlock.InLine(p, "x") == 1 }, 5*time.Second, 100*time.Microsecond)
		if i%2 == 0 {
			require.Eventually(t, func() bool { return redlock.Waiters(p) == 1 }, 5*time.Second, 100*time.Microsecond)
		}
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, held.Release(soon(t))) })
		time.Sleep(time.Duration(i%10) * 500 * time.Microsecond) // the test tries many moments
		local.cancel()
		if l := <-local.got; l != nil {
			require.NoError(t, l.Release(soon(t)))
		}
		require.NoError(t, other.has(t).Release(soon(t)))
		wg.Wait()
	}
}

// A5: A failed attempt may have been granted a key that others wait for. When it gives up, the waiters there get a
// message.
func TestAFailedAttemptThatGivesUpTellsTheOthers(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b := open(t, f, unasked), open(t, f, unasked)
	for _, n := range f.Nodes() {
		tell(t, n, "SET", "x", strange)
	}
	sleeper := begin(t, a, "x")
	first := queued(t, f, "x")
	conn, err := first.DialDirect(soon(t), 8*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	messages := redis.PubSubConn{Conn: conn}
	require.NoError(t, messages.PSubscribe("redlock:released:next:*"))
	require.IsType(t, redis.Subscription{}, messages.Receive())

	tell(t, first, "DEL", "x") // as if it had expired: no message is sent
	quits := begin(t, b, "x")  // is granted there, refused elsewhere
	require.Eventually(t, func() bool { return redlock.Waiters(b) == 1 }, 5*time.Second, 100*time.Microsecond)
	quits.cancel()
	require.Nil(t, <-quits.got)
	_, told := messages.Receive().(redis.Message)
	require.True(t, told, "no waiter got a message")
	sleeper.cancel()
	<-sleeper.got
}

// W2: A waiter that reaches fewer nodes than a quorum could not use its turn. It loses its place in the queue, where it
// would hold up the others.
func TestAWaiterWithoutAQuorumKeepsNobodyFromHisTurn(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	cut := open(t, f, unasked)
	direct := func() *redlock.Client { return openDirect(t, f, unasked) }
	a, b := direct(), direct()
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	waiter := begin(t, cut, "x")
	entered := func() (node int) {
		node = -1
		for i, n := range f.Nodes() {
			if len(queue(t, n, "x")) > 0 {
				node = i
			}
		}
		return node
	}
	require.Eventually(t, func() bool { return entered() >= 0 }, 5*time.Second, time.Millisecond)
	probe := entered()
	for i, n := range f.Nodes() {
		if i != probe {
			require.NoError(t, n.Cut())
		}
	}
	other := begin(t, b, "x")
	queues(t, f.Nodes()[probe], "x", 2)
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, other.has(t).Release(soon(t)))
	waiter.cancel()
	<-waiter.got
}

// W2: A waiter whose turn came and was of no use does not start again at the end of the queue.
func TestAWaiterThatLostItsTurnKeepsItsPlace(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	a, b, node := open(t, f), open(t, f, redlock.LostPoll(50*time.Millisecond)), f.Nodes()[0]
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	waiter := begin(t, b, "x")
	me := queues(t, node, "x", 1)[0]
	since := tell(t, node, "ZSCORE", "redlock:wait:x", me)
	tell(t, node, "ZPOPMIN", "redlock:wait:x") // its turn came and was of no use
	queues(t, node, "x", 1)
	require.Equal(t, since, tell(t, node, "ZSCORE", "redlock:wait:x", me))
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, waiter.has(t).Release(soon(t)))
}

// W1: One name may be spelled like two quoted names. These are two locks, with a queue each.
func TestNamesThatReadLikeOthersQueueForThemselves(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	c := open(t, f)
	a, err := c.Mutex("a").Acquire(soon(t))
	require.NoError(t, err)
	both := begin(t, c, "a", "b")
	require.Eventually(t, func() bool { return redlock.InLine(c, "a", "b") == 1 }, 5*time.Second, time.Millisecond)
	require.NoError(t, begin(t, c, `"a", "b"`).has(t).Release(soon(t))) // this lock is free
	require.NoError(t, a.Release(soon(t)))
	require.NoError(t, both.has(t).Release(soon(t)))
}

// W2: Waiters that have died stay in the queue while others wait, so behind a lock that is held for long there may be very many.
// The server does nothing else while a release takes them out.
func TestAReleaseTakesOutOnlySomeOfThoseThatHaveGone(t *testing.T) {
	const most, more = 256, 44
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c := open(t, f)
	for name, kind := range map[string]struct {
		lock   redlock.Lock
		shares bool
	}{
		"mutex":  {c.Mutex("mutex"), false},
		"writer": {c.RWMutex("writer").Writer(), false},
		"reader": {c.RWMutex("reader").Reader(), true},
		"permit": {c.Semaphore("permit", 3), true},
	} {
		t.Run(name, func(t *testing.T) {
			waiting, shared := "redlock:wait:"+name, "redlock:shared:"+name
			acquire := func() *redlock.Lease {
				l, err := kind.lock.Acquire(soon(t))
				require.NoError(t, err)
				if kind.shares {
					spreadEntries(t, f, l)
				} else {
					spread(t, f, name, l)
				}
				return l
			}
			release := func(l *redlock.Lease, left int) {
				require.NoError(t, l.Release(soon(t)))
				require.Eventually(t, func() bool { return redlock.Answered(l) }, 10*time.Second, time.Millisecond)
				for _, n := range f.Nodes() {
					require.EqualValues(t, left, tell(t, n, "ZCARD", waiting))
					require.EqualValues(t, 0, tell(t, n, "EXISTS", name), "it is reserved for one that has gone")
				}
			}
			l := acquire()
			for _, n := range f.Nodes() {
				for i := range most + more {
					member := fmt.Sprintf("next:%032x", i)
					if i%10 == 9 && name == "mutex" {
						member = fmt.Sprintf("fair:%032x:1", i)
					}
					tell(t, n, "ZADD", waiting, i, member)
					tell(t, n, "ZADD", shared, i, member)
				}
			}
			release(l, more)
			release(acquire(), 0)
		})
	}
}
