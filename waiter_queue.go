package redlock

// How a waiter enters the queues that the nodes keep, and leaves them (W2).

// queueUp lets the next attempt enter this client among those who wait, on the node that is asked first: as one
// that hears of its turn, or as one that polls. It is not entered while a subscription is only just being made,
// nor where it could not use its turn.
func (w *waiter) queueUp(c *Client, n *node) {
	w.how.reservation, w.how.queueAt, w.polls = c.waiters.me, 0, false
	if n == nil || w.cutOff {
		return
	}
	at := nodeSet(1) << n.index
	if c.waiters.subscribedTo(at) == 0 {
		if !w.isDeafTo(c, n) {
			return
		}
		w.polls = true
	}
	w.how.queueAt = at
	switch {
	case w.polls:
		w.how.queueEntry = -max(w.arrival, 1)
	case w.arrival != 0:
		w.how.queueEntry = w.arrival
	default:
		w.how.queueEntry = queueNow
	}
}

// isDeafTo reports whether that node's messages are not to be expected: it refused, or time enough has passed.
func (w *waiter) isDeafTo(c *Client, n *node) bool {
	return c.waiters.subscribers[n.index].isDeaf() || c.cfg.Clock.Now().Sub(w.since) >= c.cfg.NodeTimeout
}

// queueNode is one of these nodes at which this client can be entered, because it hears the node or is known not to: the
// one that others would choose, if they can choose among them. It is nil if there is none.
func (w *waiter) queueNode(c *Client, at nodeSet) *node {
	if w.cutOff {
		return nil
	}
	hears := c.waiters.subscribedTo(at)
	for _, n := range c.nodes {
		if !hears.has(n.index) && !w.isDeafTo(c, n) {
			at &^= 1 << n.index
		}
	}
	if n := c.probeAmong(w.res, at); n != nil {
		return n
	}
	if i, ok := at.first(); ok {
		return c.nodes[i]
	}
	return nil
}

// end leaves the queues. A key that is free because this waiter would have taken it, or that is kept for it, goes
// to the next who waits.
func (w *waiter) end(c *Client) {
	if w.inbox == nil && w.queuedAt|w.unannounced|w.reserved|w.how.queueAt == 0 { // as nearly always: it never waited
		return
	}
	var unused hints
	if w.inbox != nil {
		unused = c.waiters.remove(w.inbox)
	}
	nodes := w.queuedAt | unused.reserved
	switch {
	case w.won != nil:
		nodes = w.leftovers(nodes, unused.reserved)
	case unused.localRelease:
		nodes = c.allNodes()
	default:
		nodes |= w.how.queueAt | w.unannounced | w.reserved
	}
	if w.res != nil {
		c.waiters.leave(w.res.keys, nodes, nil)
	}
}

// leftovers is what there is to be undone of this by the winner of a lock: at the nodes that granted it, nothing. One
// that was outvoted may keep a key for this client, or have it in its queue, and its waiters would sleep until then:
// a release there finds nothing that is its own, and tells nobody.
func (w *waiter) leftovers(queued, reserved nodeSet) nodeSet {
	answers, _ := w.won.snapshot()
	var granting, denying nodeSet
	for i, a := range answers {
		switch a.vote {
		case granted:
			granting.add(i)
		case denied:
			denying.add(i)
		}
	}
	taken := w.reserved
	if len(w.res.keys) == 1 {
		taken &= denying // where the answer is on its way, that attempt takes over what is kept
	}
	// Where the answer is on its way, it is mostly that this client was taken out. If not, its turn will come, and is
	// passed on then (watch.told).
	return queued&^(w.how.queueAt&^denying) | (reserved|taken|w.unannounced&denying)&^granting
}

// recordQueues keeps what the round left behind on the nodes.
func (w *waiter) recordQueues(answers []answer, t tally, entered nodeSet) {
	for i, a := range answers {
		if entered.has(i) && a.denial != nil && a.denial.reason == held {
			w.queuedAt.add(i)
			if w.arrival == 0 {
				w.arrival = a.micros
			}
		}
	}
	if n := w.how.probe; n != nil && answers[n.index].vote != granted {
		return // the others were not asked
	}
	w.cutOff = !t.answered()
	for i, a := range answers {
		if a.vote != denied {
			w.unannounced.add(i) // A5 has released what was granted, and told nobody
		}
	}
}
