package redlock

import "slices"

// Which client may begin or end the quarantine of a node, and by which clocks (Q1).

// word is what to ask ready.lua on this node for, and the time by the other nodes' clocks that goes with it (Q1). The
// client may begin or end a quarantine only while it hears a quorum, this node included, that does not object to its
// configuration. Their clocks are the second clock of the quarantine, as far as they agree. If any node objects, the
// client also needs a quorum, this node included, of nodes that may grant to it. So a client that is configured
// differently from the rest decides nothing for nodes that forgot. A client that may not decide can only look.
func (c *Client) word(n *node) (word string, fleet int64) {
	var array [maxNodes]*observation
	others := array[:0]
	ready, differing := 0, 0
	for _, other := range c.nodes {
		if other == n {
			continue
		}
		agrees, votes, differs := other.opinion()
		if differs {
			differing++
		}
		if votes {
			ready++
		}
		if o := other.clock.Load(); o != nil && agrees {
			others = append(others, o)
		}
	}
	if c.cfg.onlyLook || len(others) < c.need-1 || differing > 0 && ready < c.need-1 {
		return wordLook, 0
	}
	if len(others) > 0 && !c.protocol.omits(clocksOfOthers) {
		offsets := c.inStep(others, n.clock.Load())
		if len(offsets) == 0 {
			return wordLook, 0
		}
		fleet = int64(c.cfg.Clock.Now())/1e3 + medianOf(offsets)
	}
	if n.forgetsNothing() {
		word = wordDurable
	}
	return word, fleet
}

// inStep are the offsets of those other clocks that are in step: the largest group that could all lie within MaxClockSkew
// of each other, if these are most of the clocks that this client hears (Q1). The clock of the node that is asked is only
// counted. There are none if no such group is most of them: the client does not know what time it is.
//
// Without the group, two clients that hear different nodes could bring times that are apart by a wrong clock's error. Then
// the quarantine would begin again with each of their questions.
func (c *Client) inStep(others []*observation, asked *observation) (offsets []int64) {
	all := others
	if asked != nil {
		all = append(slices.Clip(others), asked)
	}
	// Nodes vote though their clocks are apart by half the clock band, and whatever they show if there is no band (C1).
	group := all
	if band := toleranceOf(c.cfg.ClockBand); band >= 0 {
		group = inGroup(all, max(c.cfg.MaxClockSkew, band))
	}
	if 2*len(group) <= len(all) {
		return nil
	}
	for _, o := range group {
		if o != asked {
			offsets = append(offsets, o.offset)
		}
	}
	return offsets
}

// readied is called when a node has answered ready.lua. agrees: the node does not object to our configuration, which is
// news. A node that could not be judged so far may be judged now, because more nodes can be heard: ask it again.
func (c *Client) readied(n *node, agrees bool) {
	defer c.nodeTried()
	defer n.noteTried() // not before it is clear which nodes are asked again: those have not had their say

	if n.waitsForOthers() { // the other nodes may have answered since this one was asked
		if word, _ := c.word(n); word != wordLook {
			n.askReady()
		}
	}
	if !agrees {
		return
	}
	for _, other := range c.nodes {
		if other != n && other.waitsForOthers() {
			other.askReady()
		}
	}
}
