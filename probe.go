package redlock

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// The node that is asked first (W3), called the probe. All clients that want a lock should ask the same node first: it
// decides between them, and one queue keeps their waiters in order. That costs a round trip more than to ask all nodes
// at once. But if eight clients ask all at once, one of them wins in only about one of eight rounds.

const (
	// balkTime is how long a node is not asked first after it answered an acquire with an error: out of memory, a
	// failed disk, a missing right. It is still asked for its vote.
	balkTime = 3 * time.Second
	// A node is slow if its round trip is above slowFactor times the median of the nodes, plus slowMargin. It is then
	// not asked first, until its round trip is below two thirds of that limit.
	slowFactor = 3
	slowMargin = 2 * time.Millisecond
)

// probeFor is the node that clients ask first for this lock: the one where a hash of the smallest key and of the
// server's run id is highest. So every process picks the same node, whatever the order and the spelling of its Nodes,
// and different locks ask different nodes. The node must answer, may vote, have its clock in step with the others, not
// be slow, and not have answered an acquire with an error within balkTime. It is nil if there is no such node.
func (c *Client) probeFor(res *resource) *node { return c.probeAmong(res, c.allNodes()) }

// probeAmong is the same, chosen among some of the nodes.
func (c *Client) probeAmong(res *resource, among nodeSet) *node {
	now := c.cfg.Clock.Now()
	median, known := c.medianClock()
	tolerance := toleranceOf(c.cfg.ClockBand)
	var nodes [maxNodes]*node
	var trips [maxNodes]time.Duration
	count := 0
	for _, n := range c.nodes {
		o := n.clock.Load()
		outOfStep := known && o != nil && isOutOfStep(time.Duration(o.offset-median)*time.Microsecond, o.rtt, tolerance)
		if o == nil || outOfStep || n.balks.Load() > int64(now) || !n.responsive(now) || !n.isVoter() {
			continue
		}
		nodes[count], trips[count] = n, time.Duration(n.trip.Load())
		count++
	}
	if count == 0 {
		return nil
	}
	sorted := trips
	slices.Sort(sorted[:count])
	usual := sorted[(count-1)/2]
	var best *node
	var highest uint64
	name := hashOf(res.first())
	for i, n := range nodes[:count] {
		if n.isSlow(trips[i], usual) || !among.has(n.index) {
			continue
		}
		if weight := n.weight(name); best == nil || weight > highest {
			best, highest = n, weight
		}
	}
	return best
}

// weight ranks the node for this name: the node with the highest weight decides first between contenders.
func (n *node) weight(nameHash uint64) uint64 { return mix(nameHash ^ mix(hashOf(n.runID()))) }

// ranking is the nodes, by index, in the order in which they decide between contenders for the lock.
func (c *Client) ranking(res *resource) []int {
	name := hashOf(res.first())
	weights := make([]uint64, len(c.nodes))
	order := make([]int, len(c.nodes))
	for i, n := range c.nodes {
		weights[i], order[i] = n.weight(name), i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	return order
}

// isTight reports whether some node is slow or away, and the others are no more than a quorum. Then a single refusal
// makes a round wait for the slow node. So even with a reservation it is better to ask one node first, while the last
// release still travels to the others.
func (c *Client) isTight() bool {
	now := c.cfg.Clock.Now()
	quick := 0
	for _, n := range c.nodes {
		if !n.slow.Load() && n.balks.Load() <= int64(now) && n.responsive(now) {
			quick++
		}
	}
	return quick < len(c.nodes) && quick <= c.need
}

// isSlow compares the node's round trip with the usual one. Between the limit and two thirds of it, the node stays what
// it was.
func (n *node) isSlow(trip, usual time.Duration) bool {
	limit := slowFactor*usual + n.client.protocol.slowMargin
	was := n.slow.Load()
	is := trip > limit || was && trip >= limit*2/3
	if is != was {
		n.slow.Store(is)
	}
	return is
}

// balk notes that the server answered an acquire with an error, so that it is not asked first for balkTime. A server
// that has forgotten its scripts does not count: it gets them again (repair).
func (n *node) balk(r *round, err error) {
	if r.script.grants && isRefusal(err) && !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		n.balks.Store(int64(n.client.cfg.Clock.Now().Add(balkTime)))
	}
}

// runID is the run id of the server that the node is, or was last, connected to.
func (n *node) runID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server.runID
}
