package redlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// places returns the waiters of a fair lock on the node, in the order of their tickets.
func places(t testing.TB, n *fleet.Node, key string) []string {
	t.Helper()
	members, err := redis.Strings(tell(t, n, "ZRANGE", "redlock:fair:ticket:"+key, 0, -1), nil)
	require.NoError(t, err)
	return members
}

// arrived waits until the fair lock has so many waiters on a quorum of the nodes.
func arrived(t testing.TB, f *fleet.Fleet, key string, count int) {
	t.Helper()
	require.Eventually(t, func() bool {
		nodes := 0
		for _, n := range f.Nodes() {
			if n.Alive() && len(places(t, n, key)) == count {
				nodes++
			}
		}
		return nodes > len(f.Nodes())/2
	}, 15*time.Second, time.Millisecond, "there are not %d waiters", count)
}

// An arrival is an Acquire of a fair lock that is running.
type arrival struct {
	cancel context.CancelFunc
	ended  chan error
}

// A roll records who got a fair lock, one after the other. Each holder releases it at once.
type roll struct {
	t    testing.TB
	hold time.Duration
	mu   sync.Mutex
	got  []int
}

func (r *roll) join(number int, lock redlock.Lock) arrival {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	r.t.Cleanup(cancel)
	a := arrival{cancel, make(chan error, 1)}
	go func() {
		l, err := lock.Acquire(ctx)
		if err == nil {
			r.mu.Lock()
			r.got = append(r.got, number)
			r.mu.Unlock()
			time.Sleep(r.hold)
			err = l.Release(context.Background())
		}
		a.ended <- err
	}()
	return a
}

func (r *roll) order() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func count(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// O2: Waiters of several clients get a fair lock in the order in which they arrived.
func TestAFairLockIsGrantedInOrderOfArrival(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	clients := []*redlock.Client{open(t, f, patient), open(t, f, patient), open(t, f, patient)}
	held, err := clients[0].Mutex("x").Fair().Acquire(soon(t))
	require.NoError(t, err)
	r := &roll{t: t}
	var all []arrival
	const waiters = 30
	for i := range waiters {
		all = append(all, r.join(i, clients[(i*7/2)%3].Mutex("x").Fair()))
		arrived(t, f, "x", i+1)
	}
	began := time.Now()
	require.NoError(t, held.Release(soon(t)))
	for _, a := range all {
		require.NoError(t, <-a.ended)
	}
	require.Equal(t, count(waiters), r.order())
	t.Logf("%d hand-overs, %v each", waiters, time.Since(began)/waiters)
	for _, n := range f.Nodes() {
		require.Eventually(t, func() bool { return len(places(t, n, "x")) == 0 }, 5*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return len(queue(t, n, "x")) == 0 }, 5*time.Second, time.Millisecond)
	}
}

// viewed connects a client through views of its own, so that it can be cut off alone.
func viewed(t *testing.T, f *fleet.Fleet) (c *redlock.Client, cutOff func()) {
	var urls []string
	var views []*fleet.View
	for _, n := range f.Nodes() {
		v, err := n.NewView()
		require.NoError(t, err)
		urls, views = append(urls, v.URL()), append(views, v)
	}
	c = open(t, f, func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(urls...) })
	t.Cleanup(func() {
		for _, v := range views {
			v.Heal()
		}
	})
	return c, func() {
		for _, v := range views {
			v.Cut()
		}
	}
}

// O2, O3: Of 40 waiters in six clients, those of two clients die while they wait, at the head and in between. The
// others get the lock in the order in which they arrived, and wait once for all the dead.
func TestTheLivingGetAFairLockInOrderWhileOthersDie(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	holder := open(t, f, patient)
	var clients []*redlock.Client
	var cutOff []func()
	for range 6 {
		c, cut := viewed(t, f)
		clients, cutOff = append(clients, c), append(cutOff, cut)
	}
	held, err := holder.Mutex("x").Fair().Acquire(soon(t))
	require.NoError(t, err)
	r := &roll{t: t}
	var dead, living []arrival
	var order []int
	for i := range 40 {
		client := i % 6
		a := r.join(i, clients[client].Mutex("x").Fair())
		arrived(t, f, "x", i+1)
		if client < 2 {
			dead = append(dead, a)
			continue
		}
		living, order = append(living, a), append(order, i)
	}
	cutOff[0]()
	cutOff[1]()
	began := time.Now()
	require.NoError(t, held.Release(soon(t)))
	for i, a := range living {
		require.NoError(t, <-a.ended)
		if i == 0 {
			t.Logf("the first of the living after %v", time.Since(began))
		}
	}
	t.Logf("the last after %v", time.Since(began))
	require.Equal(t, order, r.order())
	for _, a := range dead {
		a.cancel()
		require.Error(t, <-a.ended)
	}
}

// O1: A lock without Fair and one with it exclude each other. A release of either wakes the waiters of both.
func TestAFairLockAndAPlainOneOfTheSameNameExcludeEachOther(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b, c := open(t, f, patient), open(t, f, patient), open(t, f, patient)
	for range 20 {
		held, err := a.Mutex("x").Fair().Acquire(soon(t))
		require.NoError(t, err)
		_, err = b.Mutex("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrHeld)
		fair := &roll{t: t}
		waiter := fair.join(1, c.Mutex("x").Fair())
		arrived(t, f, "x", 1)
		plain := begin(t, b, "x")
		require.NoError(t, held.Release(soon(t)))
		require.NoError(t, plain.has(t).Release(soon(t)))
		require.NoError(t, <-waiter.ended)
	}
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	_, err = b.Mutex("x").Fair().TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, held.Release(soon(t)))
}

// O4: A try is refused while somebody waits, also if the lock is free, and enters no queue.
func TestATryOfAFairLockIsRefusedWhileSomebodyWaits(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b, c := open(t, f, patient), open(t, f, patient), open(t, f, patient)
	held, err := a.Mutex("x").Fair().TryAcquire(soon(t))
	require.NoError(t, err)
	r := &roll{t: t}
	waiter := r.join(0, b.Mutex("x", "y").Fair())
	arrived(t, f, "x", 1)
	arrived(t, f, "y", 1)
	_, err = c.Mutex("y").Fair().TryAcquire(soon(t)) // which nobody holds
	require.ErrorIs(t, err, redlock.ErrHeld)
	var denial *redlock.Denial
	require.ErrorAs(t, err, &denial)
	require.Equal(t, redlock.ReasonBehind, denial.Reason)
	arrived(t, f, "y", 1)
	plain, err := c.Mutex("y").TryAcquire(soon(t)) // one that is not fair may overtake
	require.NoError(t, err)
	require.NoError(t, plain.Release(soon(t)))
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, <-waiter.ended)
	require.Eventually(t, func() bool {
		l, err := c.Mutex("y").Fair().TryAcquire(soon(t))
		return err == nil && l.Release(soon(t)) == nil
	}, 5*time.Second, time.Millisecond)
}

// O1: Fair locks of several names have one place in all queues. So they neither block each other nor overtake.
func TestFairLocksOfSeveralNamesAreInOrderToo(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	clients := []*redlock.Client{open(t, f, patient), open(t, f, patient), open(t, f, patient)}
	held, err := clients[0].Mutex("b").Acquire(soon(t))
	require.NoError(t, err)
	r := &roll{t: t}
	var all []arrival
	wants := [][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"b"}, {"a", "b", "c"}}
	for i := range 20 {
		names := wants[i%len(wants)]
		all = append(all, r.join(i, clients[i%3].Mutex(names[0], names[1:]...).Fair()))
		arrived(t, f, names[0], len(placesAfter(wants, i, names[0])))
	}
	require.NoError(t, held.Release(soon(t)))
	for _, a := range all {
		require.NoError(t, <-a.ended)
	}
	got := r.order()
	for i := range all {
		for j := i + 1; j < len(all); j++ { // those that share a name are in order
			if slices.ContainsFunc(wants[i%5], func(name string) bool { return slices.Contains(wants[j%5], name) }) {
				require.Less(t, slices.Index(got, i), slices.Index(got, j), "%d and %d of %v", i, j, got)
			}
		}
	}
}

// placesAfter is who of the first ones waits for the name.
func placesAfter(wants [][]string, last int, name string) (who []int) {
	for i := range last + 1 {
		if slices.Contains(wants[i%len(wants)], name) {
			who = append(who, i)
		}
	}
	return who
}

// O3: Several processes that try, wait and give up leave nothing in the queues, and nobody waits beside a free lock.
func TestAContendedFairLockIsNeverFreeForLong(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 5})
	var all sync.WaitGroup
	var inside sync.Mutex
	for range 4 {
		c := open(t, f, patient)
		for g := range 4 {
			all.Go(func() {
				for i := range 15 {
					patience := 20 * time.Second
					if (g+i)%3 == 0 {
						patience = time.Duration(i) * time.Millisecond
					}
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					l, err := c.Mutex("x").Fair().Acquire(ctx)
					cancel()
					if err != nil {
						if patience == 20*time.Second {
							t.Errorf("it waited for %v: %v", patience, err)
						}
						continue
					}
					if !inside.TryLock() {
						t.Error("two hold the lock")
					}
					inside.Unlock()
					if err := l.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	for _, n := range f.Nodes() {
		require.Eventually(t, func() bool { return len(places(t, n, "x"))+len(queue(t, n, "x")) == 0 },
			8*time.Second, 5*time.Millisecond)
	}
}

// O3: A client that may not use channels gets its turn too: it polls.
func TestAFairWaiterWithoutMessagesHasItsTurn(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	deaf, other := open(t, f, as(t, f, "deaf", "resetchannels"), patient), open(t, f, patient)
	for i := range 6 {
		first, second := deaf, other
		if i%2 == 1 {
			first, second = other, deaf
		}
		held, err := first.Mutex("x").Fair().Acquire(soon(t))
		require.NoError(t, err)
		r := &roll{t: t}
		one := r.join(0, second.Mutex("x").Fair())
		arrived(t, f, "x", 1)
		two := r.join(1, first.Mutex("x").Fair())
		arrived(t, f, "x", 2)
		require.NoError(t, held.Release(soon(t)))
		require.NoError(t, <-one.ended)
		require.NoError(t, <-two.ended)
		require.Equal(t, []int{0, 1}, r.order())
	}
}

// A holder that wants to know of waiters hears of those of a fair lock too.
func TestAHolderHearsThatSomebodyWaitsForItsFairLock(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b := open(t, f, patient), open(t, f, patient)
	held, err := a.Mutex("x").Fair().Acquire(soon(t))
	require.NoError(t, err)
	wanted := held.Wanted()
	r := &roll{t: t}
	waiter := r.join(0, b.Mutex("x").Fair())
	select {
	case <-wanted:
	case <-time.After(10 * time.Second):
		require.Fail(t, "it was not told")
	}
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, <-waiter.ended)
}

// O4: A writer may be fair. Readers keep it out as they do any mutex, and the last one that leaves tells it.
func TestAFairWriterHasItsTurnAmongReaders(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b := open(t, f, patient), open(t, f, patient)
	rw, fair := a.RWMutex("x"), b.RWMutex("x").Writer().Fair()
	for range 10 {
		one, err := rw.Reader().Acquire(soon(t))
		require.NoError(t, err)
		two, err := rw.Reader().Acquire(soon(t))
		require.NoError(t, err)
		_, err = fair.TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrHeld)
		r := &roll{t: t}
		writer := r.join(0, fair)
		arrived(t, f, "x", 1)
		require.NoError(t, one.Release(soon(t)))
		require.NoError(t, two.Release(soon(t)))
		require.NoError(t, <-writer.ended)
	}
	for _, shared := range []redlock.Lock{rw.Reader(), a.Semaphore("s", 2)} {
		_, err := shared.Fair().Acquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrInvalid)
	}
}

// Another program may write to the keys of a fair lock's queue. The error says which key it is, and what to do.
func TestAQueueThatIsOfAnotherTypeIsNamedWithTheRemedy(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c := open(t, f, patient)
	for _, key := range []string{"redlock:fair:until:x", "redlock:fair:ticket:x"} {
		for _, n := range f.Nodes() {
			tell(t, n, "SET", key, "something else")
		}
		_, err := c.Mutex("x").Fair().TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, key+" is no sorted set")
		require.ErrorContains(t, err, "delete that key on this node")
		for _, n := range f.Nodes() {
			tell(t, n, "DEL", key)
		}
		l, err := c.Mutex("x").Fair().Acquire(soon(t))
		require.NoError(t, err)
		require.NoError(t, l.Release(soon(t)))
	}
}
