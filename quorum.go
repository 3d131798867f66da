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

// A tally counts the votes of one round. The first vote of a node stands; a later one is not counted.
type tally struct {
	votes                    []vote
	need                     int
	granted, denied, unknown int
}

func newTally(nodes, need int) tally {
	return tally{votes: make([]vote, nodes), need: need}
}

// cast counts the node's vote and reports whether it was the node's first.
func (t *tally) cast(node int, v vote) bool {
	if t.votes[node] != pending {
		return false
	}
	t.votes[node] = v
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

// verdict is won as soon as a quorum has granted and lost as soon as none can (A3).
func (t *tally) verdict() verdict {
	switch {
	case t.granted >= t.need:
		return won
	case len(t.votes)-t.denied-t.unknown < t.need:
		return lost
	default:
		return undecided
	}
}

// refused reports whether so many nodes denied that no quorum is left, whatever the silent ones would say.
func (t *tally) refused() bool { return len(t.votes)-t.denied < t.need }

// answered reports whether a quorum of nodes gave an answer, yes or no. A round that fails with it met
// other holders; one that fails without it met an outage.
func (t *tally) answered() bool { return t.granted+t.denied >= t.need }

// majority is the smallest number of nodes of which any two sets share a node.
func majority(nodes int) int { return nodes/2 + 1 }

// driftFloor is added to the drift of every lease, for the millisecond precision of Redis expiry and
// the smallest useful time to live. Source: Redis documentation, "Distributed Locks with Redis".
const driftFloor = 2 * time.Millisecond

// driftOf is how far a client's and a server's clock may run apart while a lease of this ttl lasts.
func driftOf(ttl time.Duration, rate float64) time.Duration {
	return time.Duration(float64(ttl)*rate) + driftFloor
}

// validityOf is how long after the end of a round its winner may believe (A4). The server's expiry began
// no earlier than the round did, so the time the round took is given up whole.
func validityOf(ttl, elapsed, drift time.Duration) time.Duration {
	return ttl - elapsed - drift
}
