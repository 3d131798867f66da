package redlock

// How a waiter enters the queues on the nodes, and leaves them (W2).

// queueUp has the next attempt enter this client in the queue of n, if n refuses it: as a waiter that gets messages, or
// as one that polls. It does not enter the queue while the subscription to n is still being made, because a release
// skips a waiter that does not listen. Nor does it while fewer nodes than a quorum answer, because it could not use
// its turn.
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

// isDeafTo reports whether to expect no messages from that node: it refused the subscription, or has had a NodeTimeout
// to confirm it.
func (w *waiter) isDeafTo(c *Client, n *node) bool {
	return c.waiters.subscribers[n.index].isDeaf() || c.cfg.Clock.Now().Sub(w.since) >= c.cfg.NodeTimeout
}

// queueNode is one of these nodes whose queue this client can enter: it has subscribed there, or is known to get no
// messages. It is the node that others would choose too, if probeAmong can tell. It is nil if there is none.
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

// end leaves the queues when Acquire returns. A key that is reserved for this waiter, or that is free because others
// relied on this waiter, goes to the next waiter.
func (w *waiter) end(c *Client) {
	if w.inbox == nil && w.queuedAt|w.unannounced|w.reserved|w.how.queueAt == 0 { // it never waited: the usual case
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
	case unused.localRelease: // no other waiter got a message of that release, on any node
		nodes = c.allNodes()
	default:
		nodes |= w.how.queueAt | w.unannounced | w.reserved
	}
	if w.res != nil {
		c.waiters.leave(w.res.keys, nodes, nil)
	}
}

// leftovers returns the nodes whose queues the winner of a lock still has to leave. A node that granted took the client
// out of its queue if the attempt asked to be queued there, and the attempt used up its reservation. A node that was
// outvoted may still have a reservation for this client, or have it in its queue. The waiters behind it would sleep on:
// the lock's release finds nothing of its own on that node, so it sends them no message.
//
// queued is where the client may be in a queue. reserved is where a reservation came that no attempt has used.
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
		taken &= denying // where no answer has come yet, the attempt takes the reserved key when it arrives
	}
	// A node of queueAt that has not answered yet will mostly grant, which takes the client out of the queue. If it
	// does not, a reservation comes later, and waiters.received passes it on then.
	return queued&^(w.how.queueAt&^denying) | (reserved|taken|w.unannounced&denying)&^granting
}

// recordQueues notes what the round left behind on the nodes: where this client is queued, and where keys may be free.
func (w *waiter) recordQueues(answers []answer, t tally, asked, entered nodeSet) {
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
		if a.vote != denied && asked.has(i) {
			w.unannounced.add(i) // the release of A5 leaves the key free where no other waiter is queued
		}
	}
}
