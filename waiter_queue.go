package redlock

import "cmp"

// How a waiter enters the queues on the nodes, and leaves them (W2).

// queueUp has the next attempt enter this client in the queue of the node that is asked first. If all are asked at once,
// that is the node in whose queue it is to stay, or the one that would be asked first. The node does so if it refuses the
// attempt: as a waiter that gets messages, or as one that polls. The attempt does not enter the queue while the
// subscription to that node is still being made, because a release skips a waiter that does not listen. Nor does it while
// fewer nodes than a quorum answer, because it could not use its turn.
func (w *waiter) queueUp() {
	c := w.client
	w.how.reservation, w.how.queueAt, w.polls = c.waiters.idFor(w.res.isShared()), 0, false
	w.how.queueEntry = max(w.arrival, queueNow) // also to nodes that do not queue it (S2)
	n := cmp.Or(w.how.probe, w.stays)
	if n == nil {
		n = c.probeFor(w.res)
	}
	if n == nil || w.cutOff {
		return
	}
	at := nodeSet(1) << n.index
	hears := c.waiters.subscribedTo(at) != 0
	if !hears && !w.isDeafTo(n) {
		return
	}
	w.how.queueAt, w.polls = at, !hears
	if w.polls {
		w.how.queueEntry = -w.how.queueEntry
	}
}

// canQueueAt reports whether this client can enter that node's queue: it has subscribed there, or expects no messages.
func (w *waiter) canQueueAt(n *node) bool {
	return w.client.waiters.subscribedTo(1<<n.index) != 0 || w.isDeafTo(n)
}

// isDeafTo reports whether to expect no messages from that node: it refused the subscription, or has had a NodeTimeout
// to confirm it.
func (w *waiter) isDeafTo(n *node) bool {
	c := w.client
	return c.waiters.subscribers[n.index].isDeaf() || c.cfg.Clock.Now().Sub(w.since) >= c.cfg.NodeTimeout
}

// queueNode is one of these nodes whose queue this client can enter: the one that others would choose too, if
// probeAmong can tell. It is nil if there is none.
func (w *waiter) queueNode(among nodeSet) *node {
	if among == 0 || w.cutOff {
		return nil
	}
	for _, n := range w.client.nodes {
		if among.has(n.index) && !w.canQueueAt(n) {
			among &^= 1 << n.index
		}
	}
	if n := w.client.probeAmong(w.res, among); n != nil {
		return n
	}
	if i, ok := among.first(); ok {
		return w.client.nodes[i]
	}
	return nil
}

// end leaves the queues when Acquire returns. A key that is reserved for this waiter, or that is free because others
// relied on this waiter, goes to the next waiter.
func (w *waiter) end() {
	if w.inbox == nil && w.queuedAt|w.unannounced|w.turn.reserved|w.how.queueAt == 0 { // it never waited: the usual case
		return
	}
	var unused hints
	if w.inbox != nil {
		unused = w.client.waiters.remove(w.inbox)
	}
	nodes := w.queuedAt | unused.reserved
	told := unused.reserved | w.unannounced | w.turn.reserved
	if unused.localRelease {
		told = w.client.allNodes()
	}
	switch {
	case w.won != nil:
		nodes = w.leftovers(nodes, unused)
	case unused.localRelease, // no other waiter got a message of that release, on any node
		w.metReaders: // a node that has not answered yet may have its intent too (S2)
		nodes = w.client.allNodes()
	default:
		nodes |= w.how.queueAt | w.unannounced | w.turn.reserved
	}
	w.client.waiters.leave(w.res, nodes, told, nil)
	// Also if it has won nothing: some nodes may have granted an attempt that was lost, or that is still being made. Otherwise
	// nobody was taken out of a queue, and to ask again would cost readers dear, of whom many may wait and give up.
	if w.res.isShared() && (w.won != nil || w.asks || w.unqueued) {
		w.client.waiters.queueAgain(w.res)
	}
}

// leftovers returns the nodes whose queues the winner of a lock still has to leave. A node that granted took the client
// out of its queue if the attempt asked to be queued there, and the attempt used up its reservation. A node that was
// outvoted may still have a reservation for this client, or have it in its queue. The waiters behind it would sleep on:
// the lock's release finds nothing of its own on that node, so it sends them no message.
//
// queued is where the client may be in a queue. unused is what came that no attempt has used. If that is a release of this
// process, it was sent after the acquire that won, so its key may have refused that acquire and then have gone, without a
// message to anybody (W1). What is sent now follows both on the same connections.
func (w *waiter) leftovers(queued nodeSet, unused hints) nodeSet {
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
	taken := w.turn.reserved
	if len(w.res.keys) == 1 {
		taken &= denying // where no answer has come yet, the attempt takes the reserved key when it arrives
	}
	mayBeFree := unused.reserved | taken | w.unannounced&denying
	if unused.localRelease {
		mayBeFree = w.client.allNodes()
	}
	// A node of queueAt that has not answered yet will mostly grant, which takes the client out of the queue. If it
	// does not, a reservation comes later, and waiters.received passes it on then.
	return queued&^(w.how.queueAt&^denying) | mayBeFree&^granting
}

// recordQueues notes what the round left behind on the nodes: where this client is queued, and where keys may be free.
func (w *waiter) recordQueues(r *refusedRound) {
	for i, a := range r.answers {
		if a.denial != nil && a.denial.owner == ownedByReaders {
			w.queuedAt.add(i) // there is a writer's intent too (S2)
			w.metReaders = !w.res.isShared()
		}
		if r.entered.has(i) && a.denial != nil && (a.denial.reason == held || a.denial.reason == slotTaken) {
			w.queuedAt.add(i)
			if w.arrival == 0 {
				w.arrival = a.micros
			}
		}
	}
	if r.askedOne() {
		return
	}
	w.cutOff, w.askedAll = !r.votes.answered(), r.t0
	for i, a := range r.answers {
		if (a.vote != denied || r.showed.has(i)) && r.sentTo.has(i) {
			w.unannounced.add(i) // the release of A5 leaves the key free where no other waiter is queued
			w.unqueued = true
		}
	}
}

// passOnUnused passes on the reservations that the round did not use.
func (w *waiter) passOnUnused(r *refusedRound) {
	waiters, keys, reserved := &w.client.waiters, w.res.keys, w.turn.reserved
	if w.turn != (hints{}) {
		waiters.tried(w.inbox)
	}
	switch {
	case r.askedOne():
		// The other nodes were not asked, so their reservations are unused.
		waiters.leave(w.res, reserved&^r.entered, reserved, w.inbox)
		if len(keys) > 1 { // the node asked may have reserved one key for us, and refused us another
			waiters.passOn(keys, reserved&r.entered, w.inbox)
		}
	case len(keys) > 1: // another of the keys is held, so the next waiter may have the reserved one
		waiters.passOn(keys, reserved, w.inbox)
	}
}
