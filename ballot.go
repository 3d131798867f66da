package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// The ballots of a client (F1, F2). The ballot of the attempt that wins is the lease's fencing token.

// propose makes the ballot of an attempt (F1); 0: there are no fencing tokens. known is false while the clocks of fewer
// nodes are known than are a quorum: without them an attempt cannot win. But one that made its ballot by a single clock
// that is hours ahead would leave it on that node. Once the clock is right, nobody would believe the node (F2).
func (c *Client) propose(now Instant) (ballot uint64, known bool) {
	if c.cfg.NoFence {
		return 0, true
	}
	median, clocks := c.medianClock()
	if clocks < c.need {
		return 0, false
	}
	return c.ballot(now, median), true
}

// errNoBallot is why a node that would vote was not asked for its vote.
var errNoBallot = errors.New("it was not asked, because a fencing token takes the clocks of more nodes than have been reached")

// unreached is the round of an attempt that cannot make a ballot (F1), because this client was never connected to as many
// nodes as a quorum.
func (c *Client) unreached(s *script, t0 Instant) *round {
	return c.unasked(s, t0, func(n *node) error { return cmp.Or(n.absent(t0), errNoBallot) })
}

// unasked is the lost round of an attempt that asks no node, with the reason of each.
func (c *Client) unasked(s *script, t0 Instant, why func(*node) error) *round {
	r := c.newRound(plan{call: call{script: s}, t0: t0})
	for _, n := range c.nodes {
		r.record(n.index, answer{vote: unknown, err: why(n)})
	}
	return r
}

// ballot is the median of the nodes' clocks in µs, as last observed, and above every ballot that this client has seen
// (F1). This process's wall clock is not used.
func (c *Client) ballot(now Instant, median int64) uint64 {
	if c.protocol.omits(serverBallots) {
		median = 0
	}
	fresh := atMicros(now, median)
	for {
		seen := c.seen.Load()
		next := max(fresh, seen+1)
		if c.seen.CompareAndSwap(seen, next) {
			return next
		}
	}
}

// atMicros is what a server's clock shows now, in µs, if it is so far ahead of ours.
func atMicros(now Instant, offset int64) uint64 { return uint64(max(0, int64(now)/1e3+offset)) }

// saw makes every later ballot larger than this one.
func (c *Client) saw(ballot uint64) { raise(&c.seen, ballot) }

// raise makes the number at least this large.
func raise(number *atomic.Uint64, to uint64) {
	for {
		old := number.Load()
		if to <= old || number.CompareAndSwap(old, to) {
			return
		}
	}
}

// learn makes the next ballot larger than those that the nodes refused it for (F2). It reports whether the next attempt
// may succeed for that reason alone, although nodes had no vote in this one.
//
// A ballot that is far ahead of the servers' clocks counts only if a quorum says so. Then the clocks were set back.
// Otherwise somebody has written it, or the server is broken: one node must not use up the numbers of all.
func (c *Client) learn(r *round) (agreed bool) {
	answers, _ := r.snapshot()
	limit := c.ballotLimit()
	var array [maxNodes]uint64
	far := array[:0]
	for _, a := range answers {
		switch highest := a.highest(); {
		case highest > limit:
			far = append(far, highest)
		case highest > 0:
			c.saw(highest)
		}
	}
	agreedOn, ok := c.quorumHas(far)
	if !ok || agreedOn > maxBallot {
		return false // too few nodes say so; or too few numbers are above it, and only an operator can help
	}
	raise(&c.agreedBallot, agreedOn)
	c.saw(agreedOn)
	return true
}

// quorumHas is the largest number of which a quorum of nodes has as much. It sorts the numbers, one of each node.
func (c *Client) quorumHas(numbers []uint64) (number uint64, ok bool) {
	if len(numbers) < c.need {
		return 0, false
	}
	slices.Sort(numbers)
	return numbers[len(numbers)-c.need], true
}

// leadAfter is how far ahead of the servers' clocks the next ballot of a call is (F1), after a lost round in which it was so
// far ahead. A ballot is as old as its way to a node is long when it comes there. Meanwhile those nearby may have raised the
// slot, with locks that do not exclude this one: readers, other permits, another name. A client far away would be refused
// for ever. So, once it was outbid, its ballots show the time at which they come to a quorum of the nodes that did so: half
// of that answer's round trip later, and an eighth more because some take longer.
//
// It is never more than that. While a slot is ahead of the clocks, all who use it must outbid the last one by guess, and few
// get in. If each of many led what another had stored, ballots would run away from the clocks (F2).
func (c *Client) leadAfter(lead time.Duration, r *round) time.Duration {
	answers, _ := r.snapshot()
	var array [maxNodes]time.Duration
	trips := array[:0]
	for _, a := range answers {
		if a.outbids(r.ballot) {
			trips = append(trips, time.Duration(a.clock.high-a.clock.low)*time.Microsecond)
		}
	}
	if len(trips) == 0 {
		return lead
	}
	slices.Sort(trips)
	trip := trips[min(c.need, len(trips))-1]
	return min(trip/2+trip/8, c.cfg.NodeTimeout)
}

// outbids reports whether the node had granted a ballot that is not below this one, also if something else was in the way: a
// waiter's next turn must not fail for that.
func (a *answer) outbids(ballot uint64) bool {
	return a.denial != nil && (a.denial.reason == stale || a.denial.highest > ballot)
}

// highest is the highest ballot that the node says it granted; 0: it did not say.
func (a *answer) highest() uint64 {
	var far *farBallotError
	switch {
	case a.denial != nil:
		return a.denial.highest
	case errors.As(a.err, &far):
		return far.highest
	}
	return 0
}

// ballotLead is how far a ballot may be ahead of the servers' clocks. A client that takes the lock again and again adds
// one to its ballot, while its clock goes on by more than that; so a ballot is ahead only if a clock was set back.
const ballotLead = time.Hour

const (
	maxMicros = 1 << 53 // above all ballots: Lua has no whole numbers beyond it

	// maxBallot is the largest ballot that a quorum is believed. It leaves the numbers of 35 years to those who go above it:
	// else the first few would use them up, of every name, since a client's ballots are above all that it has seen (F1).
	maxBallot = maxMicros - 1<<50
)

// ballotLimit is the largest ballot that one node is believed.
func (c *Client) ballotLimit() uint64 {
	median, clocks := c.medianClock()
	if clocks == 0 || c.protocol.omits(farBallotsAgreed) {
		return math.MaxUint64
	}
	return min(max(atMicros(c.cfg.Clock.Now(), median), c.agreedBallot.Load())+uint64(ballotLead.Microseconds()), maxMicros-2)
}

// A farBallotError is why a node has no vote that refuses a ballot, because it has one that is far ahead of the servers'
// clocks. The client cannot tell what that node granted last, so it is as if it were away.
type farBallotError struct {
	highest uint64
	ahead   time.Duration
}

func (e *farBallotError) Error() string {
	return fmt.Sprintf("its highest fencing token for the name, %d, is %v ahead of the servers' clocks, so it is not believed: "+
		"a program has written to %s there; delete that key on this node", e.highest, e.ahead.Round(time.Second), fenceKey)
}

// notBelieved is the farBallotError for the ballot that the node refuses others for, if it is above the limit.
func (n *node) notBelieved(highest uint64) error {
	limit := n.host.ballotLimit()
	if highest <= limit {
		return nil
	}
	ahead := time.Duration(min(highest-limit, maxMicros))*time.Microsecond + ballotLead
	return &farBallotError{highest, ahead}
}
