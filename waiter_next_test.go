package redlock

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// knows is what a waiter of three nodes knows after a round with these answers. Chance always takes the middle, so
// jitter changes nothing.
func knows(asked *node, entered nodeSet, answers ...answer) known {
	votes := newTally(3, 2, -1)
	for i, a := range answers {
		if a.vote != pending {
			votes.cast(i, a.vote, span{})
		}
	}
	p := *standard
	p.random = func(n time.Duration) time.Duration { return n / 2 }
	return known{
		settings:     &settings{cfg: Config{NodeTimeout: 100 * time.Millisecond}, protocol: &p},
		refusedRound: refusedRound{t0: 1000, asked: asked, entered: entered, answers: answers, votes: votes},
		obstacle:     obstacleOf(answers, 2, asked != nil),
		now:          1000,
		first:        nodeA,
		roundTrip:    usualTrip,
		reservation:  reservationTime,
		lostPoll:     time.Second,
		deafPoll:     deafPoll,
	}
}

var (
	nodeA, nodeB = &node{index: 0}, &node{index: 1}

	none = answer{} // it has not answered
)

// W2, W3: What a waiter does after a refused round follows from what it knows.
func TestWhatAWaiterKnowsDecidesItsNextAttempt(t *testing.T) {
	const a, b, c, all nodeSet = 1, 2, 4, 7
	before := memory{queuedAt: a, unannounced: b, arrival: 5, outages: 2, splits: 3, polls: true}
	sleep := func(d time.Duration) time.Duration { return d + margin }
	for name, test := range map[string]struct {
		knows known
		also  func(*known)
		want  next
	}{
		"one owner: until the key could expire": {
			knows: knows(nodeA, a, by(other, 300*time.Millisecond), none, none),
			also:  func(k *known) { k.now += Instant(20 * time.Millisecond) },
			want:  next{probe: nodeA, queued: a, pause: sleep(280 * time.Millisecond)},
		},
		"one owner: its key could have expired by now": {
			knows: knows(nodeA, a, by(other, 300*time.Millisecond), none, none),
			also:  func(k *known) { k.now += Instant(time.Second) },
			want:  next{probe: nodeA, queued: a, pause: margin, silence: -1000}, // and it asks all: it has not done so for a second
		},
		"one owner: a message may be lost": {
			knows: knows(nodeA, a, by(other, -1), none, none),
			want:  next{probe: nodeA, queued: a, pause: sleep(time.Second)},
		},
		"one owner: that ends a series of splits and outages, and nothing else": {
			knows: knows(nil, a, by(other, -1), by(other, -1), by(other, -1)),
			also:  func(k *known) { k.memory = before },
			want: next{probe: nodeA, queued: a, pause: sleep(deafPoll),
				memory: memory{queuedAt: a, unannounced: b, arrival: 5, polls: true}},
		},
		"one owner: no node is to be asked first": {
			knows: knows(nil, a, by(other, -1), by(other, -1), by(other, -1)),
			also:  func(k *known) { k.first = nil },
			want:  next{queued: a, pause: sleep(time.Second)},
		},
		"one owner, and too few nodes answered when all were asked": {
			knows: knows(nodeA, 0, by("a lock", -1), none, none),
			also:  func(k *known) { k.cutOff = true },
			want:  next{pause: sleep(foreignPoll), memory: memory{cutOff: true}},
		},
		"another library's, on the one node that has been asked for a second": {
			knows: knows(nodeA, a, by("a lock", -1), none, none),
			also:  func(k *known) { k.askedAll = k.now.Add(foreignPoll - k.lostPoll) },
			want: next{probe: nodeA, queued: a, pause: sleep(foreignPoll), silence: foreignPoll,
				memory: memory{askedAll: Instant(1000).Add(foreignPoll - time.Second)}},
		},
		"a client that may not publish": {
			knows: knows(nodeA, a, by(strings.ToUpper(other), -1), none, none),
			want:  next{probe: nodeA, queued: a, pause: sleep(foreignPoll)},
		},
		"no node of the owner has queued it, and none can": {
			knows: knows(nil, a, yes1, by(other, -1), by(other, -1)),
			want:  next{probe: nodeA, queued: a, unqueued: b | c, pause: sleep(100 * time.Millisecond)},
		},
		"no node of the owner has queued it, but one can": {
			knows: knows(nil, a, yes1, by(other, -1), by(other, -1)),
			also:  func(k *known) { k.queueNode, k.memory = nodeB, before },
			want: next{probe: nodeB, leaves: b, queued: a, pause: sleep(8 * usualTrip / 2),
				memory: memory{queuedAt: a, arrival: 5, splits: 4, polls: true}},
		},
		"the same for the first time": {
			knows: knows(nil, a, yes1, by(other, -1), by(other, -1)),
			also:  func(k *known) { k.queueNode = nodeB },
			want:  next{probe: nodeB, pause: sleep(usualTrip / 2), memory: memory{splits: 1}},
		},
		"the same again and again": {
			knows: knows(nil, a, yes1, by(other, -1), by(other, -1)),
			also:  func(k *known) { k.queueNode, k.splits = nodeB, 100 },
			want:  next{probe: nodeB, pause: sleep(time.Second / 2), memory: memory{splits: 101}},
		},
		"the same again and again, for readers": { // its intent must not lapse
			knows: knows(nil, a, yes1, by(ownedByReaders, -1), by(ownedByReaders, -1)),
			also:  func(k *known) { k.queueNode, k.splits, k.lostPoll = nodeB, 100, 5*time.Second },
			want:  next{probe: nodeB, pause: sleep(intentPoll / 2), memory: memory{splits: 101}},
		},
		"readers, on the one node that was asked": {
			knows: knows(nodeB, b, none, by(ownedByReaders, -1), none),
			also:  func(k *known) { k.memory = before },
			want: next{stays: nodeB,
				memory: memory{queuedAt: a, unannounced: b, arrival: 5, splits: 3, polls: true}},
		},
		"readers, on all nodes": {
			knows: knows(nil, b, by(ownedByReaders, -1), by(ownedByReaders, -1), by(ownedByReaders, -1)),
			also:  func(k *known) { k.memory, k.lostPoll = before, 5*time.Second },
			want: next{queued: b, pause: sleep(deafPoll),
				memory: memory{queuedAt: a, unannounced: b, arrival: 5, polls: true}},
		},
		"reserved for another": {
			knows: knows(nodeA, a, by(reservationPrefix+other, 40*time.Millisecond), none, none),
			want:  next{probe: nodeA, queued: a, pause: sleep(40*time.Millisecond + reservationTime)},
		},
		"reserved for another, for ever": { // as far as the nodes that answered can tell
			knows: knows(nodeA, a, by(reservationPrefix+other, -1), none, none),
			want:  next{probe: nodeA, queued: a, pause: sleep(time.Second)},
		},
		"while a client that polls has its turn": {
			knows: knows(nodeA, a, by(other, -1), none, none),
			also:  func(k *known) { k.pollUntil = k.now + 1 },
			want:  next{probe: nodeA, queued: a, pause: sleep(deafPoll), memory: memory{pollUntil: 1001}},
		},
		"after that turn": {
			knows: knows(nodeA, a, by(other, -1), none, none),
			also:  func(k *known) { k.pollUntil = k.now },
			want:  next{probe: nodeA, queued: a, pause: sleep(time.Second), memory: memory{pollUntil: 1000}},
		},
		"a split": {
			knows: knows(nil, a, yes1, by(other, -1), by(third, -1)),
			also:  func(k *known) { k.memory = before },
			want: next{probe: nodeA, pause: sleep(16 * usualTrip),
				memory: memory{queuedAt: a, unannounced: b, arrival: 5, splits: 4, polls: true}},
		},
		"an empty value is no owner": {
			knows: knows(nil, a, by("", -1), by("", -1), by("", -1)),
			want:  next{probe: nodeA, pause: sleep(2 * usualTrip), memory: memory{splits: 1}},
		},
		"the first node granted, and the others did not": {
			knows: knows(nodeA, a, yes1, by(other, -1), silent),
			want:  next{probe: nodeA, pause: sleep(2 * usualTrip), memory: memory{splits: 1}},
		},
		"a release by this process, and somebody was faster": {
			knows: knows(nil, a, by(other, -1), by(other, -1), by(other, -1)),
			also:  func(k *known) { k.handedOver, k.memory, k.unannounced = true, before, all },
			want: next{probe: nodeA, leaves: all, passesOn: all, pause: sleep(usualTrip / 2),
				memory: memory{arrival: 5, outages: 2, splits: 3, polls: true}},
		},
		"fewer permits than it wants": {
			knows: knows(nil, a, by(ownedByPermits, -1), by(ownedByPermits, -1), by(ownedByPermits, -1)),
			also:  func(k *known) { k.tooFew, k.memory = a|c, before },
			want: next{probe: nodeA, leaves: a | c, passesOn: a | c, pause: sleep(reservationTime),
				memory: memory{unannounced: b, arrival: 5, polls: true}},
		},
		"a release by this process, and an outage": {
			knows: knows(nil, a, silent, silent, silent),
			also:  func(k *known) { k.handedOver, k.unannounced = true, all },
			want:  next{leaves: all, passesOn: all, pause: sleep(2 * outageMin), memory: memory{outages: 1}},
		},
		"an outage": {
			knows: knows(nodeA, a, silent, none, none),
			also:  func(k *known) { k.memory = before },
			want:  next{leaves: a | b, pause: sleep(8 * outageMin), memory: memory{outages: 3, polls: true}},
		},
		"an outage for long": {
			knows: knows(nil, a, silent, silent, by(other, -1)),
			also:  func(k *known) { k.outages = 100 },
			want:  next{pause: sleep(outageMax), memory: memory{outages: 101}},
		},
		"an error of the first node, and another is first now": {
			knows: knows(nodeA, a, silent, none, none),
			also:  func(k *known) { k.balked, k.first, k.memory = true, nodeB, before },
			want:  next{probe: nodeB, memory: before},
		},
		"an error of the first node, which still is first": {
			knows: knows(nodeA, a, silent, none, none),
			also:  func(k *known) { k.balked = true },
			want:  next{pause: sleep(2 * outageMin), memory: memory{outages: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := test.knows
			if test.also != nil {
				test.also(&k)
			}
			test.want.silence = cmp.Or(test.want.silence, k.lostPoll/2)
			was := k
			got := k.decide()
			require.True(t, test.want == got, "wants %+v\ngot   %+v", test.want, got)
			require.True(t, was.memory == k.memory && was.now == k.now && was.first == k.first, "it only decides")
		})
	}
}

// W2, W3: Whatever a waiter knows, it asks again before long, and not all the time.
func TestAWaiterAsksAgainBeforeLongWhateverItKnows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...answer) answer { return of[random.IntN(len(of))] }
	flip := func() bool { return random.IntN(2) == 0 }
	owner := func() string {
		return []string{other, third, reservationPrefix + other, ownedByReaders, "a lock", ""}[random.IntN(6)]
	}
	left := func() time.Duration {
		return []time.Duration{-1, 0, time.Millisecond, time.Hour}[random.IntN(4)]
	}
	for range 20_000 {
		var asked *node
		if flip() {
			asked = nodeA
		}
		var answers []answer
		for range 3 {
			answers = append(answers, pick(none, yes1, silent, low, by(owner(), left()), by(other, left())))
		}
		k := knows(asked, nodeSet(random.IntN(8)), answers...)
		k.protocol.random = func(n time.Duration) time.Duration { return time.Duration(random.Int64N(int64(n))) }
		k.now += Instant(random.Int64N(int64(time.Second)))
		k.handedOver, k.balked, k.polls, k.cutOff = flip(), flip(), flip(), flip()
		k.queuedAt, k.unannounced = nodeSet(random.IntN(8)), nodeSet(random.IntN(8))
		k.outages, k.splits = random.IntN(100), random.IntN(100)
		k.pollUntil = k.now + Instant(random.IntN(3)-1)
		if flip() {
			k.first = nodeB
		}
		if flip() {
			k.queueNode = nodeB
		}
		n := k.decide()
		require.LessOrEqual(t, n.pause, 3*k.lostPoll/2+margin, "%+v", k)
		if n.pause < margin {
			require.Zero(t, n.pause, "%+v", k)
			another := k.balked && n.probe != nil && n.probe != k.asked
			allNow := k.obstacle.owner == ownedByReaders && k.askedOne() && n.probe == nil
			require.True(t, another || allNow, "%+v", k)
		}
		require.Zero(t, n.leaves&^(k.queuedAt|k.unannounced), "it leaves no queue that it is not in")
		require.Zero(t, n.leaves&(n.queuedAt|n.unannounced), "it forgets those that it leaves")
	}
}
