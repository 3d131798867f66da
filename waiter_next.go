package redlock

import (
	"strings"
	"time"
)

// What a waiter does after a refused round (W2, W3). This file only decides. It does no I/O and reads no clock; its
// source of chance is in the settings.

// known is what a waiter knows after a refused round: all that its next step depends on.
type known struct {
	*settings
	refusedRound
	memory
	obstacle   obstacle // who was in the way
	handedOver bool     // the round followed a release, by this process, of one of several keys
	hadTurn    bool     // the round followed a reservation for this client
	tooFew     nodeSet  // the nodes that reserved permits of a semaphore, fewer than it wants, and refused the round
	balked     bool     // the node that was asked first has answered an acquire with an error

	now         Instant
	first       *node         // to be asked first (W3); nil: there is no such node
	queueNode   *node         // of the nodes that the owner has: the one that can queue us, if it is time to; or nil
	roundTrip   time.Duration // how long a round usually takes
	reservation time.Duration // how long a node reserves a key
	lostPoll    time.Duration // how often to ask again, as in Client
	deafPoll    time.Duration // how often to ask again, as in Client
}

// next is what a waiter does next.
type next struct {
	memory
	probe    *node         // to be asked first; nil: all at once
	stays    *node         // in whose queue it stays when it asks all at once; nil: that of the node asked first
	leaves   nodeSet       // nodes whose queues it leaves now, which passes on what they reserved
	passesOn nodeSet       // of these, where it was told of a release and could not use it
	holdOff  time.Duration // it sleeps at least this long, whatever it hears
	pause    time.Duration // it sleeps then no longer than this; 0: not at all
	silence  time.Duration // after a pause as long as this, it asks all nodes at once; may be negative
	queued   nodeSet       // it asks again soon if the subscription to one of these nodes changes
	unqueued nodeSet       // it asks again at once if one of these nodes can queue it
}

func (n *next) leave(nodes nodeSet) {
	n.leaves = nodes
	n.queuedAt &^= nodes
	n.unannounced &^= nodes
}

// queueAnew has it ask this node next, whose refusal queues it there. Before that it leaves the queues of the nodes
// where a key may be free: that passes the key on, so that the waiters there move too.
func (n *next) queueAnew(k *known, first *node) {
	n.probe = first
	n.leave(k.unannounced)
	n.pause = k.protocol.random(k.roundTrip)
}

// now has it ask at once.
func (n next) now() next {
	n.pause = 0
	return n
}

const (
	outageMin = 20 * time.Millisecond
	outageMax = time.Second
)

// decide makes of what is known what to do next.
func (k *known) decide() next {
	n := next{memory: k.memory, probe: k.first, silence: k.lostPoll / 2}
	// One node may be asked again and again and refuse, although the lock is free on the others: another program has the key
	// there, or a holder that died.
	n.silence = min(n.silence, k.lostPoll-k.now.Sub(k.askedAll))
	if k.cutOff {
		n.probe = nil // the node asked first may be what is wrong
	}
	if k.hadTurn {
		n.holdOff = n.hadInVain(k)
	}
	switch {
	case k.tooFew != 0:
		// Others may want no more than is reserved. Leave the queue, which passes the permits on, and enter it again a
		// little later: waiters that all want more must not pass them round and round.
		n.outages, n.splits = 0, 0
		n.leave(k.tooFew)
		n.passesOn = n.leaves
		n.pause = k.jitter(k.reservation)
	case k.handedOver && k.lostToOthers():
		// This process handed over one of the keys, but another key is held, or somebody was faster. Waiters of other
		// processes got no message of that release.
		n.queueAnew(k, k.first)
	case k.queueNode != nil:
		// None of the nodes that the owner has knows that we wait. On the others, this attempt may have left a key free,
		// or reserved for this client. Two queues of one lock become one again. Where that does not help, as after a split
		// vote with as many nodes on either side, the pause is longer each time.
		n.queueAnew(k, k.queueNode)
		n.outages, n.splits = 0, k.splits+1
		n.queued = n.queuedAt
		n.pause = k.protocol.random(min(k.roundTrip<<min(k.splits, 10), k.mostPause()))
	case k.obstacle.owner == ownedByReaders && k.askedOne():
		// A writer leaves its intent on all nodes (S2). It stays in the queue that it has just entered: the readers may not
		// have the node that would be asked first, which would then grant and not queue it. One node's answer does not end
		// a series of splits: the round that follows may be the next one.
		n.outages, n.probe, n.stays = 0, nil, k.asked
		return n.now()
	case k.obstacle.owner != "":
		// The usual case: one owner is in the way. Sleep until a message comes, or the key could expire.
		n.outages, n.splits = 0, 0
		n.queued, n.unqueued = k.entered, k.obstacle.unqueued(k.entered)
		n.pause = k.untilFree()
		if k.obstacle.owner == ownedByReaders { // again all nodes: the intent is renewed there (S2)
			n.probe = nil
		}
	case k.lostToOthers():
		// A split vote (W3). A random pause of a few round trips, longer each time, separates the contenders. After many, this
		// is no contest: the owner has nodes that do not answer this client, and the others alone are no quorum.
		n.outages, n.splits = 0, k.splits+1
		n.pause = k.protocol.random(min(k.roundTrip<<min(1+n.splits, 11), max(k.roundTrip<<6, k.lostPoll/4)))
	case k.balked && n.probe != nil && n.probe != k.asked:
		return n // the node asked refused with an error, and another one is first now: ask that at once
	default:
		// An outage: ask all nodes next, because the node asked first may be what is wrong. This waiter could not use
		// its turn. Let others have theirs, and queue again, as if just arrived, when a quorum answers.
		n.probe, n.arrival = nil, 0
		n.leave(k.queuedAt | k.unannounced)
		n.outages, n.splits = k.outages+1, 0
		n.pause = k.jitter(min(outageMin<<min(n.outages, 6), outageMax))
	}
	if k.handedOver {
		n.passesOn = n.leaves & k.unannounced
	}
	if k.now < k.pollUntil {
		n.pause = min(n.pause, k.jitter(k.deafPoll))
	}
	n.pause = max(n.pause, 0) + time.Millisecond/4
	return n
}

// turnsInVain is after how many turns without success in a row a waiter holds off.
const turnsInVain = 5

// hadInVain counts a turn that did not get the lock, and returns how long to hold off. A holder may have nodes that do not
// answer some waiters. The others reserve the key for one of them after the other, and each passes it on at once: they would
// wake each other as fast as the network allows. What is reserved meanwhile is kept.
func (n *next) hadInVain(k *known) time.Duration {
	if k.now.Sub(n.turnAt) > k.lostPoll {
		n.turns = 0
	}
	n.turns, n.turnAt = n.turns+1, k.now
	if n.turns <= turnsInVain {
		return 0
	}
	most := min(k.roundTrip<<min(n.turns-turnsInVain, 10), reservationTime/2)
	return most/2 + k.protocol.random(most/2+1)
}

// untilFree is how long to sleep while one owner is in the way: until the key could expire, or less where no message
// may tell of its release.
func (k *known) untilFree() time.Duration {
	free := k.obstacle.free - k.now.Sub(k.t0)
	switch {
	case !k.obstacle.tells():
		return min(free, k.jitter(foreignPoll)) // another library, or a client that may not publish: no message comes
	case k.obstacle.unqueued(k.entered) != 0:
		return min(free, k.jitter(k.cfg.NodeTimeout)) // no node that the owner has queued us, so none sends a message
	case k.polls:
		return min(free, k.jitter(k.deafPoll)) // we get no messages
	case strings.HasPrefix(k.obstacle.owner, reservationPrefix):
		// Reserved for another client, which should be the next owner. If that client has died, no message follows. So
		// look again a little after the reservation's end. (free may be never: nothing may be added to it.)
		late := k.jitter(k.reservation)
		return min(free, k.jitter(k.lostPoll)-late) + late
	default:
		return min(free, k.jitter(k.mostPause())) // a message will come, unless it is lost
	}
}

// mostPause is how long a waiter sleeps at most, before jitter, although a message should come.
func (k *known) mostPause() time.Duration {
	if k.obstacle.owner == ownedByReaders {
		return min(k.lostPoll, intentPoll) // a writer's intent must not lapse meanwhile (S2)
	}
	return k.lostPoll
}
