package redlock

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Which client may begin or end the quarantine of a node, and by which clocks (Q1).

// A moment is what the clocks show when a client asks ready.lua, as far as the client knows, in µs.
type moment struct {
	asked   Instant // when it asks, by its own clock
	fleet   int64   // the median of the other nodes' clocks; 0: there are none
	misread int64   // by how much fleet may be wrong
}

var errLate = errors.New("it may have forgotten what it granted; the question arrived late, or its clock has stepped, so it must be asked again")

// word is what to ask ready.lua on this node for, and the moment by the clocks that goes with it (Q1). The client may
// begin or end a quarantine only while it hears a quorum, this node included, that does not object to its configuration.
// Their clocks are the second clock of the quarantine, as far as they agree. If any node objects, the client also needs
// a quorum, this node included, of nodes that may grant to it. So a client that is configured differently from the rest
// decides nothing for nodes that forgot. A client that may not decide can only look.
func (c *Client) word(n *node) (word string, at moment) {
	now := c.cfg.Clock.Now()
	at.asked = now
	var others []*observation
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
			others = append(others, o.asOf(now, c.cfg.Drift))
		}
	}
	if c.cfg.onlyLook || len(others) < c.need-1 || differing > 0 && ready < c.need-1 {
		return wordLook, at
	}
	if len(others) > 0 && !c.protocol.omits(clocksOfOthers) {
		asked := n.clock.Load()
		if asked == nil {
			return wordLook, at
		}
		asked = asked.asOf(now, c.cfg.Drift)
		group := c.inStep(others, asked)
		if len(group) == 0 {
			return wordLook, at
		}
		at = c.momentBy(group, asked, now)
	}
	if n.forgetsNothing() {
		word = wordDurable
	}
	return word, at
}

// runIDsBeside are the run ids of all other servers, with a space before each: those that are connected, and what those were
// that are not now. If a server has the marker of one of these, it has that server's data (Q2).
func (c *Client) runIDsBeside(n *node) string {
	var ids strings.Builder
	for _, other := range c.nodes {
		if other == n {
			continue
		}
		other.mu.Lock()
		if id := other.server.runID; id != "" {
			ids.WriteString(" " + id)
		}
		other.mu.Unlock()
	}
	return ids.String()
}

// inStep are the clocks that are in step: the largest group that could all lie within MaxClockSkew of each other, if these
// are most of the clocks that this client hears (Q1). There are none if no such group is most of them, or if only the clock
// of the node that is asked is left: the client does not know what time it is.
//
// Without the group, two clients that hear different nodes could bring times that are apart by a wrong clock's error. Then
// the quarantine would begin again with each of their questions.
func (c *Client) inStep(others []*observation, asked *observation) (group []*observation) {
	all := append(slices.Clip(others), asked)
	group = all
	if apart := c.stepApart(); apart >= 0 {
		group = inGroup(all, apart)
	}
	if 2*len(group) <= len(all) || len(group) == 1 && group[0] == asked {
		return nil
	}
	return group
}

// stepApart is how far clocks may be apart that are in step; negative: any distance. Nodes vote though their clocks are
// apart by half the clock band, and whatever they show if there is no band (C1).
func (c *Client) stepApart() time.Duration {
	band := toleranceOf(c.cfg.ClockBand)
	if band < 0 {
		return band
	}
	return max(c.cfg.MaxClockSkew, band)
}

// momentBy is the moment by a group of clocks that are in step. The median is that of the others' clocks. It lies between the
// medians of the ends of their spans. One clock may be wrong, and be the median. So the least that the time may be is not more
// than stepApart above any right clock of the group, and the most not more than that below it, however badly they were read.
func (c *Client) momentBy(group []*observation, asked *observation, now Instant) moment {
	var offsets, lows, highs []int64
	lowest, highest := group[0].span().low, group[0].span().high
	for _, o := range group {
		s := o.span()
		lowest, highest = min(lowest, s.low), max(highest, s.high)
		if o != asked {
			offsets, lows, highs = append(offsets, o.offset), append(lows, s.low), append(highs, s.high)
		}
	}
	low, high := medianOf(lows), medianOf(highs)
	if apart := c.stepApart(); apart >= 0 {
		low, high = min(low, lowest+apart.Microseconds()), max(high, highest-apart.Microseconds())
	}
	micros := int64(now) / 1e3
	at := moment{asked: now, fleet: micros + (low+high)/2, misread: (high-low)/2 + 1}
	if c.protocol.omits(clocksMisread) {
		at.fleet, at.misread = micros+medianOf(offsets), 0
	}
	return at
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
