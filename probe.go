package redlock

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// The node that is asked first (W3), called the probe. All clients that want a lock should ask the same node first: it
// decides between them, and one queue keeps their waiters in order. That costs a round trip more than to ask all nodes
// at once. But if eight clients ask all at once, one of them wins in only about one of eight rounds.

const (
	// A node is slow if its round trip is above slowFactor times the median of the nodes, plus 2 ms
	// (protocol.slowMargin). It is then not asked first, until its round trip is below two thirds of that limit.
	slowFactor = 3
)

// probeFor is the node that clients ask first for this lock: the one where a hash of the smallest key and of the
// server's run id is highest. So every process picks the same node, whatever the order and the spelling of its Nodes,
// and different locks ask different nodes. It is one of the eligible nodes where no stranger is, or nil if there is none.
func (c *Client) probeFor(res *resource) *node {
	return c.probeAmong(res, c.allNodes()&^c.waiters.metByNow(res))
}

// probeAmong is the same, chosen among some of the nodes.
func (c *Client) probeAmong(res *resource, among nodeSet) *node {
	eligible, _ := c.eligible(c.cfg.Clock.Now())
	set := c.highest(res, eligible&among, 1)
	if i, ok := set.first(); ok {
		return c.nodes[i]
	}
	return nil
}

// quorumFor is as many nodes as a quorum needs: those that are asked first, the same in every process. It has all of
// include too. It is empty if fewer nodes are eligible.
func (c *Client) quorumFor(res *resource, now Instant, include nodeSet) nodeSet {
	if c.protocol.asksAll {
		return 0
	}
	eligible, prompt := c.eligible(now)
	if prompt.len() >= c.need { // a node that has just stopped is left out at once
		eligible = prompt
	}
	if free := eligible &^ c.waiters.metByNow(res); free.len() >= c.need {
		eligible = free
	}
	if eligible |= include; eligible.len() < c.need {
		return 0
	}
	return c.highest(res, eligible, c.need) | include
}

// highest is so many of these nodes, those with the highest weights.
func (c *Client) highest(res *resource, among nodeSet, count int) (set nodeSet) {
	name := hashOf(res.first())
	for ; count > 0 && among != 0; count-- {
		best, weight := 0, uint64(0)
		for i, n := range c.nodes {
			if !among.has(i) {
				continue
			}
			if w := n.weight(name); weight == 0 || w > weight {
				best, weight = i, w
			}
		}
		set.add(best)
		among &^= 1 << best
	}
	return set
}

// eligible is the nodes that may be asked first. They answer, may vote, have clocks in step with the others, and have not
// answered an acquire with an error within balkTime. They are not slow, unless a quorum needs slow ones whose round trips
// are bearable. Those of them are prompt that owe no late answer.
func (c *Client) eligible(now Instant) (set, prompt nodeSet) {
	median, clocks := c.medianClock()
	tolerance := toleranceOf(c.cfg.ClockBand)
	var trips, sorted [maxNodes]time.Duration
	count := 0
	for i, n := range c.nodes {
		o := n.clock.Load()
		outOfStep := clocks > 0 && o != nil && isOutOfStep(time.Duration(o.offset-median)*time.Microsecond, o.rtt, tolerance)
		if o == nil || outOfStep || n.isBalking(now) {
			continue
		}
		may, isPrompt := n.mayVote(now)
		if !may {
			continue
		}
		if isPrompt {
			prompt.add(i)
		}
		trips[i] = time.Duration(n.trip.Load())
		sorted[count] = trips[i]
		count++
		set.add(i)
	}
	if count == 0 {
		return 0, 0
	}
	slices.Sort(sorted[:count])
	usual := sorted[(count-1)/2]
	var slow nodeSet
	for i, n := range c.nodes {
		if set.has(i) && n.isSlow(trips[i], usual) {
			slow.add(i)
		}
	}
	if (set &^ slow).len() < c.need {
		// Every quorum needs one of them, so nobody wins without it. Clients that leave out different nodes, because each
		// is far from another one, would queue on different ones and overtake each other (W2).
		bearable := c.reservation() // where round trips are longer, a reservation runs out before it can be used
		for i := range c.nodes {
			if trips[i] <= bearable {
				slow &^= 1 << i
			}
		}
	}
	set &^= slow
	return set, prompt & set
}

// isBalking reports whether an acquire got an error there within balkTime. The client's clock may show any time, also one
// before 0.
func (n *node) isBalking(now Instant) bool {
	until := n.balks.Load()
	return until != 0 && until > int64(now)
}

// weight ranks the node for this name: the node with the highest weight decides first between contenders.
func (n *node) weight(nameHash uint64) uint64 { return mix(nameHash ^ mix(n.mark.Load())) }

// ranking is the nodes, by index, in the order in which they decide between those who try (T2). It is the same for all locks,
// because these may have some names in common. It moves no load.
func (c *Client) ranking() []int {
	weights := make([]uint64, len(c.nodes))
	order := make([]int, len(c.nodes))
	for i, n := range c.nodes {
		weights[i], order[i] = n.weight(0), i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	return order
}

// isTight reports whether some node is slow, away or of no use (its grant would not count, C1), and the others are no
// more than a quorum. Then a single refusal makes a round wait for the slow node, or loses it. So even with a reservation
// it is better to ask one node first, while the last release still travels to the others.
func (c *Client) isTight() bool {
	eligible, _ := c.eligible(c.cfg.Clock.Now())
	quick := 0
	for i, n := range c.nodes {
		if eligible.has(i) && !n.slow.Load() {
			quick++
		}
	}
	return quick < len(c.nodes) && quick <= c.need
}

// isSlow compares the node's round trip with the usual one. Between the limit and two thirds of it, the node stays what
// it was.
func (n *node) isSlow(trip, usual time.Duration) bool {
	limit := slowFactor*usual + n.protocol.slowMargin
	was := n.slow.Load()
	is := trip > limit || was && trip >= limit*2/3
	if is != was {
		n.slow.Store(is)
	}
	return is
}

// yields reports whether the winner of this round must leave the lock to a waiter (T3). A reservation is on one node,
// the one that W3 asks first. A quorum without that node can win the round, and yet it is the waiter's turn.
//
//   - A try waits for that node's answer.
//   - The first round of an Acquire does not, because it would be slower where nobody waits. It yields only if that
//     answer is there already.
//   - An Acquire that was refused before, or that found the lock contended (how.reservation is set), does not yield: it
//     is a waiter itself. But a reader always yields to a writer that waits (S2).
func (c *Client) yields(ctx context.Context, res *resource, r *round, how approach) bool {
	waits := how.reservation != ""
	if waits && !res.isShared() || !how.try && r.deniedBy() == 0 {
		return false
	}
	first := c.probeFor(res)
	if first == nil {
		return false
	}
	if how.try {
		hasVoted := func(t *tally) bool { return t.votes[first.index] != pending }
		if c.awaitVotes(ctx, r, c.cfg.Clock.Now().Add(c.patience(first)), hasVoted) != nil {
			return false // ctx or the client ended, which ends the attempt
		}
	}
	return r.yield(first.index, c.waiters.idFor(res.isShared()), waits)
}

// yield gives up the round if the node has reserved the key for a client other than me. A waiter yields only to a writer
// that waits (S2).
func (r *round) yield(node int, me string, waits bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.answers[node].denial
	r.yielded = d != nil && d.isForWaiter() && d.owner != me && (!waits || d.owner == writerAhead)
	return r.yielded
}

// longReservation is longer than any reservation lasts: four round trips at the most (W2).
const longReservation = 10 * time.Second

// isForWaiter reports whether the key in the way is reserved for a waiter, which will use it or is known by its end to have
// died. A reservation that lasts longer was made before the server's clock was set back, or by another program.
func (d *denial) isForWaiter() bool {
	return d.isReservation() && (d.owner == writerAhead || 0 <= d.left && d.left <= longReservation)
}

// hasOneOwner reports whether the denial names one owner that has the key now: not a waiter that is coming, and not several
// that share it, of which a denial has no token.
func (d *denial) hasOneOwner() bool {
	return d.reason == held && !d.isForWaiter() && !isOfSeveral(d.owner)
}

func (r *round) hasYielded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.yielded
}

// isReserved reports whether a node refused because the key there is reserved for a waiter (T3).
func (r *round) isReserved() bool {
	answers, _ := r.snapshot()
	return slices.ContainsFunc(answers, func(a answer) bool { return a.isReserved() })
}
