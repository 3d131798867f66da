package redlock

import (
	"math"
	"slices"
	"strings"
	"time"
)

// A obstacle is what a refused round tells about the next.
type obstacle struct {
	owner string        // who is in the way, if it is one
	at    nodeSet       // the nodes that said so
	free  time.Duration // how long after the round began the way could be free by expiry, at the earliest
}

// obstacleOf reads the answers. An owner is in the way who has so many nodes that no quorum is left without
// them, or the one node that was asked first. Nodes that granted are free; the silent are not counted on.
func obstacleOf(answers []answer, need int, probed bool) obstacle {
	left := make([]time.Duration, 0, len(answers))
	owners := map[string]nodeSet{}
	for i, a := range answers {
		switch {
		case a.denial != nil && a.denial.reason == held:
			at := owners[a.denial.owner]
			at.add(i)
			owners[a.denial.owner] = at
			if a.denial.left < 0 {
				left = append(left, math.MaxInt64)
			} else {
				left = append(left, a.denial.left)
			}
		case a.vote == granted || a.denial != nil:
			left = append(left, 0)
		}
	}
	var p obstacle
	for owner, at := range owners {
		if len(answers)-at.len() < need || probed && len(left) == 1 {
			p.owner, p.at = owner, at
		}
	}
	slices.Sort(left)
	switch {
	case probed && len(left) == 1:
		p.free = left[0]
	case len(left) < need:
		p.free = math.MaxInt64
	default:
		p.free = left[need-1]
	}
	return p
}

const (
	// foreignPoll is how often a lock is asked for that another library holds.
	foreignPoll = 10 * time.Millisecond
	// deafPoll is how often it is asked for by those who cannot hear of it: its turn lasts twice keepTime.
	deafPoll = 20 * time.Millisecond
	// manyWaiters is from how many waiters of this client on each of them polls less often, so that all of them
	// together do not poll more.
	manyWaiters = 1000
	// manyDeaf is the same for those who cannot hear.
	manyDeaf = 50
)

// lostPoll is how often a lock is asked for by those who should hear of it: a message may be lost. A queue lasts
// for ten seconds after the last one asked.
func (c *Client) lostPoll() time.Duration {
	waiters := time.Duration(c.waiters.listening.Load())
	return c.protocol.lostPoll * max(manyWaiters, min(waiters, 5*manyWaiters)) / manyWaiters
}

// deafPoll is how often it is asked for by those who cannot.
func (c *Client) deafPoll() time.Duration {
	waiters := time.Duration(c.waiters.listening.Load())
	return min(c.protocol.lostPoll, deafPoll*max(manyDeaf, waiters)/manyDeaf)
}

// isOurs reports whether it could be what this library writes: an owner token, 32 hexadecimal digits, or that
// the key is kept for somebody. One in capitals is of a client that cannot tell of its release, like another
// library's.
func isOurs(owner string) bool {
	owner = strings.TrimPrefix(owner, reservationPrefix)
	return len(owner) == 32 && strings.Trim(owner, "0123456789abcdef") == ""
}
