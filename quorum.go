package redlock

import "time"

// This file decides, and does nothing else: votes and times in, a verdict out. It knows no node, no
// connection, no goroutine and no clock.

// A vote is one node's answer to one round.
type vote uint8

const (
	pending vote = iota
	granted
	denied
	// unknown is every answer that is not a yes or a no: a lost connection, an error reply, silence.
	// It counts against a lock that is wanted, and for a key that may have to be cleaned up.
	unknown
)

// A verdict is what the votes of one round amount to so far.
type verdict uint8

const (
	undecided verdict = iota
	won
	lost
)

// A span is where a server's clock lies against ours: between these, in µs, whatever part of the round trip
// the request took. Its width is the round trip.
type span struct{ low, high int64 }

func (s span) width() time.Duration { return time.Duration(s.high-s.low) * time.Microsecond }

// A tally counts the votes of one round. The first vote of a node stands; a later one is not counted.
type tally struct {
	votes                    []vote
	clocks                   []span // of the nodes that granted
	need                     int
	tolerance                time.Duration // how far apart clocks that agree may lie; negative: any
	granted, denied, unknown int
}

func newTally(nodes, need int, tolerance time.Duration) tally {
	t := tally{votes: make([]vote, nodes), need: need, tolerance: tolerance}
	if tolerance >= 0 {
		t.clocks = make([]span, nodes)
	}
	return t
}

// cast counts the node's vote and reports whether it was the node's first. Where clocks are compared, a
// vote that granted tells its server's.
func (t *tally) cast(node int, v vote, clock span) bool {
	if t.votes[node] != pending {
		return false
	}
	t.votes[node] = v
	if t.clocks != nil {
		t.clocks[node] = clock
	}
	switch v {
	case granted:
		t.granted++
	case denied:
		t.denied++
	case unknown:
		t.unknown++
	}
	return true
}

// counted is the largest set of nodes that granted and whose clocks agree: any two of them may lie within
// the tolerance of one another, each wherever its span allows. The slack is by how much any two of them may
// be further apart than that, because their replies took time.
//
// Intervals of which each two meet all share a point, so it is enough to try where one begins.
func (t *tally) counted() (set nodeSet, slack time.Duration) {
	if t.clocks == nil {
		for i, v := range t.votes {
			if v == granted {
				set.add(i)
			}
		}
		return set, 0
	}
	tolerance := t.tolerance.Microseconds()
	for i, v := range t.votes {
		if v != granted {
			continue
		}
		var agreeing nodeSet
		var widest time.Duration
		for j, v := range t.votes {
			// j's span, made longer by the tolerance, holds the point where i's begins.
			if v == granted && t.clocks[j].low <= t.clocks[i].low && t.clocks[i].low <= t.clocks[j].high+tolerance {
				agreeing.add(j)
				widest = max(widest, t.clocks[j].width())
			}
		}
		if agreeing.len() > set.len() || agreeing.len() == set.len() && 2*widest < slack {
			set, slack = agreeing, 2*widest
		}
	}
	return set, slack
}

// verdict is won as soon as a quorum has granted within the band, and lost as soon as none can (A3).
func (t *tally) verdict() verdict {
	open := t.open()
	if t.granted+open < t.need {
		return lost
	}
	set, _ := t.counted()
	switch {
	case set.len() >= t.need:
		return won
	case set.len()+open < t.need:
		return lost
	default:
		return undecided
	}
}

// open is how many nodes have not answered.
func (t *tally) open() int { return len(t.votes) - t.granted - t.denied - t.unknown }

// A loss is why an acquire is lost. A round may be lost before that is known: two denials of four lose it, and
// only the third answer tells a lock that is held from nodes that are away.
type loss uint8

const (
	lossUnclear loss = iota
	lossHeld         // a quorum answered: had those who denied been free, it would have been won
	lossOutage       // no quorum answers
)

// loss is final once it is not unclear, whatever the silent nodes still say.
func (t *tally) loss() loss {
	set, _ := t.counted()
	switch said := set.len() + t.denied; {
	case said >= t.need:
		return lossHeld
	case said+t.open() < t.need:
		return lossOutage
	default:
		return lossUnclear
	}
}

// answered reports whether a quorum of nodes gave an answer that counts, yes or no.
func (t *tally) answered() bool { return t.loss() == lossHeld }

// refused reports whether so many nodes denied that no quorum is left, whatever the silent ones would say.
func (t *tally) refused() bool { return len(t.votes)-t.denied < t.need }

// refusedOrNever reports whether refused is true, or no further answer can make it so.
func (t *tally) refusedOrNever() bool {
	return t.refused() || len(t.votes)-t.denied-t.open() >= t.need
}

// released is what the votes of a release prove (L1): won, that a quorum deleted what was the owner's; lost,
// that a quorum no longer had it, so another may. Between the two lies a release that proves nothing: it is
// undecided and final, because no further answer can change that.
func (t *tally) released() (v verdict, final bool) {
	switch {
	case t.granted >= t.need:
		return won, true
	case t.denied >= t.need:
		return lost, true
	default:
		return undecided, max(t.granted, t.denied)+t.open() < t.need
	}
}

// majority is the smallest number of nodes of which any two sets share a node.
func majority(nodes int) int { return nodes/2 + 1 }

// driftFloor is added to the drift of every lease, for the millisecond precision of Redis expiry and
// the smallest useful time to live. Source: Redis documentation, "Distributed Locks with Redis".
const driftFloor = 2 * time.Millisecond

// driftOf is how far a client's and a server's clock may run apart while a lease of this ttl lasts.
func driftOf(ttl time.Duration, rate float64) time.Duration {
	return time.Duration(float64(ttl)*rate) + driftFloor
}

// The clock band guards against one server whose clock steps while it is the node that two quorums share: it
// is out of step with the others when the one counted it, or when the other does. What a step may be that
// neither notices, and by which a key may expire too early:
//
//	tolerance + slack   of the earlier quorum, which knows its slack and gives it up
//	tolerance + slack   of the later one, which waits out what its slack is above the allowance
//	half the band       by which the other servers of the two may differ, all in order
//
// With the tolerance and the allowance at half the band each, a lease that gives up twice the band and its
// own slack has ended when its key has. See docs/safety.md.
func toleranceOf(band time.Duration) time.Duration {
	if band < 0 {
		return -1
	}
	return band / 2
}

// bandCost is what a lease gives up for the clock band.
func bandCost(band, slack time.Duration) time.Duration {
	if band < 0 {
		return 0
	}
	return 2*band + slack
}

// bandWait is how long the winner of a round waits before it believes.
func bandWait(band, slack time.Duration) time.Duration {
	if band < 0 {
		return 0
	}
	return max(0, slack-band/2)
}

// validityOf is how long after the end of a round its winner may believe (A4). The server's expiry began
// no earlier than the round did, so the time the round took is given up whole.
func validityOf(ttl, elapsed, drift, bandCost time.Duration) time.Duration {
	return ttl - elapsed - drift - bandCost
}
