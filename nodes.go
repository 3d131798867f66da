package redlock

import (
	"context"
	"slices"
	"time"
)

// What a client knows of its nodes together.

// claim makes the server count as node n, or returns the node that it already counts as: one server that is listed
// twice must not vote twice (N1).
func (c *Client) claim(runID string, n *node) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.claims[runID]; ok && other != n {
		return other
	}
	c.claims[runID] = n
	return nil
}

// unclaim gives up the claims of node n.
func (c *Client) unclaim(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for runID, owner := range c.claims {
		if owner == n {
			delete(c.claims, runID)
		}
	}
}

// nodeTried is called when a node's first attempt may be over: it has said whether it may grant, or its connection broke.
func (c *Client) nodeTried() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isTried && c.countTried() == len(c.nodes) {
		c.isTried = true
		close(c.tried)
	}
	switch {
	case c.isOpen || c.closed:
	case c.isTried:
		c.open()
	case c.countUp() >= c.need && c.grace == nil:
		c.grace = time.AfterFunc(openGrace, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !c.isOpen {
				c.open()
			}
		})
	}
}

// nodeChanged is called when a node's connection has opened (err is nil) or broken, and when the first attempt failed.
func (c *Client) nodeChanged(n *node, err error) {
	if err != nil {
		c.nodeTried()
	}
	name := n.endpoint.name
	switch {
	case c.isClosed():
	case err == nil:
		c.cfg.Logger.Info("redlock: node connected", "node", name)
		if hook := c.cfg.Hooks.NodeUp; hook != nil {
			hook(name)
		}
	default:
		if hook := c.cfg.Hooks.NodeDown; hook != nil {
			hook(name, err)
		}
	}
}

// askPublish is for a node's health check and Status: nobody else asks once the subscription stands, or while nobody waits.
func (c *Client) askPublish(n *node) *command { return c.waiters.subscribers[n.index].askPublish() }

// open lets the first round begin. c.mu is held.
func (c *Client) open() {
	c.isOpen = true
	close(c.opened)
}

func (c *Client) countTried() (count int) {
	for _, n := range c.nodes {
		if tried, _, _ := n.state(); tried {
			count++
		}
	}
	return count
}

func (c *Client) countUp() (count int) {
	for _, n := range c.nodes {
		if _, up, _ := n.state(); up {
			count++
		}
	}
	return count
}

// awaitOpen delays the first round until a quorum is connected (plus openGrace for the others) or every node has tried.
// An earlier round would report an outage for a lock that is held, and would have no clock for its ballot (F1).
func (c *Client) awaitOpen(ctx context.Context) error {
	select {
	case <-c.opened: // nearly always; it needs no timer
		return nil
	default:
		return c.awaitEvent(ctx, c.opened, c.stallTimeout())
	}
}

// awaitAll waits until every node has said whether it may grant, or failed to connect, once. An attempt takes no longer
// than stallTimeout; the rest is for its error to arrive, so that the caller can say why a node is away.
func (c *Client) awaitAll(ctx context.Context) error {
	return c.awaitEvent(ctx, c.tried, c.stallTimeout()+c.cfg.NodeTimeout)
}

// upPoll is how often awaitUp looks.
const upPoll = 20 * time.Millisecond

// awaitUp waits until every node has been reached. Those that have not get about one more attempt: a server that was just
// started does not listen yet, and one on a busy machine may need longer than an attempt takes.
func (c *Client) awaitUp(ctx context.Context) error {
	if err := c.awaitAll(ctx); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, c.stallTimeout()+c.cfg.NodeTimeout)
	defer cancel()
	for c.countUp() < len(c.nodes) && patience.Err() == nil && !c.isClosed() {
		c.pause(patience, upPoll)
	}
	if c.isClosed() {
		return ErrClosed
	}
	return ctx.Err()
}

// awaitEvent waits for the event, no longer than patience. It is no error if the event does not come.
func (c *Client) awaitEvent(ctx context.Context, event <-chan struct{}, patience time.Duration) error {
	timer := c.timers.start(patience)
	defer c.timers.stop(timer)
	select {
	case <-event:
	case <-timer.C:
	case <-c.ending:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// medianClock is by how many µs the median of the nodes' clocks is ahead of ours, as last observed, and of how many nodes
// the clock is known: of those that this client has been connected to.
func (c *Client) medianClock() (micros int64, clocks int) {
	var array [maxNodes]int64
	offsets := array[:0]
	for _, n := range c.nodes {
		if o := n.clock.Load(); o != nil {
			offsets = append(offsets, o.offset)
		}
	}
	if len(offsets) == 0 {
		return 0, 0
	}
	return medianOf(offsets), len(offsets)
}

// roundTrip is how long a round usually takes: the median of the nodes' usual round trips.
func (c *Client) roundTrip() time.Duration {
	var array [maxNodes]time.Duration
	trips := array[:0]
	for _, n := range c.nodes {
		if n.clock.Load() != nil {
			trips = append(trips, time.Duration(n.trip.Load()))
		}
	}
	if len(trips) == 0 {
		return time.Millisecond
	}
	slices.Sort(trips)
	return max(trips[len(trips)/2], 100*time.Microsecond)
}

// reservation is how long a node reserves a key: the message must reach the waiter, and its acquire the node. That is a
// round trip of the waiter's. This client knows only its own, so it allows for two.
func (c *Client) reservation() time.Duration { return max(reservationTime, 2*c.roundTrip()) }

// openGrace is how long the first round waits for the other nodes after a quorum has connected.
const openGrace = 20 * time.Millisecond

// patience is how long to wait for the node's answer: several times what it usually takes.
func (c *Client) patience(n *node) time.Duration {
	usual := 2 * time.Millisecond
	if n.clock.Load() != nil {
		usual += 4 * time.Duration(n.trip.Load())
	}
	return min(usual, c.cfg.NodeTimeout)
}

// hasTried reports whether every node has said whether it may grant, or failed to connect, at least once.
func (c *Client) hasTried() bool {
	select {
	case <-c.tried:
		return true
	default:
		return false
	}
}

// medianOf returns the median of at least one number; of an even count, the lower one of the middle two. It sorts them.
func medianOf(numbers []int64) int64 {
	slices.Sort(numbers)
	return numbers[(len(numbers)-1)/2]
}

// hedgeAfter is how long to wait for the answers of these nodes before the others are asked.
func (c *Client) hedgeAfter(nodes nodeSet) (longest time.Duration) {
	for _, n := range c.nodes {
		if nodes.has(n.index) {
			longest = max(longest, time.Duration(n.late.Load()))
		}
	}
	return longest
}

// gather takes so many answers as they come, for no longer than the patience. The error says that ctx or the client
// ended first.
func gather[T any](ctx context.Context, c *Client, patience time.Duration, count int, answers <-chan T, take func(T)) error {
	timer := c.timers.start(patience)
	defer c.timers.stop(timer)
	for count > 0 {
		select {
		case a := <-answers:
			take(a)
			count--
		case due := <-timer.C:
			if timer.isOver(due) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ending:
			return ErrClosed
		}
	}
	return nil
}
