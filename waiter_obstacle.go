package redlock

import (
	"math"
	"slices"
	"strings"
	"time"
)

// A refusedRound is a lost round as the waiter saw it. It does not change with later answers.
type refusedRound struct {
	t0      Instant
	asked   *node   // was asked first; nil: all were asked at once
	sentTo  nodeSet // the nodes that were asked at all
	entered nodeSet // the nodes that were asked to queue this client
	showed  nodeSet // the nodes that denied although the light form wrote the key
	answers []answer
	votes   tally
}

func (w *waiter) look(r *round) refusedRound {
	answers, votes := r.snapshot()
	return refusedRound{t0: r.t0, asked: w.how.probe, sentTo: r.askedNodes(), entered: r.queueAt, showed: r.shown(), answers: answers, votes: votes}
}

// askedOne reports whether only one node was asked: it did not grant.
func (r *refusedRound) askedOne() bool {
	return r.asked != nil && r.answers[r.asked.index].vote != granted
}

// lostToOthers reports whether the round was lost to others, and not to an outage (A3).
func (r *refusedRound) lostToOthers() bool {
	return r.votes.answered() || r.asked != nil && r.votes.denied > 0
}

// An obstacle is what a refused round says about the next: who is in the way, and for how long.
type obstacle struct {
	owner string        // what the key holds, if one owner alone is in the way; "": nobody, or several together
	at    nodeSet       // the nodes that the owner has
	mute  bool          // several share the key, and one of them may not publish
	free  time.Duration // the earliest time after the round began at which keys may have expired on enough nodes
}

// never is a time that does not come.
const never time.Duration = math.MaxInt64

// obstacleOf reads the answers. An owner is in the way if no quorum is left without the nodes that it has, or if it has
// the one node that was asked. A node that granted counts as free now. A silent node does not count as free at all.
func obstacleOf(answers []answer, need int, probed bool) obstacle {
	left := make([]time.Duration, 0, len(answers))
	owners, mute := map[string]nodeSet{}, map[string]bool{}
	for i, a := range answers {
		switch {
		case a.denial != nil && a.denial.reason == held:
			at := owners[a.denial.owner]
			at.add(i)
			owners[a.denial.owner] = at
			mute[a.denial.owner] = mute[a.denial.owner] || a.denial.mute
			if a.denial.left < 0 {
				left = append(left, never)
			} else {
				left = append(left, a.denial.left)
			}
		case a.vote == granted || a.denial != nil:
			left = append(left, 0)
		}
	}
	var o obstacle
	for owner, at := range owners {
		if len(answers)-at.len() < need || probed && len(left) == 1 {
			o.owner, o.at, o.mute = owner, at, mute[owner]
		}
	}
	slices.Sort(left)
	switch {
	case probed && len(left) == 1:
		o.free = left[0]
	case len(left) < need:
		o.free = never
	default:
		o.free = left[need-1]
	}
	return o
}

// tells reports whether a release of the owner may send a message.
func (o *obstacle) tells() bool { return !o.mute && isOurs(o.owner) }

// unqueued is the nodes that the owner has, if its release there may send a message, and none of them was asked to
// queue this client (entered). Otherwise it is empty.
func (o *obstacle) unqueued(entered nodeSet) nodeSet {
	if !o.tells() || o.at&entered != 0 {
		return 0
	}
	return o.at
}

const (
	// foreignPoll is how often a waiter asks again where the owner's release sends no message, as another library's.
	foreignPoll = 10 * time.Millisecond
	// deafPoll is how often a waiter that gets no messages asks again. Its reservation lasts 2 × reservationTime, so it
	// notices it in time.
	deafPoll = 20 * time.Millisecond
	// intentPoll is how often a writer that waits for readers asks again at least, however many waiters there are and however
	// far away the nodes are: its intent lasts for 3 s (S2).
	intentPoll = 1500 * time.Millisecond
	// manyWaiters is a number of waiters in this client. With more of them, each asks less often, so that all of them
	// together do not ask more.
	manyWaiters = 1000
	// manyDeaf is the same for waiters that get no messages.
	manyDeaf = 50
	// farPoll is how many round trips a waiter waits at least for a message that may be lost. A hand-over takes two or
	// three, and who asks all nodes while they travel may be ahead of the waiter whose turn it is.
	farPoll = 20
)

// lostPoll is how often a waiter asks again although it should get a message: the message may be lost. It stays below
// ten seconds, because a node drops a queue ten seconds after the last refusal.
func (c *Client) lostPoll() time.Duration {
	often := c.protocol.lostPoll
	often = max(often, min(farPoll*c.roundTrip(), 5*often))
	waiters := time.Duration(c.waiters.listening.Load())
	return min(often*max(manyWaiters, waiters)/manyWaiters, max(often, 5*c.protocol.lostPoll))
}

// deafPoll is how often a waiter that gets no messages asks again.
func (c *Client) deafPoll() time.Duration {
	waiters := time.Duration(c.waiters.listening.Load())
	return min(c.protocol.lostPoll, deafPoll*max(manyDeaf, waiters)/manyDeaf)
}

// isOurs reports whether a release of this owner may send a message: it is an owner token of this library, or a
// reservation; or several own the key, and the release of the last one does. A token in capital letters counts as another
// library's: it is of a client that may not publish.
func isOurs(owner string) bool {
	if isOfSeveral(owner) {
		return true
	}
	return digitsOf(strings.TrimPrefix(owner, reservationPrefix), "0123456789abcdef")
}

// onlyStale reports whether nothing but the ballot was in the way: a quorum answered, and those that denied refused the
// ballot as too low.
func (r *round) onlyStale() bool { return r.staleBut(0) }

// staleBut is onlyStale, and so many nodes may have another owner in the way.
func (r *round) staleBut(most int) bool {
	answers, t := r.snapshot()
	stales, owned := 0, 0
	for _, a := range answers {
		switch {
		case a.denial == nil:
		case a.denial.reason == stale:
			stales++
		case a.isOwned() && !a.isReserved():
			owned++
		default:
			return false
		}
	}
	return stales > 0 && owned <= most && t.answered()
}
