package redlock

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// The node that is asked first (W3). All who want a lock should ask the same one, so that it decides between
// them and one queue keeps them in order. Asking it alone costs a round trip more than asking all at once, where
// of eight who do, one in eight times anybody wins.

const (
	// balkTime is how long a node is not asked first after it refused to grant with an error: out of memory, a
	// failed disk, a right that is missing. While the lock is contended it goes on being asked for its vote.
	balkTime = 3 * time.Second
	// A node is slow whose round trip is above slowFactor times the median of the nodes, and slowMargin: then it
	// is not asked first, until its round trip is below two thirds of that.
	slowFactor = 3
	slowMargin = 2 * time.Millisecond
)

// probeFor is the node that those who want this lock ask first: the one where a hash of the smallest key and of
// the server's run id is highest, so that every process picks the same, whatever the order or the spelling of
// its Nodes, and different locks ask different nodes. It must answer, be a voter in step with the clocks, not
// be slow, and not have refused to grant a moment ago. It is nil if there is no such node.
func (c *Client) probeFor(res *resource) *node { return c.probeAmong(res, c.allNodes()) }

// probeAmong is the same of some of the nodes.
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

// weight ranks the node among those that decide between contenders: the highest comes first.
func (n *node) weight(nameHash uint64) uint64 { return mix(nameHash ^ mix(hashOf(n.runID()))) }

// ranking is the nodes, by index, in the order in which they decide between those who want the lock.
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

// isTight reports whether a node is slow or away, and no more nodes than a quorum are left without it. Then one
// refusal costs a round trip of the slow one: it is better to let the release that went before reach them all.
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

// isSlow compares the node's round trip with the usual one. Between the two limits it stays what it was.
func (n *node) isSlow(trip, usual time.Duration) bool {
	limit := slowFactor*usual + n.client.protocol.slowMargin
	was := n.slow.Load()
	is := trip > limit || was && trip >= limit*2/3
	if is != was {
		n.slow.Store(is)
	}
	return is
}

// balk notes that the server refused to grant. One that has forgotten its scripts is told them again.
func (n *node) balk(r *round, err error) {
	if r.script.grants && isRefusal(err) && !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		n.balks.Store(int64(n.client.cfg.Clock.Now().Add(balkTime)))
	}
}

// runID is of the server that the node is, or was last, connected to.
func (n *node) runID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server.runID
}
