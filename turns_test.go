package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// Waiters that take turns while a minority of the nodes is away or out of step.

// turns is what clients saw that acquire, hold shortly and release again and again.
type turns struct {
	grants          int
	waited, longest time.Duration
}

func (s *turns) add(other turns) {
	s.grants += other.grants
	s.waited += other.waited
	s.longest = max(s.longest, other.longest)
}

// A minority is what is wrong with one of three nodes.
type minority struct {
	name string
	harm func(*server)
}

var minorities = []minority{
	{"all well", func(*server) {}},
	{"one dead", func(s *server) { s.stop() }},
	{"one clock ahead", func(s *server) { s.step(10 * time.Second) }},
	{"one clock behind", func(s *server) { s.step(-10 * time.Second) }},
}

// takeTurns has four clients take turns for so long. Each has its own distance to each node, up to 30 ms a way. So each may
// be far from another node.
func takeTurns(t *testing.T, seed uint64, length time.Duration, lock func(c *redlock.Client, number int) redlock.Lock, of minority) (seen turns) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 4)
		random := rand.New(rand.NewPCG(seed, 5))
		clients := make([]*redlock.Client, 4)
		for i := range clients {
			for _, s := range w.servers {
				s.links[i] = newLink(seed*1000+uint64(i*10+s.index), time.Duration(random.Int64N(int64(30*time.Millisecond))))
			}
			clients[i] = w.connect(t, i)
		}
		require.NoError(t, clients[0].Enroll(t.Context()))
		for _, c := range clients {
			c.Status(t.Context())
		}
		of.harm(w.servers[random.IntN(len(w.servers))])
		time.Sleep(20 * time.Second) // by then each client knows the nodes, their clocks and their round trips
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		var work sync.WaitGroup
		var mu sync.Mutex // guards seen
		for i, c := range clients {
			hold := rand.New(rand.NewPCG(seed, uint64(i)))
			work.Go(func() {
				for ctx.Err() == nil {
					asked := time.Now()
					l, err := lock(c, i).Acquire(ctx)
					waited := time.Since(asked)
					mu.Lock()
					seen.add(turns{waited: waited, longest: waited})
					if err == nil {
						seen.grants++
					}
					mu.Unlock()
					if err != nil {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						return
					}
					time.Sleep(time.Duration(hold.Int64N(int64(10 * time.Millisecond))))
					assert.NoError(t, l.Release(context.WithoutCancel(ctx)))
				}
			})
		}
		work.Wait()
	})
	return seen
}

// W3: Also while one of three nodes is away or out of step, clients that are near different nodes ask the same node
// first, and a waiter has its turn. Each client once left out the one of the other two nodes that it is far from. Then
// there were two queues for one lock, and some waited for more than ten seconds.
//
// REDLOCK_TRIALS=15 and -v show the figures of docs/performance.md.
func TestAWaiterHasItsTurnAlsoWhileANodeIsAway(t *testing.T) {
	for _, kind := range []struct {
		name string
		lock func(c *redlock.Client, number int) redlock.Lock
		most time.Duration // 0: it is only shown
	}{
		{"one name", func(c *redlock.Client, _ int) redlock.Lock { return c.Mutex("x") }, 2 * time.Second},
		{"overlapping names", func(c *redlock.Client, number int) redlock.Lock {
			return c.Mutex(fmt.Sprint("x", number%3), fmt.Sprint("x", (number+1)%3))
		}, 0},
		{"one name, Fair", func(c *redlock.Client, _ int) redlock.Lock { return c.Mutex("x").Fair() }, 0},
	} {
		if kind.most == 0 && trials(1) == 1 {
			continue
		}
		for _, of := range minorities {
			t.Run(kind.name+", "+of.name, func(t *testing.T) {
				var seen turns
				length := 10 * time.Second
				if trials(1) > 1 {
					length = 30 * time.Second
				}
				for seed := range uint64(trials(1)) {
					seen.add(takeTurns(t, seed, length, kind.lock, of))
				}
				t.Logf("longest wait %v, mean %v, %d grants", seen.longest.Round(time.Millisecond),
					(seen.waited / time.Duration(seen.grants)).Round(time.Millisecond), seen.grants)
				if kind.most > 0 {
					require.Less(t, seen.longest, kind.most)
				}
			})
		}
	}
}

// W3: Two clients are near different nodes, and every quorum needs both nodes. They ask the same one first, unless it is
// so far that a reservation there would run out.
func TestASlowNodeThatAQuorumNeedsIsAskedFirst(t *testing.T) {
	for _, test := range []struct {
		far  time.Duration
		same bool
	}{{60 * time.Millisecond, true}, {220 * time.Millisecond, false}} {
		t.Run(test.far.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, clients := enrolled(t, 2)
				for i := range clients {
					w.servers[i].slow(i, time.Millisecond)
					w.servers[1-i].slow(i, test.far)
				}
				w.servers[2].stop()
				time.Sleep(time.Minute) // long enough to have measured the round trips
				for i := range 20 {
					name := fmt.Sprint("x", i)
					first := []int{redlock.ProbeFor(clients[0], name), redlock.ProbeFor(clients[1], name)}
					if test.same {
						require.Equal(t, first[0], first[1], name)
					} else {
						require.Equal(t, []int{0, 1}, first, name)
					}
				}
			})
		})
	}
}

// W3: A node whose grant does not count, because its clock is out of step, leaves no more than a quorum, as one that is
// away does.
func TestANodeOutOfStepLeavesNoMoreThanAQuorum(t *testing.T) {
	for _, of := range minorities {
		synctest.Test(t, func(t *testing.T) {
			w, clients := enrolled(t, 1)
			of.harm(w.servers[1])
			time.Sleep(10 * time.Second) // its clock is read every five seconds
			require.Equal(t, of.name != "all well", redlock.IsTight(clients[0]), of.name)
		})
	}
}

// A node that has become slower answers INFO and TIME as late as all else, every 5 s. Meanwhile it owes an answer for
// longer than a quarter of NodeTimeout. It is as good as before, also if no acquire ever asked it.
func TestANodeThatBecameSlowerStaysOfUseWhileItAnswersINFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 1)
		client := w.connect(t, 0)
		require.NoError(t, client.Enroll(t.Context()))
		for _, s := range w.servers {
			s.slow(0, 150*time.Millisecond)
		}
		time.Sleep(time.Minute) // by then each has answered TIME often enough from that far away
		for range 1200 {
			time.Sleep(10 * time.Millisecond)
			require.False(t, redlock.IsTight(client))
		}
	})
}

// W3: The holder has a node that does not answer the waiter, and those that do are no quorum without the holder's. That may
// last long, and nobody contends. The release is noticed all the same.
func TestAWaiterWhoseNodesAreNoQuorumAsksSeldom(t *testing.T) {
	reader := func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }
	permit := func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 1) }
	fair := func(c *redlock.Client) redlock.Lock { return c.Mutex("x").Fair() }
	for kind, of := range map[string]struct {
		holder, waiter func(*redlock.Client) redlock.Lock
	}{
		"mutex":     {mutexX, mutexX},
		"reader":    {mutexX, reader},
		"semaphore": {permit, permit},
		"fair":      {fair, fair},
	} {
		for first := range 3 { // which node is asked first depends on the name
			t.Run(fmt.Sprintf("%s, node %d is asked first", kind, first), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := virtual(t, 3, 2)
					var refused atomic.Int64
					holder, waiter := w.connect(t, 0), w.connect(t, 1, func(cfg *redlock.Config) {
						cfg.Hooks.Refused = func([]string, error) { refused.Add(1) }
					})
					require.NoError(t, holder.Enroll(t.Context()))
					for i := range 2 {
						for _, s := range w.servers {
							s.slow(i, 200*time.Microsecond)
						}
					}
					waiter.Status(t.Context())
					probe := redlock.ProbeFor(waiter, "x")
					at := func(i int) *server { return w.servers[(probe+3-first+i)%3] }
					at(0).links[0].hold(requests, 1)
					defer at(0).links[0].hold(requests, -1)
					at(1).links[1].hold(requests, 1)
					defer at(1).links[1].hold(requests, -1)
					time.Sleep(10 * time.Second)
					held, err := of.holder(holder).Acquire(t.Context())
					require.NoError(t, err)
					waits := awaits(t, of.waiter(waiter))
					time.Sleep(5 * time.Second)
					before := refused.Load()
					time.Sleep(10 * time.Second)
					require.Less(t, refused.Load()-before, int64(10*25))
					released := time.Now()
					require.NoError(t, held.Release(t.Context()))
					l := <-waits.got
					require.NotNil(t, l)
					require.Less(t, time.Since(released), 300*time.Millisecond)
					require.NoError(t, l.Release(t.Context()))
				})
			})
		}
	}
}

// W1: One caller's TTL is too short for nodes so far away: a quorum grants each of its rounds, and too late. It does not keep
// the others of its process from the lock.
func TestACallerThatIsAlwaysTooLateLetsOthersOfItsProcessGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		c := all[0]
		for _, s := range w.servers {
			s.slow(0, 180*time.Millisecond)
		}
		time.Sleep(time.Minute) // long enough to have measured the round trips
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		late := make(chan error, 1)
		go func() {
			_, err := c.Mutex("x").WithTTL(200 * time.Millisecond).Acquire(ctx) // a round has 50ms
			late <- err
		}()
		time.Sleep(time.Millisecond)
		for range 5 {
			short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			l, err := c.Mutex("x").Acquire(short)
			cancel()
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(time.Second) // the other one has its turn again
		}
		stop()
		err := <-late
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
	})
}
