package redlock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// These tests call waiter.wait in virtual time. The client's nodes take requests and answer none.

const usualTrip = 4 * time.Millisecond

// offline makes a client of three nodes, which has subscribed to all of them. What it sends to a node stays in the
// node's queue. Chance always takes the middle, so jitter changes nothing.
func offline(t *testing.T) *Client {
	cfg := Config{NodeTimeout: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		cfg.Nodes = append(cfg.Nodes, Node{Name: name, Dial: func(context.Context) (redis.Conn, error) { return nil, errConnecting }})
	}
	cfg, endpoints, err := cfg.validate()
	require.NoError(t, err)
	p := *standard
	p.random = func(n time.Duration) time.Duration { return n / 2 }
	c := &Client{settings: &settings{cfg: cfg, protocol: &p}, need: cfg.Quorum, ending: make(chan struct{}), isOpen: true, claims: map[string]*node{}}
	for i, e := range endpoints {
		n := newNode(c.settings, c, i, e)
		n.up, n.server.runID, n.readiness = true, e.name, readiness{known: true, ready: true}
		n.clock.Store(&observation{at: c.cfg.Clock.Now()})
		n.trip.Store(int64(usualTrip))
		c.nodes = append(c.nodes, n)
	}
	c.waiters.init(c)
	for i, s := range c.waiters.subscribers {
		s.running = true // else the first waiter would start it
		c.waiters.confirm(i, true)
	}
	return c
}

// A scene is a waiter of an offline client, between a refused round and its next attempt. Its nodes are numbered in the
// order in which they would be asked first.
type scene struct {
	*waiter
	c    *Client
	rank []int // the index of each node
}

// ranked is the nodes in the order in which they would be asked first for the lock.
func ranked(c *Client, res *resource) (order []int) {
	for among := c.allNodes(); among != 0; {
		best, _ := c.highest(res, among, 1).first()
		order = append(order, best)
		among &^= 1 << best
	}
	return order
}

func newScene(t *testing.T, name string, more ...string) *scene {
	c := offline(t)
	res := c.Mutex(name, more...).spec.res
	s := &scene{waiter: &waiter{client: c, res: res}, c: c, rank: ranked(c, res)}
	s.begin()
	s.listen()
	return s
}

func (s *scene) node(rank int) *node { return s.c.nodes[s.rank[rank]] }

// first is the node that the next attempt asks first, or everybody.
func (s *scene) first() int {
	if s.how.probe == nil {
		return everybody
	}
	return slices.Index(s.rank, s.how.probe.index)
}

const everybody = -1

// set is these nodes, by their numbers.
func (s *scene) set(ranks ...int) (nodes nodeSet) {
	for _, rank := range ranks {
		nodes.add(s.rank[rank])
	}
	return nodes
}

// deafen takes the subscription to the first node away for good.
func (s *scene) deafen() {
	s.c.waiters.confirm(s.rank[0], false)
	sub := s.c.waiters.subscribers[s.rank[0]]
	sub.mu.Lock()
	sub.why = errConnecting
	sub.mu.Unlock()
}

// away has that node lose its connection.
func (s *scene) away(rank int) {
	n := s.node(rank)
	n.mu.Lock()
	n.up = false
	n.mu.Unlock()
}

// one has the attempt ask the first node first, and enter the queue there.
func (s *scene) one() {
	s.how = approach{probe: s.node(0), queueAt: s.set(0), queueEntry: queueNow, reservation: s.c.waiters.me}
}

// all has the attempt ask all nodes at once, and enter the queue of the first.
func (s *scene) all() {
	s.one()
	s.how.probe = nil
}

// refused ends the attempt with these answers, and waits for the time of the next one.
func (s *scene) refused(ctx context.Context, answers ...answer) (time.Duration, error) {
	r := s.c.newRound(plan{call: call{script: s.c.protocol.acquire, keys: s.res.keys}, queueAt: s.how.queueAt})
	r.askMore(s.c.allNodes())
	for rank, a := range answers {
		r.record(s.rank[rank], a)
	}
	begun := time.Now()
	err := s.wait(ctx, r)
	return time.Since(begun), err
}

// message is what the node tells this client.
func (s *scene) message(text string, rank int) { s.c.waiters.received(text, s.rank[rank], false) }

// sent is the scripts that were sent to each node since the last call.
func (s *scene) sent() (all [3]string) {
	for rank := range all {
		n := s.node(rank)
		n.mu.Lock()
		var names []string
		for _, q := range n.queue {
			names = append(names, q.round.script.name)
		}
		all[rank] = strings.Join(names, " ")
		n.queue = nil
		n.mu.Unlock()
	}
	return all
}

const (
	other  = "0123456789abcdef0123456789abcdef"
	third  = "fedcba9876543210fedcba9876543210"
	margin = time.Millisecond / 4 // what every pause is longer
)

// by is the answer of a node where this owner has the key for so much longer.
func by(owner string, left time.Duration) answer {
	return answer{vote: denied, micros: 77, denial: &denial{reason: held, owner: owner, left: left}}
}

var (
	yes1   = answer{vote: granted}
	silent = answer{vote: unknown, err: errSilent}
	low    = answer{vote: denied, denial: &denial{reason: stale, highest: 5}}
)

// W2, W3: How long a waiter sleeps after a refused round, how it asks next, and what it sends before.
func TestWhatAWaiterDoesAfterARefusal(t *testing.T) {
	const nowhere = -1
	for name, c := range map[string]struct {
		before  func(s *scene)
		answers []answer
		sleeps  time.Duration
		asks    int // the node asked first, or everybody
		queues  int // the node whose queue it enters, or nowhere
		entry   int64
		sends   [3]string
	}{
		"the first node denies": {before: (*scene).one, answers: []answer{by(other, 300*time.Millisecond)},
			sleeps: 300*time.Millisecond + margin, entry: 77},
		"all deny": {before: (*scene).all, answers: []answer{by(other, 300*time.Millisecond), by(other, 200*time.Millisecond), by(other, 100*time.Millisecond)},
			sleeps: 200*time.Millisecond + margin, entry: 77},
		"the owner has it for long: a message may be lost": {before: (*scene).one, answers: []answer{by(other, time.Minute)},
			sleeps: time.Second + margin, asks: everybody, entry: 77},
		"another library's": {before: (*scene).one, answers: []answer{by("a lock", time.Minute)},
			sleeps: foreignPoll + margin, entry: 77},
		"reserved for another": {before: (*scene).one, answers: []answer{by(reservationPrefix+other, 60*time.Millisecond)},
			sleeps: 60*time.Millisecond + reservationTime + margin, entry: 77},
		"it gets no messages": {before: func(s *scene) { s.one(); s.deafen(); s.polls = true }, answers: []answer{by(other, time.Minute)},
			sleeps: deafPoll + margin, entry: -77},
		"the owner is not where it queued": {before: (*scene).all, answers: []answer{yes1, by(other, time.Minute), by(other, time.Minute)},
			sleeps: usualTrip/2 + margin, asks: 1, queues: 1, entry: queueNow, sends: [3]string{"leave", "", ""}},
		"the same, and nowhere a message can be had yet": {before: func(s *scene) { s.all(); s.c.waiters.confirm(s.rank[1], false); s.c.waiters.confirm(s.rank[2], false) },
			answers: []answer{yes1, by(other, time.Minute), by(other, time.Minute)},
			sleeps:  100*time.Millisecond + margin, entry: queueNow},
		"a split": {before: (*scene).all, answers: []answer{yes1, by(other, time.Minute), by(third, time.Minute)},
			sleeps: 2*usualTrip + margin, entry: queueNow},
		"an outage": {before: (*scene).all, answers: []answer{silent, silent, silent},
			sleeps: 2*outageMin + margin, asks: everybody, queues: nowhere, sends: [3]string{"leave", "leave", "leave"}},
		"only the ballot was too low": {before: (*scene).one, answers: []answer{low, low, yes1}, asks: everybody, entry: queueNow},
		"a low ballot, and an owner": {before: (*scene).one, answers: []answer{low, low, by(other, 30*time.Millisecond)},
			sleeps: 2*usualTrip + margin, entry: queueNow},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, "x")
				c.before(s)
				slept, err := s.refused(t.Context(), c.answers...)
				require.NoError(t, err)
				require.Equal(t, c.sleeps, slept)
				require.Equal(t, c.sends, s.sent())
				require.Equal(t, c.asks, s.first())
				if c.queues == nowhere {
					require.Zero(t, s.how.queueAt)
				} else {
					require.Equal(t, s.set(c.queues), s.how.queueAt)
					require.Equal(t, c.entry, s.how.queueEntry)
				}
			})
		})
	}
}

// W1, W2: What makes a waiter ask again before its pause is over, and how it then asks. Its owner has the first node for
// an hour, and it is queued there.
func TestWhatWakesAWaiter(t *testing.T) {
	const soon = 10 * time.Millisecond
	ended := errors.New("the caller's")
	for name, c := range map[string]struct {
		happens func(s *scene, cancel func(error))
		sleeps  time.Duration
		asks    int // the node asked first, or everybody
		err     error
	}{
		"a reservation on the node that is asked first": {func(s *scene, _ func(error)) { s.message("x", 0) }, soon, everybody, nil},
		"a reservation on another node":                 {func(s *scene, _ func(error)) { s.message("x", 1) }, soon, 0, nil},
		"a reservation on the first node, and another node is away": {func(s *scene, _ func(error)) {
			s.away(2)
			s.message("x", 0)
		}, soon, 0, nil},
		"a release within the process": {func(s *scene, _ func(error)) { s.c.waiters.released(s.res) }, soon, everybody, nil},
		"both": {func(s *scene, _ func(error)) {
			s.message("x", 1)
			s.c.waiters.released(s.res)
		}, soon, 0, nil},
		"a message for another key": {func(s *scene, _ func(error)) { s.message("y", 0) }, time.Second + margin, everybody, nil},
		"a reservation for a client that polls": {func(s *scene, _ func(error)) { s.message("next:"+other+" x", 0) },
			soon + deafPoll, 0, nil},
		"the subscription there breaks": {func(s *scene, _ func(error)) { s.c.waiters.confirm(s.rank[0], false) },
			soon + 100*time.Millisecond, 0, nil},
		"the subscription there is made anew": {func(s *scene, _ func(error)) { s.c.waiters.confirm(s.rank[0], true) },
			soon + 100*time.Millisecond, 0, nil},
		"the subscription to another node breaks": {func(s *scene, _ func(error)) { s.c.waiters.confirm(s.rank[1], false) },
			time.Second + margin, everybody, nil},
		"its context ends": {func(_ *scene, cancel func(error)) { cancel(ended) }, soon, 0, context.Canceled},
		"the client ends":  {func(s *scene, _ func(error)) { close(s.c.ending) }, soon, 0, ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, "x")
				s.one()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				time.AfterFunc(soon, func() { c.happens(s, cancel) })
				slept, err := s.refused(ctx, by(other, time.Hour))
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.sleeps, slept)
				require.Equal(t, c.asks, s.first())
			})
		})
	}
}

// W2: A waiter whose turn comes on another node asks the first one first. While something stays there, it would pass on each
// turn, and never ask all.
func TestATurnOnAnotherNodeIsUsedOnceTheFirstNodeAloneWasAskedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "x")
		turns := 0
		for begun := time.Now(); turns == 0 || s.first() != everybody; turns++ {
			s.one()
			time.AfterFunc(100*time.Millisecond, func() { s.message("x", 1) })
			slept, err := s.refused(t.Context(), by(other, time.Hour))
			require.NoError(t, err)
			require.Equal(t, 100*time.Millisecond, slept)
			require.LessOrEqual(t, time.Since(begun), time.Second)
		}
		require.Equal(t, 10, turns)
	})
}

// W2: A waiter that no node of the owner has in its queue asks again once one of them can queue it.
func TestAWaiterAsksAgainOnceTheOwnersNodeCanQueueIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "x")
		s.all()
		s.c.waiters.confirm(s.rank[1], false)
		s.c.waiters.confirm(s.rank[2], false)
		time.AfterFunc(10*time.Millisecond, func() { s.c.waiters.confirm(s.rank[2], true) })
		answers := []answer{yes1, by(other, time.Minute), by(other, time.Minute)}
		slept, err := s.refused(t.Context(), answers...)
		require.NoError(t, err)
		require.Equal(t, 10*time.Millisecond, slept)
		require.Equal(t, [3]string{}, s.sent())

		_, err = s.refused(t.Context(), answers...)
		require.NoError(t, err)
		require.Equal(t, 2, s.first())
		require.Equal(t, s.set(2), s.how.queueAt)
		require.Equal(t, [3]string{"leave", "", ""}, s.sent())
	})
}

// W2: While a client that polls may have died with its reservation, a waiter polls too, from attempt to attempt.
func TestAWaiterPollsWhileTheReservationOfAPollerLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "x")
		s.one()
		s.message("next:"+other+" x", 0)
		polls := 0
		for begun := time.Now(); ; polls++ {
			slept, err := s.refused(t.Context(), by(other, time.Hour))
			require.NoError(t, err)
			if slept > time.Second {
				break
			}
			require.Equal(t, deafPoll, slept.Truncate(time.Millisecond))
			require.Less(t, time.Since(begun), 2*reservationTime+4*deafPoll)
			s.one()
		}
		require.Greater(t, polls, int(2*reservationTime/deafPoll))
	})
}

// W2: The pauses after split votes and after outages grow, up to a limit. One refusal by an owner ends both.
func TestThePausesOfAWaiterGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "x")
		rounds := func(answers ...answer) (pauses []time.Duration) {
			for range 8 {
				s.all()
				slept, err := s.refused(t.Context(), answers...)
				require.NoError(t, err)
				pauses = append(pauses, slept-margin)
			}
			return pauses
		}
		times := func(unit time.Duration, factors ...time.Duration) (all []time.Duration) {
			for _, f := range factors {
				all = append(all, f*unit)
			}
			return all
		}
		splits := times(usualTrip, 2, 4, 8, 16, 32, 32, 32, 32)
		outages := append(times(outageMin, 2, 4, 8, 16, 32), outageMax, outageMax, outageMax)
		split := []answer{yes1, by(other, time.Minute), by(third, time.Minute)}
		require.Equal(t, splits, rounds(split...))
		require.Equal(t, outages, rounds(silent, silent, silent))
		require.Equal(t, splits, rounds(split...))
		s.all()
		_, err := s.refused(t.Context(), by(other, 0), by(other, 0), by(other, 0))
		require.NoError(t, err)
		require.Equal(t, splits, rounds(split...))
	})
}

// W1: A waiter of two names that cannot use a release of its own process passes that key on, and queues again.
func TestAWaiterPassesOnAReleaseThatItCannotUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "x", "y")
		s.one()
		s.c.waiters.released(s.c.Mutex("x").spec.res)
		_, err := s.refused(t.Context(), by(other, time.Minute))
		require.NoError(t, err)
		require.Equal(t, everybody, s.first())
		require.Equal(t, [3]string{}, s.sent())
		slept, err := s.refused(t.Context(), yes1, by(other, time.Minute), by(other, time.Minute))
		require.NoError(t, err)
		require.Equal(t, usualTrip/2+margin, slept)
		require.Equal(t, [3]string{"leave", "leave", "leave"}, s.sent())
		require.Equal(t, 0, s.first())
		require.Equal(t, s.set(0), s.how.queueAt)
	})
}

// W1: A waiter of one name that cannot use a release of its own process waits for whoever was faster.
func TestAWaiterThatComesTooLateForAReleaseWaitsForWhoeverWasFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "x")
		s.one()
		s.c.waiters.released(s.res)
		_, err := s.refused(t.Context(), by(other, time.Minute))
		require.NoError(t, err)
		require.Equal(t, everybody, s.first())
		slept, err := s.refused(t.Context(), by(other, 300*time.Millisecond), by(other, 300*time.Millisecond), by(other, 300*time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, 300*time.Millisecond+margin, slept)
		require.Equal(t, [3]string{}, s.sent())
	})
}

// W2: A waiter passes on a reservation that its attempt did not use.
func TestAWaiterPassesOnAReservationThatItDidNotUse(t *testing.T) {
	for name, c := range map[string]struct {
		names string
		sends [3]string
	}{
		"one name":  {"x", [3]string{"", "leave", ""}},
		"two names": {"x y", [3]string{"release release", "leave", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				names := strings.Fields(c.names)
				s := newScene(t, names[0], names[1:]...)
				s.one()
				s.message("x", 0)
				s.message("x", 1)
				s.away(2) // so it asks one node first, also at its turn
				_, err := s.refused(t.Context(), by(other, time.Minute))
				require.NoError(t, err)
				require.Equal(t, 0, s.first())
				for _, sends := range [][3]string{c.sends, {}} { // it does so once
					_, err = s.refused(t.Context(), by(other, 0))
					require.NoError(t, err)
					require.Equal(t, sends, s.sent())
				}
			})
		})
	}
}

// W2: At the first refusal a waiter subscribes, and asks again once the node that it asks first has confirmed that.
func TestTheFirstRefusalWaitsForTheSubscription(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(s *scene)
		sleeps  time.Duration
		queues  bool
		polls   bool
		asksAll bool
	}{
		"it is there":       {sleeps: 0, queues: true},
		"it is confirmed":   {happens: func(s *scene) { s.c.waiters.confirm(s.rank[0], true) }, sleeps: 10 * time.Millisecond, queues: true},
		"it is refused":     {happens: func(s *scene) { s.deafen(); s.c.waiters.wakeAll() }, sleeps: 10 * time.Millisecond, queues: true, polls: true},
		"another's comes":   {happens: func(s *scene) { s.c.waiters.confirm(s.rank[1], true) }, sleeps: 100 * time.Millisecond, queues: true, polls: true},
		"no answer comes":   {happens: func(*scene) {}, sleeps: 100 * time.Millisecond, queues: true, polls: true},
		"the client closes": {happens: func(s *scene) { close(s.c.ending) }, sleeps: 10 * time.Millisecond},
		"a release in here": {happens: func(s *scene) { s.c.waiters.released(s.res) }, sleeps: 10 * time.Millisecond, asksAll: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, "x")
				s.c.waiters.remove(s.inbox)
				s.inbox = nil
				if c.happens != nil {
					for _, i := range s.rank {
						s.c.waiters.confirm(i, false)
					}
					time.AfterFunc(10*time.Millisecond, func() { c.happens(s) })
				}
				s.how = approach{}
				slept, err := s.refused(t.Context(), by(other, time.Minute), by(other, time.Minute), by(other, time.Minute))
				require.Equal(t, c.sleeps, slept)
				if c.asksAll { // nobody else was told, so the lock stays free until then
					require.NoError(t, err)
					require.Equal(t, everybody, s.first())
					require.True(t, s.turn.localRelease)
					return
				}
				if !c.queues {
					require.ErrorIs(t, err, ErrClosed)
					return
				}
				require.NoError(t, err)
				require.Equal(t, 0, s.first())
				require.Equal(t, s.set(0), s.how.queueAt)
				require.Equal(t, c.polls, s.how.queueEntry < 0)
			})
		})
	}
}

// W3: If the node that was asked first answered with an error, and another one is first now, that is asked at once.
func TestAnotherNodeIsAskedAtOnceAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "x")
		s.one()
		s.node(0).balks.Store(int64(s.c.cfg.Clock.Now().Add(time.Second)))
		slept, err := s.refused(t.Context(), silent)
		require.NoError(t, err)
		require.Zero(t, slept)
		require.Equal(t, 1, s.first())
	})
}

// S5, S6: A waiter may use its turn to ask for other permits than the reserved one. If it gets none, it gives that back.
func TestAReservedPermitIsPassedOnAlsoAfterAskingForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "y")
		res := s.c.Semaphore("x", 2).spec.res
		s.waiter, s.rank = &waiter{client: s.c, res: res}, ranked(s.c, res)
		s.begin()
		s.listen()
		s.all()
		refusal := func(why reason, free ...int) answer {
			return answer{vote: denied, micros: 77, denial: &denial{reason: why, owner: other, left: time.Minute, free: free, permits: 4}}
		}
		require.True(t, s.takeTurn(hints{reserved: s.set(0), permit: 4}))
		slept, err := s.refused(t.Context(), refusal(slotTaken, 1), refusal(slotTaken, 1), refusal(slotTaken, 1))
		require.NoError(t, err)
		require.Zero(t, slept)
		require.Equal(t, []int{1}, s.how.slots)
		require.Equal(t, [3]string{}, s.sent())
		slept, err = s.refused(t.Context(), refusal(held))
		require.NoError(t, err)
		require.Equal(t, reservationTime+margin, slept)
		require.Equal(t, [3]string{"leave", "", ""}, s.sent())
	})
}

// W2: Readers that get in together may outbid each other's ballots again and again. A waiter asks again at once only the first
// time.
func TestAWaiterThatIsOutbidAgainAndAgainPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "x")
		s.all()
		for _, pause := range []time.Duration{0, usualTrip / 2, usualTrip, 2 * usualTrip, 4 * usualTrip, 4 * usualTrip} {
			slept, err := s.refused(t.Context(), low, low, yes1)
			require.NoError(t, err)
			require.Equal(t, pause, slept)
		}
		_, err := s.refused(t.Context(), by(other, 30*time.Millisecond))
		require.NoError(t, err)
		slept, err := s.refused(t.Context(), low, low, yes1)
		require.NoError(t, err)
		require.Zero(t, slept)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.refused(ended, low, low, yes1)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// W2: A waiter that finds the owner elsewhere again and again pauses for long. It is in the queues of other nodes meanwhile:
// if messages of one of these may be lost, it asks again soon. A writer asks again before its intent lapses (S2).
func TestAWaiterThatPausesBeforeItQueuesAnewIsStillInItsOtherQueues(t *testing.T) {
	const soon = 10 * time.Millisecond
	for name, c := range map[string]struct {
		owner  string
		breaks int // the node whose subscription breaks
		sleeps time.Duration
	}{
		"where it is queued":     {other, 2, soon + 5*time.Second/10},
		"where it is not":        {other, 1, 5*time.Second/2 + margin},
		"the queue that it left": {other, 0, 5*time.Second/2 + margin},
		"a writer":               {ownedByReaders, 0, intentPoll/2 + margin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, "x")
				for _, n := range s.c.nodes { // far away, so that it expects messages to take long
					n.trip.Store(int64(time.Second))
				}
				s.all()
				s.splits, s.queuedAt = 100, s.set(0, 2)
				time.AfterFunc(soon, func() { s.c.waiters.confirm(s.rank[c.breaks], false) })
				slept, err := s.refused(t.Context(), yes1, by(c.owner, time.Minute), by(c.owner, time.Minute))
				require.NoError(t, err)
				require.Equal(t, [3]string{"leave", "", ""}, s.sent())
				require.Equal(t, c.sleeps, slept)
			})
		})
	}
}

// W2, S2: A waiter that gives up tells the nodes that may have it in a queue. A writer that has met readers tells all: its
// intent may be on one that has not answered yet.
func TestAWriterThatHasMetReadersTakesItsIntentFromAllNodes(t *testing.T) {
	for owner, sends := range map[string][3]string{
		other:          {"leave", "", ""},
		ownedByReaders: {"leave", "leave", "leave"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, "x")
			s.one()
			_, err := s.refused(t.Context(), by(owner, time.Minute))
			require.NoError(t, err)
			s.end()
			require.Equal(t, sends, s.sent(), owner)
		})
	}
}
