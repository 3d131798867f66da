package redlock

import (
	"math"
	"time"
)

// This file only decides: it takes votes and times, and returns a verdict. It has no I/O, no goroutine and no clock.

// A vote is one node's answer to one round.
type vote uint8

const (
	pending vote = iota
	granted
	denied
	// unknown is every answer that is neither granted nor denied: a lost connection, an error reply, silence. It does
	// not count for the lock. But the node may have granted, so it gets the release (A5).
	unknown
)

// A verdict says what the votes of a round mean so far.
type verdict uint8

const (
	undecided verdict = iota
	won
	lost
)

// A span holds the difference between a server's clock and ours, in µs: it lies between low and high, however the round
// trip divides between request and reply (C1). The width of the span is the round trip.
//
// It is loose if the server did not read its clock in the same moment as it wrote or looked at the key (light.go).
type span struct {
	low, high int64
	loose     bool
}

// anywhere is the span of a clock that is not known. It agrees with every other.
var anywhere = span{low: math.MinInt64 / 4, high: math.MaxInt64 / 4}

// reaches reports whether the span, made longer by the tolerance in µs, contains the point.
func (s span) reaches(point, tolerance int64) bool {
	return s.low <= point && point <= s.high+tolerance
}

// A tally counts the votes of one round. Only the first vote of a node counts.
type tally struct {
	votes                    []vote
	clocks                   []span // of the nodes that granted or denied; nil: clocks are not compared
	need                     int
	tolerance                time.Duration // how far apart clocks may be that agree; negative: any distance
	granted, denied, unknown int
	excluded                 int // of unknown: nodes that the round does not concern
}

func newTally(nodes, need int, tolerance time.Duration) tally {
	t := tally{votes: make([]vote, nodes), need: need, tolerance: tolerance}
	if tolerance >= 0 {
		t.clocks = make([]span, nodes)
	}
	return t
}

// cast counts the node's vote, and reports whether it was the node's first. clock is the server's clock; it matters
// only if the node granted or denied and clocks are compared.
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

// exclude makes unknown the votes of all nodes but these.
func (t *tally) exclude(but nodeSet) {
	for i := range t.votes {
		if !but.has(i) {
			t.votes[i] = unknown
			t.unknown++
			t.excluded++
		}
	}
}

// counted is the nodes whose grants count, and how far apart their clocks may be (C2).
func (t *tally) counted() (set nodeSet, apart time.Duration) {
	return t.agreeing(t.votedBy(granted))
}

// votedBy is the nodes that cast this vote.
func (t *tally) votedBy(which vote) (nodes nodeSet) {
	for i, v := range t.votes {
		if v == which {
			nodes.add(i)
		}
	}
	return nodes
}

// agreeing is the largest set of these nodes, which have all granted or denied, whose clocks could all lie within the
// tolerance of each other (C1), and how far apart these clocks may be (C2).
//
// If any two of some intervals overlap, all of them share a point, and one of them begins there. So it is enough to try
// the points where an interval begins.
func (t *tally) agreeing(nodes nodeSet) (set nodeSet, apart time.Duration) {
	if t.clocks == nil {
		return nodes, 0
	}
	tolerance := t.tolerance.Microseconds()
	for i, begins := range t.clocks {
		if !nodes.has(i) {
			continue
		}
		var agreeing nodeSet
		for j, clock := range t.clocks {
			// Node j's span, made longer by the tolerance, contains the point where node i's span begins.
			if nodes.has(j) && clock.reaches(begins.low, tolerance) {
				agreeing.add(j)
			}
		}
		switch further := t.apart(agreeing); {
		case agreeing.len() > set.len(), agreeing.len() == set.len() && further < apart:
			set, apart = agreeing, further
		}
	}
	return set, apart
}

// apart is how far the clock of one of these nodes may be ahead of another's, or behind it, beyond the time that its
// own request or reply took (C2; bandCost says why that is left out). A loose span has no such time.
func (t *tally) apart(nodes nodeSet) time.Duration {
	lowest, highest := int64(math.MaxInt64), int64(math.MinInt64) // where any of these clocks may be
	behind, ahead := lowest, highest                              // where one that has stepped may be
	for i, s := range t.clocks {
		if !nodes.has(i) {
			continue
		}
		lowest, highest = min(lowest, s.low), max(highest, s.high)
		if s.loose {
			behind, ahead = min(behind, s.low), max(ahead, s.high)
		} else {
			behind, ahead = min(behind, s.high), max(ahead, s.low)
		}
	}
	return time.Duration(max(ahead-lowest, highest-behind)) * time.Microsecond
}

// verdict is won as soon as a quorum has granted and its clocks agree. It is lost as soon as that has become impossible
// (A3).
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

// A loss says why an acquire is lost (A3). A round may be lost before that is clear: of four nodes, two that deny are
// enough to lose it, and only a third answer shows whether the lock is held or nodes are away.
type loss uint8

const (
	lossUnclear loss = iota
	lossHeld         // a quorum answered: if the nodes that denied had been free, the round would have been won
	lossOutage       // no quorum can answer any more whose clocks agree
)

// loss says which loss it is. Once it is not lossUnclear, further answers do not change it.
func (t *tally) loss() loss {
	switch said := t.said().len(); {
	case said >= t.need:
		return lossHeld
	case said+t.open() < t.need:
		return lossOutage
	default:
		return lossUnclear
	}
}

// said is the nodes that granted or denied and whose clocks agree. If a node whose clock is out of step were free, its
// grant would not count. So its denial does not either.
func (t *tally) said() nodeSet {
	set, _ := t.agreeing(t.votedBy(granted) | t.votedBy(denied))
	return set
}

// isOutOfStep reports whether the node's clock does not agree with those of nodes, which agree.
func (t *tally) isOutOfStep(node int, nodes nodeSet) bool {
	if nodes.has(node) {
		return false
	}
	with := nodes
	with.add(node)
	set, _ := t.agreeing(with)
	return set != with
}

// isSteady reports whether two readings of one clock agree as those of two clocks must.
func (t *tally) isSteady(before, after span) bool {
	tolerance := t.tolerance.Microseconds()
	return t.clocks == nil || before.reaches(after.low, tolerance) || after.reaches(before.low, tolerance)
}

// answered reports whether granted and denied votes together reach the quorum.
func (t *tally) answered() bool { return t.loss() == lossHeld }

// refused reports whether so many nodes that had the keys once denied that no quorum is left, whatever the others answer
// (R3). A node that never had the keys has not lost them: what is in their place may be a waiter's, and gone in a moment.
func (t *tally) refused(had nodeSet) bool {
	return len(t.votes)-(t.votedBy(denied)&had).len() < t.need
}

// refusedOrNever reports whether refused is true, or no further answer can make it so.
func (t *tally) refusedOrNever(had nodeSet) bool {
	may := (t.votedBy(denied) | t.votedBy(pending)) & had
	return t.refused(had) || len(t.votes)-may.len() >= t.need
}

// released says what the votes of a release prove (L1). won: a quorum deleted the owner's keys. lost: a quorum no
// longer had all of them, so another client may have the lock. undecided: neither. final reports that no further answer
// can change this.
//
// had is the nodes of which it is known that they had the keys once. What a node never had it cannot have given to
// another client in between. So its denial proves no loss.
//
// A release concerns only the nodes that may have had the keys. These may be a bare quorum, of which one node is away.
// So it is won too if every node that answered deleted the keys, and with the nodes that never had them they are a
// quorum. That is known once all have answered, or the others are late.
func (t *tally) released(late bool, had nodeSet) (v verdict, final bool) {
	open, gone := t.open(), (t.votedBy(denied) & had).len()
	switch {
	case t.granted >= t.need:
		return won, true
	case gone >= t.need:
		return lost, true
	case t.denied > 0 || t.granted+open == 0 || t.granted+open+t.excluded < t.need:
		return undecided, max(t.granted, gone)+open < t.need
	case (late || open == 0) && t.granted > 0 && t.granted+t.excluded >= t.need:
		return won, true
	default:
		return undecided, open == 0
	}
}

// majority is the smallest quorum: any two sets of so many nodes share a node.
func majority(nodes int) int { return nodes/2 + 1 }

// driftFloor is added to the drift of every lease, because Redis expires keys with a precision of a millisecond, and
// because a fraction of a short TTL is too little. Source: Redis documentation, "Distributed Locks with Redis", which
// subtracts a few milliseconds.
const driftFloor = 2 * time.Millisecond

// driftOf is how far the clocks of a client and a server may run apart while a lease of this ttl lasts (A4).
func driftOf(ttl time.Duration, rate float64) time.Duration {
	return time.Duration(float64(ttl)*rate) + driftFloor
}

// toleranceOf is half the band (C1).
func toleranceOf(band time.Duration) time.Duration {
	if band < 0 {
		return -1
	}
	return band / 2
}

// bandCost is what the validity gives up for the clock band, where the clocks of its quorum may be so far apart (C2).
//
// The band guards against a step of one server's clock, the server that two quorums share. A step that neither quorum
// notices ends a key too early by at most the sum of
//
//	how far that clock was behind the others of the earlier quorum
//	how far it is ahead of the others of the later quorum
//	half the band, by which these others may differ in good order
//
// The earlier lease gives up what its own quorum may be apart, and one and a half bands; at least two bands. Of these, a
// whole band is for the later quorum. What that may be apart beyond a band, the later winner waits (bandWait).
//
// A clock may be further behind than the reply shows by as long as the request took. But the key lives as much longer
// than the validity, which counts from t0. And it may be further ahead by as long as the reply took. But so much time has
// passed since the later script ran. So neither counts.
func bandCost(band, apart time.Duration) time.Duration {
	if band < 0 {
		return 0
	}
	return 3*band/2 + max(band/2, apart)
}

// bandWait is how long the winner of a round waits before it relies on the lease (C2).
func bandWait(band, apart time.Duration) time.Duration {
	if band < 0 {
		return 0
	}
	return max(0, apart-band)
}

// validityOf is how long after the end of a round its winner may rely on the lease (A4). A server may have begun to
// count the TTL as early as the round began, so the validity gives up all the time that the round took.
func validityOf(ttl, elapsed, drift, bandCost time.Duration) time.Duration {
	return ttl - elapsed - drift - bandCost
}
