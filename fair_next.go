package redlock

import (
	"slices"
	"time"
)

// What a waiter of a fair lock does after a refused round (O3). This file only decides. It does no I/O and reads no
// clock; its source of chance is in the settings.

// fairKnown is what such a waiter knows after a refused round.
type fairKnown struct {
	*settings
	fairMemory
	answers   []answer
	votes     tally
	expected  bool          // it had been told so by enough nodes that it should have won
	hears     bool          // enough nodes send it messages
	passed    time.Duration // since the round began
	roundTrip time.Duration // how long a round usually takes
	refresh   time.Duration // how often to ask again, so that its place lasts
	deafPoll  time.Duration // how often to ask again at the head of the queue without messages, as in Client
}

// fairMemory is what it knows from one refused round to the next.
type fairMemory struct {
	outages int // rounds without a quorum, one after another
	splits  int // rounds that nobody won, or that it should have won, one after another
}

// fairNext is what it does next.
type fairNext struct {
	fairMemory
	holdOff time.Duration // it sleeps for at least this long
	pause   time.Duration // and no longer than this
	free    nodeSet       // the nodes that would grant, as far as it knows
	// late is the nodes that have not answered. One that grants after all gets a release, which tells the first waiter: this
	// one, perhaps.
	late nodeSet
}

// decide makes of what is known what to do next.
func (k *fairKnown) decide() fairNext {
	n := fairNext{fairMemory: k.fairMemory, late: k.votes.votedBy(pending)}
	queued, ahead := 0, 0 // nodes that have waiters ahead, and how many at the most
	at := map[string]int{}
	times := make([]time.Duration, 0, maxNodes) // when the nodes would grant, after the round began
	foreign := false
	for i, a := range k.answers {
		when := never
		if d := a.denial; d != nil && d.reason == held {
			foreign = foreign || d.mute || !isOurs(d.owner)
		}
		switch d := a.denial; {
		case a.vote == granted || d != nil && d.reason == stale:
			n.free.add(i)
			when = 0
		case d == nil:
			continue
		case d.ahead > 0:
			queued++
			ahead = max(ahead, d.ahead)
			if d.reason == behind && d.left >= 0 {
				when = d.left
			}
		case d.reason == held:
			at[d.owner]++
			if d.left >= 0 {
				when = d.left
			}
		}
		times = append(times, when)
	}
	most := 0
	for _, nodes := range at {
		most = max(most, nodes)
	}
	spare := len(k.answers) - k.votes.need // so many nodes more than a quorum
	turn := queued <= spare
	n.pause = k.refresh/2 + k.protocol.random(k.refresh/2+1)
	switch {
	case !k.votes.answered(): // an outage
		n.outages, n.splits = k.outages+1, 0
		n.pause = min(n.pause, k.jitter(min(outageMin<<min(n.outages, 6), outageMax)))
		return n
	case k.expected, turn && most <= spare:
		// Nobody is ahead and no owner is in the way: others had some of the nodes for a moment, or still have a key of
		// several. A random pause of a few round trips, longer each time, separates the contenders.
		n.outages, n.splits = 0, k.splits+1
		if n.splits > 1 || !k.expected {
			n.holdOff = k.protocol.random(min(k.roundTrip<<min(n.splits, 5), k.refresh/2) + 1)
		}
	default:
		n.outages, n.splits = 0, 0
	}
	if turn && most <= spare {
		// After many such rounds, this is no contest: the owner has nodes that do not answer this client, and the others alone
		// are no quorum. A message of the owner's release ends the pause, but not the time to hold off.
		longest := max(2*k.roundTrip, k.refresh/4)
		n.pause = min(n.pause, n.holdOff+min(2*k.roundTrip<<min(max(n.splits-5, 0), 10), longest))
	}
	if free := quorumOf(times, k.votes.need); free != never {
		n.pause = min(n.pause, max(free-k.passed, 0))
	}
	// No message comes from another library, or from a client that may not publish; or this client gets none. The
	// further back a waiter is, the less often it asks.
	if foreign {
		n.pause = min(n.pause, k.jitter(foreignPoll)*time.Duration(1+ahead))
	}
	if !k.hears {
		n.pause = min(n.pause, k.jitter(k.deafPoll)*time.Duration(1+ahead))
	}
	n.pause = max(n.pause, n.holdOff) + time.Millisecond/4
	return n
}

// quorumOf is the time at which so many of these times have come, or never.
func quorumOf(times []time.Duration, need int) time.Duration {
	if len(times) < need {
		return never
	}
	slices.Sort(times)
	return times[need-1]
}
