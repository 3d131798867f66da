package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// T2 in virtual time, where it is certain whose message comes first.

// divided are three enrolled nodes, a holder, and two clients of which each is near to one node. Neither is near to the node
// that decides first between them. So if they try a lock at the same moment, neither gets it in its first round.
func divided(t *testing.T) (w *world, decides int, holder *redlock.Client, tries []*redlock.Client) {
	w, all := enrolled(t, 3)
	time.Sleep(10 * time.Second) // by then, every client knows that every node votes
	decides = redlock.FirstRanked(all[0])
	for client := 1; client <= 2; client++ {
		for _, s := range w.servers {
			s.slow(client, 4*time.Millisecond)
		}
		w.servers[(decides+client)%3].slow(client, time.Millisecond)
	}
	return w, decides, all[0], all[1:]
}

// Release returns when a quorum has deleted the key. What it leaves for a moment on the node that decides is no owner that
// goes on: two were told that the lock is held, and nobody had it.
func TestATryHasAWinnerWhileAReleaseIsOnItsWay(t *testing.T) {
	for _, late := range []time.Duration{2, 4, 6, 8, 12, 16} {
		synctest.Test(t, func(t *testing.T) {
			w, decides, holder, tries := divided(t)
			for i := range 20 {
				name := fmt.Sprint("x", i)
				l, err := holder.Mutex(name).Acquire(t.Context())
				require.NoError(t, err)
				isOnAll := func() bool {
					return !slices.ContainsFunc(w.servers, func(s *server) bool { return s.timeToLive(name) <= 0 })
				}
				require.Eventually(t, isOnAll, time.Minute, time.Second) // a renewal takes the third
				w.servers[decides].slow(0, 2*late*time.Millisecond)
				require.NoError(t, l.Release(t.Context()))
				require.Positive(t, w.servers[decides].timeToLive(name))
				winners := contest(t, tries, name)
				require.Len(t, winners, 1, "a release that comes after %d ms", late)
				require.NoError(t, winners[0].Release(t.Context()))
				w.servers[decides].slow(0, 0)
				time.Sleep(5 * time.Second)
			}
		})
	}
}

// A look asks for all that the try wants, and as the kind of lock that it wants.
func TestATryOfEachKindHasAWinnerBesideAKeyThatStays(t *testing.T) {
	for kind, c := range map[string]struct {
		lock func(*redlock.Client) redlock.Lock
		left string // as an entry of a shared lock; "": as a mutex
	}{
		"mutex":                 {func(c *redlock.Client) redlock.Lock { return c.Mutex("x") }, ""},
		"first of two names":    {func(c *redlock.Client) redlock.Lock { return c.Mutex("x", "y") }, ""},
		"second of two names":   {func(c *redlock.Client) redlock.Lock { return c.Mutex("a", "x") }, ""},
		"fair":                  {func(c *redlock.Client) redlock.Lock { return c.Mutex("x").Fair() }, ""},
		"fair, of two names":    {func(c *redlock.Client) redlock.Lock { return c.Mutex("a", "x").Fair() }, ""},
		"writer":                {func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }, ""},
		"writer after a reader": {func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }, "reader "},
		"one permit":            {func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 1) }, "permit 0/1 "},
		"all permits":           {func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 2).WithPermits(2) }, "permit 1/2 "},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, decides, _, tries := divided(t)
				if c.left == "" {
					w.servers[decides].tell("SET", "x", deadHolders)
				} else {
					w.servers[decides].tell("ZADD", "x", time.Now().Add(time.Hour).UnixMicro(), c.left+deadHolders)
				}
				for round := range 10 {
					winners := contestFor(t, c.lock(tries[0]), c.lock(tries[1]))
					require.Len(t, winners, 1, "round %d", round)
					require.NoError(t, winners[0].Release(t.Context()))
					time.Sleep(time.Duration(round%2) * 5 * time.Second) // the next contest finds it contended, or not
				}
			})
		})
	}
}

// All locks rank the nodes alike: with an order for each name, each of the two waited for the other.
func TestOfTriesForNamesThatOverlapOneWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 4, 2)
		one, two := w.connect(t, 0), w.connect(t, 1)
		require.NoError(t, one.Enroll(t.Context()))
		two.Status(t.Context())
		time.Sleep(10 * time.Second)
		for pair := range 6 { // each is near to two nodes of four
			for i, s := range w.servers {
				isNear := i == pair%3 || i == 3
				if pair >= 3 {
					isNear = !isNear
				}
				s.slow(0, map[bool]time.Duration{true: time.Millisecond, false: 4 * time.Millisecond}[isNear])
				s.slow(1, map[bool]time.Duration{true: 4 * time.Millisecond, false: time.Millisecond}[isNear])
			}
			for i := range 10 {
				a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
				winners := contestFor(t, one.Mutex(b), two.Mutex(a, b))
				require.Len(t, winners, 1, "pair %d, names %d", pair, i)
				require.NoError(t, winners[0].Release(t.Context()))
				time.Sleep(5 * time.Second)
			}
		}
	})
}

// A holder that has a bare quorum of five nodes, of which one is silent, is seen on two. It may have the third one too: nobody
// else can get a quorum, so the try need not ask again and again.
func TestATryBesideAHolderOfASilentNodeIsShort(t *testing.T) {
	for _, leads := range []bool{false, true} { // the node that decides first is the holder's, or it is not
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 5, 2)
			holder, c := w.connect(t, 0), w.connect(t, 1)
			require.NoError(t, holder.Enroll(t.Context()))
			c.Status(t.Context())
			time.Sleep(10 * time.Second)
			decides, name := redlock.FirstRanked(c), ""
			for i := 0; ; i++ {
				name = fmt.Sprint("x", i)
				l, err := holder.Mutex(name).Acquire(t.Context())
				require.NoError(t, err)
				if (w.servers[decides].timeToLive(name) <= 0) == leads {
					defer l.Release(t.Context())
					break
				}
				require.NoError(t, l.Release(t.Context()))
			}
			for i, s := range w.servers {
				if i != decides && s.timeToLive(name) > 0 {
					s.links[1].hold(replies, 1)
					defer s.links[1].hold(replies, -1)
					break
				}
			}
			begun := time.Now()
			_, err := c.Mutex(name).TryAcquire(t.Context())
			require.ErrorIs(t, err, redlock.ErrHeld)
			require.Less(t, time.Since(begun), 3*nodeTimeout, "the try leads: %v", leads)
		})
	}
}

// A timedTry is one of several tries that begin at different times.
type timedTry struct {
	who    string
	lock   redlock.Lock
	after  time.Duration
	delays [3]time.Duration // one way, to the roles 0, 1, 2
}

// T2: of several tries of a free lock, somebody gets in. Two readers on two nodes are no owner that has a quorum.
func TestOfTriesOfReadersAndWritersSomebodyWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		w, c := enrolled(t, 6)
		decides := redlock.FirstRanked(c[0])
		roles := [3]int{(decides + 1) % 3, (decides + 2) % 3, decides}
		slow := func(client int, d [3]time.Duration) {
			for role, server := range roles {
				w.servers[server].slow(client, 2*d[role])
			}
		}
		x := func(i int) redlock.RWMutex { return c[i].RWMutex("x") }
		tries := []timedTry{
			1: {"writer V", x(1).Writer(), 0, [3]time.Duration{3 * ms, 1 * ms, 2 * ms}},
			2: {"writer V2", x(2).Writer(), 0, [3]time.Duration{1 * ms, 3 * ms, 2 * ms}},
			3: {"reader R1", x(3).Reader(), 3 * ms, [3]time.Duration{5 * ms, 1 * ms, 1 * ms}},
			4: {"reader R2", x(4).Reader(), 3 * ms, [3]time.Duration{1 * ms, 5 * ms, 1 * ms}},
			5: {"writer W", x(5).Writer(), 8 * ms, [3]time.Duration{1 * ms, 1 * ms, 9 * ms}},
		}
		for i, q := range tries {
			if i > 0 {
				slow(i, q.delays)
			}
		}
		slow(0, [3]time.Duration{1 * ms, 1 * ms, 8 * ms})
		l, err := x(0).Writer().Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute) // a renewal takes the third node; the round trips are known
		for _, s := range w.servers {
			require.Positive(t, s.timeToLive("x"))
		}
		require.NoError(t, l.Release(t.Context())) // 2 ms
		begun := time.Now().Add(ms)
		require.Positive(t, w.servers[decides].timeToLive("x")) // for 6 ms more
		var mu sync.Mutex
		var all sync.WaitGroup
		won := 0
		for i, q := range tries {
			if i == 0 {
				continue
			}
			all.Go(func() {
				time.Sleep(time.Until(begun.Add(q.after)))
				_, err := q.lock.TryAcquire(context.Background())
				mu.Lock()
				defer mu.Unlock()
				t.Logf("%6v %s: %v", time.Since(begun), q.who, err)
				if err == nil {
					won++
				} else {
					require.ErrorIs(t, err, redlock.ErrHeld)
				}
			})
		}
		all.Wait()
		for i, s := range w.servers {
			t.Logf("node %d has x for %v", i, s.timeToLive("x"))
		}
		require.Positive(t, won, "nobody got in, and all were told that another has the lock or is about to get it")
	})
}

// T3: a try that lost a round in which it saw that the lock is reserved must not take it from the waiter.
func TestATryThatLostYieldsToAReservationThatItSaw(t *testing.T) {
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprint("leads=", leads), func(t *testing.T) { tryBesideAReservation(t, leads) })
	}
}

func tryBesideAReservation(t *testing.T, leads bool) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		w := virtual(t, 3, 4)
		quiet := redlock.LostPoll(time.Hour)
		var c []*redlock.Client
		for i := range 4 {
			c = append(c, w.connect(t, i, quiet))
		}
		require.NoError(t, c[0].Enroll(t.Context()))
		for _, c := range c[1:] {
			c.Status(t.Context())
		}
		decides := redlock.FirstRanked(c[0])
		name, first := "x", redlock.ProbeFor(c[0], "x")
		for i := 0; (first != decides) != leads; i++ {
			name = fmt.Sprint("x", i)
			first = redlock.ProbeFor(c[0], name)
		}
		if !leads { // the node with the reservation decides first, so neither of the tries leads
			decides = (first + 1) % 3
		}
		other := 3 - decides - first
		slow := func(client int, toFirst, toDecides, toOther time.Duration) {
			w.servers[first].slow(client, 2*toFirst)
			w.servers[decides].slow(client, 2*toDecides)
			w.servers[other].slow(client, 2*toOther)
		}
		slow(1, 20*ms, 60*ms, 60*ms) // the waiter
		slow(2, 4*ms, 1*ms, 4*ms)
		slow(3, 4*ms, 4*ms, 1*ms)
		l, err := c[0].Mutex(name).Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		all.Go(func() {
			l, err := c[1].Mutex(name).Acquire(ctx)
			t.Logf("the waiter: %v", err)
			if err == nil {
				_ = l.Release(t.Context())
			}
		})
		time.Sleep(3 * time.Second)
		begun := time.Now()
		require.NoError(t, l.Release(t.Context()))
		var leases []*redlock.Lease
		for i := 2; i <= 3; i++ {
			all.Go(func() {
				time.Sleep(time.Until(begun.Add(32 * ms)))
				l, err := c[i].Mutex(name).TryAcquire(t.Context())
				t.Logf("%v try %d: %v", time.Since(begun), i, err)
				if err == nil {
					leases = append(leases, l)
				}
			})
		}
		time.Sleep(time.Second)
		got := len(leases)
		for _, l := range leases {
			require.NoError(t, l.Release(t.Context()))
		}
		all.Wait()
		require.Zero(t, got, "a try saw the reservation in its first round, and took the lock in its next one")
	})
}

// Readers, or holders of permits of which there are enough, do not exclude each other. If they all try at once, their ballots do,
// and they want the same permits: some of them were told that the lock is held.
func TestATryThatNothingExcludesGetsIn(t *testing.T) {
	for _, c := range []struct {
		size, far int // so many clients, up to so many ms away
		seeds     uint64
		lock      func(*redlock.Client) redlock.Lock
	}{
		{40, 40, 1, func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }},
		{40, 4, 1, func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 40) }},
		{5, 40, 12, func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 5) }},
	} {
		for seed := range c.seeds {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 13))
				w := virtual(t, 3, c.size)
				var locks []redlock.Lock
				for i := range c.size {
					for _, s := range w.servers {
						s.slow(i, time.Duration(1+random.IntN(c.far))*time.Millisecond)
					}
					client := w.connect(t, i)
					if i == 0 {
						require.NoError(t, client.Enroll(t.Context()))
					}
					client.Status(t.Context())
					locks = append(locks, c.lock(client))
				}
				time.Sleep(10 * time.Second)
				began := time.Now()
				require.Len(t, contestFor(t, locks...), c.size)
				require.Less(t, time.Since(began), 2*time.Second)
			})
		}
	}
}

// All permits are taken on one node, as by those who lost a round and have not released yet. On the others only the ballot is too
// low. That excludes nobody, so the try goes on without a look, in which it could see others come to the permits that are left.
func TestATryGoesOnWhereAMinorityHasNoPermitLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const roundTrip = 10 * time.Millisecond
		w := virtual(t, 3, 1)
		for _, s := range w.servers {
			s.slow(0, roundTrip)
		}
		c := w.connect(t, 0)
		require.NoError(t, c.Enroll(t.Context()))
		time.Sleep(10 * time.Second)
		in := time.Now().Add(10 * time.Second).UnixMicro()
		for i, s := range w.servers {
			if i == redlock.ProbeFor(c, "x") {
				for slot := range 2 {
					s.tell("ZADD", "x", in, fmt.Sprintf("permit %d/2 %032x", slot, slot))
				}
				s.tell("PEXPIRE", "x", 10_000)
			} else {
				s.raiseFence(uint64(time.Now().Add(time.Second).UnixMicro()))
			}
		}
		began := time.Now()
		_, err := c.Semaphore("x", 2).TryAcquire(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 4*roundTrip)
	})
}

// What a server forgot is loaded behind its first refusal. Those that are far away refuse the second question too, because it
// was sent before.
func TestATryAsksAgainWhereServersFarAwayForgotTheScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 1)
		c := w.connect(t, 0)
		require.NoError(t, c.Enroll(t.Context()))
		for i, s := range w.servers {
			s.slow(0, map[bool]time.Duration{true: 2 * time.Millisecond, false: 20 * time.Millisecond}[i < 3])
		}
		time.Sleep(10 * time.Second)
		for _, s := range w.servers {
			s.tell("SCRIPT", "FLUSH")
		}
		// One of those nearby falls silent between its answers to the two rounds.
		time.AfterFunc(2500*time.Microsecond, func() { w.servers[2].slow(0, time.Hour) })
		l, err := c.Semaphore("x", 2).TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
	})
}

// Servers that are too far away for NodeTimeout: the error says what to do.
func TestAnErrorSaysThatNodeTimeoutIsTooShortForTheDistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, clients := enrolled(t, 2)
		_, err := clients[1].Mutex("x").TryAcquire(t.Context())
		require.NoError(t, err)
		for _, s := range w.servers {
			s.slow(1, 300*time.Millisecond)
		}
		far := w.connect(t, 1)
		_, err = far.Mutex("y").TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "need 2): no answer in time, because a round trip takes longer than NodeTimeout, 250ms; "+
			"set that to several times the round trip [node-1 node-2 node-3]")
	})
}
