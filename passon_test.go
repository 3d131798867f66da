package redlock_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// W2: A key is reserved for a client that cannot use it, does not need it, or is gone. The next waiter must get a
// message.

const strange = "0123456789abcdef0123456789abcdef" // looks like the owner token of a client that is gone

// runRelease releases on one node what this owner has there, as the owner itself would.
func runRelease(t testing.TB, n *fleet.Node, owner string, key string) {
	t.Helper()
	tell(t, n, "EVAL", scriptText(t, "release"), 1, key, owner, 100)
}

// W2: The winner of two names was outvoted on a node: it holds one of them for somebody else, and has reserved the
// other for the winner. The winner passes that reservation on. Its release would find nothing there, and the next
// waiter would get no message.
func TestAWinnerPassesOnWhatIsKeptForItWhereItWasOutvoted(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b := open(t, f, unasked), open(t, f, unasked)
	for _, n := range f.Nodes() {
		tell(t, n, "SET", "x", strange)
	}
	winner := begin(t, a, "x", "y")
	first := queued(t, f, "x")
	other := begin(t, b, "x")
	queues(t, first, "x", 2)
	tell(t, first, "SET", "y", strange)
	for _, n := range f.Nodes() {
		if n != first {
			tell(t, n, "DEL", "x")
		}
	}
	runRelease(t, first, strange, "x")
	l := winner.has(t)
	require.NoError(t, l.Release(soon(t)))
	require.NoError(t, other.has(t).Release(soon(t)))
}

// The same, but the node reserves the key for the winner after it has denied it, and before the other nodes have
// granted.
func TestAWinnerPassesOnWhatIsKeptForItAfterItWasDenied(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	a, b := open(t, f, unasked, patient), openDirect(t, f, unasked, patient)
	for _, n := range f.Nodes() {
		tell(t, n, "SET", "x", strange)
	}
	winner := begin(t, a, "x")
	first := queued(t, f, "x")
	me := queue(t, first, "x")[0]
	other := begin(t, b, "x")
	queues(t, first, "x", 2)
	for _, n := range f.Nodes() {
		if n != first {
			tell(t, n, "DEL", "x")
			require.NoError(t, n.Delay(100*time.Millisecond)) // each way
		}
	}
	asked := scriptsRun(t, first)
	tell(t, first, "PUBLISH", "redlock:released:"+me, "x") // now it asks all
	require.Eventually(t, func() bool { return scriptsRun(t, first) > asked }, 5*time.Second, 100*time.Microsecond)
	runRelease(t, first, strange, "x")
	l := winner.has(t)
	require.NoError(t, l.Release(soon(t)))
	require.NoError(t, other.has(t).Release(soon(t)))
}

// scriptsRun is how many scripts clients have run on the node.
func scriptsRun(t testing.TB, n *fleet.Node) int { return callsOf(t, n, "evalsha") }

// callsOf is how often the node has run the command.
func callsOf(t testing.TB, n *fleet.Node, command string) (count int) {
	t.Helper()
	text, err := redis.String(tell(t, n, "INFO", "commandstats"), nil)
	require.NoError(t, err)
	_, stats, ok := strings.Cut(text, "cmdstat_"+command+":calls=")
	require.True(t, ok)
	_, err = fmt.Sscan(strings.Split(stats, ",")[0], &count)
	require.NoError(t, err)
	return count
}

// W2: When a reservation for a client that is gone is over, the key is free, and no message says so. A waiter asks
// again by itself.
func TestAReservationOfAClientThatHasGoneIsWaitedForNoLonger(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c := open(t, f, unasked)
	for _, n := range f.Nodes() {
		tell(t, n, "SET", "x", "next:"+strange, "PX", 2000)
	}
	require.NoError(t, begin(t, c, "x").has(t).Release(soon(t)))
}

// L2, W2: A client that is closed while it waits leaves all queues. Otherwise a turn would go to a client that is gone.
func TestAClientThatIsClosedWhileItWaitsLeavesTheQueues(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b := open(t, f, unasked, patient), open(t, f, unasked, patient)
	lengths := func() (total int) {
		for _, n := range f.Nodes() {
			for i := range 10 {
				total += len(queue(t, n, fmt.Sprint("x", i)))
			}
		}
		return total
	}
	var held []*redlock.Lease
	var waiting []claim
	for i := range 10 { // in the queues of different nodes
		l, err := a.Mutex(fmt.Sprint("x", i)).Acquire(soon(t))
		require.NoError(t, err)
		held = append(held, l)
		waiting = append(waiting, begin(t, b, fmt.Sprint("x", i)))
	}
	require.Eventually(t, func() bool { return lengths() >= 10 }, 8*time.Second, 2*time.Millisecond)
	require.NoError(t, b.Close())
	require.Zero(t, lengths())
	for _, w := range waiting {
		require.Nil(t, <-w.got)
	}
	for _, l := range held {
		require.NoError(t, l.Release(soon(t)))
	}
}

// W2: When a node dies, a waiter in its queue enters another node's queue. It does not sleep until its next poll.
func TestAWaiterLeavesTheQueueOfANodeThatDies(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	patient := func(cfg *redlock.Config) {
		redlock.LostPoll(time.Minute)(cfg)
		cfg.TTL = 30 * time.Second
	}
	a, b := open(t, f, patient), open(t, f, patient)
	other, err := a.Mutex("y").Acquire(soon(t))
	require.NoError(t, err)
	first := begin(t, b, "y") // so that the subscriptions are not new
	queued(t, f, "y")
	require.NoError(t, other.Release(soon(t)))
	require.NoError(t, first.has(t).Release(soon(t)))
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	waiter := begin(t, b, "x")
	require.NoError(t, queued(t, f, "x").Kill())
	_ = held.Release(soon(t)) // the dead node may have been one of the two that granted
	require.NoError(t, waiter.has(t).Release(soon(t)))
}

// W2: A queue is a hint. Something else under its key keeps nobody from acquiring, and no release from its work.
func TestAQueueThatIsSomethingElseIsNoQueue(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b := open(t, f), open(t, f)
	for _, n := range f.Nodes() {
		tell(t, n, "SET", "redlock:wait:x", "something else")
	}
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	waiter := begin(t, b, "x")
	require.Eventually(t, func() bool { return redlock.Waiters(b) == 1 }, 5*time.Second, time.Millisecond)
	_, err = b.Mutex("x").TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, waiter.has(t).Release(soon(t)))
}

// W1: A release hands the lock to a waiter in its own process. This one wants several names and cannot get another of
// them, so it passes the lock on to the next.
func TestAFavouredWaiterThatCannotHaveItsOtherNamePassesItOn(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b := open(t, f, unasked), open(t, f, unasked)
	x, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	z, err := b.Mutex("z").Acquire(soon(t))
	require.NoError(t, err)
	both := begin(t, a, "x", "z")
	first := queued(t, f, "x")
	one := begin(t, b, "x")
	queues(t, first, "x", 2)
	require.NoError(t, x.Release(soon(t)))
	require.NoError(t, one.has(t).Release(soon(t)))
	require.NoError(t, z.Release(soon(t)))
	require.NoError(t, both.has(t).Release(soon(t)))
}

// W2: A client that polled and died costs the others one reservation, also where several shared the lock and one of them
// releases it.
func TestADeadClientThatPolledIsPassedOverByThoseThatShare(t *testing.T) {
	reader := func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }
	writer := func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }
	permit := func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 2) }
	for name, kind := range map[string]struct {
		held, wanted func(*redlock.Client) redlock.Lock
		leases       int
	}{
		"a writer behind a reader": {reader, writer, 1},
		"a writer behind a permit": {permit, writer, 1},
		"one of two permits":       {permit, permit, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 2)
				a, b := w.connect(t, 0, unasked), w.connect(t, 1, unasked)
				require.NoError(t, a.Enroll(t.Context()))
				b.Status(t.Context())
				var held []*redlock.Lease
				for range kind.leases {
					l, err := kind.held(a).Acquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, l.Extend(t.Context())) // all nodes have it
					held = append(held, l)
				}
				for _, s := range w.servers {
					s.mu.Lock()
					_, err := s.redis.ZAdd("redlock:wait:x", 1, "next:"+strange+":poll")
					require.NoError(t, err)
					if name == "one of two permits" {
						_, err = s.redis.ZAdd("redlock:shared:x", 1, "next:"+strange+":poll")
						require.NoError(t, err)
					}
					s.mu.Unlock()
				}
				waiter := awaits(t, kind.wanted(b))
				began := time.Now()
				require.NoError(t, held[0].Release(t.Context()))
				l := <-waiter.got
				require.NotNil(t, l)
				require.Less(t, time.Since(began), 500*time.Millisecond)
				require.NoError(t, l.Release(t.Context()))
				for _, l := range held[1:] {
					require.NoError(t, l.Release(t.Context()))
				}
			})
		})
	}
}
