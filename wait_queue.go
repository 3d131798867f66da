package redlock

// How a waiter enters the queues that the nodes keep, and leaves them (W2).

// present lets the next attempt enter this client among those who wait, on the node that is asked first: as one
// that hears of its turn, or as one that polls. It is not entered while a subscription is only just being made,
// nor where it could not use its turn.
func (w *waiting) present(c *Client, n *node) {
	w.how.claim, w.how.enter, w.polls = c.watch.me, 0, false
	if n == nil || w.cut {
		return
	}
	at := nodeSet(1) << n.index
	if c.watch.hearing(at) == 0 {
		if !w.isDeafTo(c, n) {
			return
		}
		w.polls = true
	}
	w.how.enter = at
	switch {
	case w.polls:
		w.how.entry = -max(w.arrival, 1)
	case w.arrival != 0:
		w.how.entry = w.arrival
	default:
		w.how.entry = yes
	}
}

// isDeafTo reports whether that node's messages are not to be expected: it refused, or time enough has passed.
func (w *waiting) isDeafTo(c *Client, n *node) bool {
	return c.watch.subscribers[n.index].isDeaf() || c.cfg.Clock.Now().Sub(w.since) >= c.cfg.NodeTimeout
}

// post is one of these nodes at which this client can be entered, because it hears the node or is known not to: the
// one that others would choose, if they can choose among them. It is nil if there is none.
func (w *waiting) post(c *Client, at nodeSet) *node {
	if w.cut {
		return nil
	}
	hears := c.watch.hearing(at)
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
func (w *waiting) end(c *Client) {
	if w.ear == nil && w.entered|w.loose|w.kept|w.how.enter == 0 { // as nearly always: it never waited
		return
	}
	var unused heard
	if w.ear != nil {
		unused = c.watch.forget(w.ear)
	}
	nodes := w.entered | unused.kept
	switch {
	case w.won != nil:
		nodes = w.unused(nodes, unused.kept)
	case unused.local:
		nodes = c.allNodes()
	default:
		nodes |= w.how.enter | w.loose | w.kept
	}
	if w.res != nil {
		c.watch.leave(w.res.keys, nodes, nil)
	}
}

// unused is what there is to be undone of this by the winner of a lock: at the nodes that granted it, nothing. One
// that was outvoted may keep a key for this client, or have it in its queue, and its waiters would sleep until then:
// a release there finds nothing that is its own, and tells nobody.
func (w *waiting) unused(entered, kept nodeSet) nodeSet {
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
	taken := w.kept
	if len(w.res.keys) == 1 {
		taken &= denying // where the answer is on its way, that attempt takes over what is kept
	}
	// Where the answer is on its way, it is mostly that this client was taken out. If not, its turn will come, and is
	// passed on then (watch.told).
	return entered&^(w.how.enter&^denying) | (kept|taken|w.loose&denying)&^granting
}

// note keeps what the round left behind on the nodes.
func (w *waiting) note(answers []answer, t tally, entered nodeSet) {
	for i, a := range answers {
		if entered.has(i) && a.denial != nil && a.denial.reason == held {
			w.entered.add(i)
			if w.arrival == 0 {
				w.arrival = a.micros
			}
		}
	}
	if n := w.how.probe; n != nil && answers[n.index].vote != granted {
		return // the others were not asked
	}
	w.cut = !t.answered()
	for i, a := range answers {
		if a.vote != denied {
			w.loose.add(i) // A5 has released what was granted, and told nobody
		}
	}
}
