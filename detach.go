package redlock

import "context"

// The giving half of a hand-over (D1 to D3). adopt.go has the other half.

// A handover is a Detach that has ended its lease. err is set before done is closed.
type handover struct {
	done chan struct{}
	err  error // why there is no ticket

	// Guarded by the ownership's mu: whether it was decided if there is a ticket, and the nodes that count for it.
	decided bool
	counted nodeSet
}

// Detach ends the lease as [Lease.Release] does, and keeps the lock for whoever adopts the ticket: another process, or
// this one. It is for work that goes on elsewhere and must not be without its lock in between: nobody else gets the
// lock before the ticket expires ([Ticket.Expires]). If nobody adopts it, the lock is free after that.
//
// First it renews the lease. If that fails, the error is that of [Lease.Extend], and the lease is what it was before.
// Then the lease ends: its context ends with [ErrReleased], and Valid is false. So the work must stop before Detach is
// called. Then the nodes swap the owner token for that of the ticket. If there is no quorum by then, or by the end of ctx,
// there is no ticket, and the lock is released; the error is [ErrNoQuorum], [ErrLost], [ErrClosed] or ctx.Err(). The renewal
// and the swap wait for nodes that are up, each no longer than NodeTimeout. If ctx ends before the swap, the lease is what it
// was before.
//
// ErrInvalid means that the lock cannot be handed over: several share it ([Client.Semaphore], [RWMutex.Reader]),
// other leases of a re-entered lock still hold it, or its minimum hold ([Lock.WithMinHold]) is not over. The lease is
// then what it was before. After Detach, Release does nothing: it returns nil if there is a ticket, and otherwise
// Detach's error. [Hooks.Released] is called with that too.
func (l *Lease) Detach(ctx context.Context) (Ticket, error) {
	o := l.ownership
	c := o.client
	given := ctx
	ctx, stop := o.bounding(ctx)
	defer stop()
	if o.lock.res.isShared() {
		return Ticket{}, invalid("Detach", "several share the lock; only a lock that one lease has can be handed over")
	}
	if o.rest(c.cfg.Clock.Now()) > 0 {
		return Ticket{}, invalid("Detach", "the lock has a minimum hold that is not over")
	}
	if !c.begin() { // Close waits for the swap, and for what is sent if it fails
		return Ticket{}, l.endedOr(ErrClosed)
	}
	defer c.finish()

	// D1: a quorum has the keys for the full TTL, and so do nodes that never had them. While the lease is still valid,
	// a failure costs nothing.
	extended, err := l.extend(given)
	if err != nil {
		return Ticket{}, err
	}
	if err := o.awaitReliable(ctx, extended); err != nil {
		return Ticket{}, l.endedOr(err)
	}

	// D2: the holder stops believing. From here on, nothing is sent for the old owner token but the swap, and releases
	// behind it.
	t := l.trace(given, "detach")
	var token any = c.waiters.ownerToken(o.lock.owner)
	was := o.infoFor(c.cfg.Hooks.Released)
	r, err := l.leaveTo(token, extended)
	if err != nil {
		t.end(err)
		return Ticket{}, err
	}

	// D3: the nodes swap token for token. The ticket's token is new: nothing that is still on its way can bring it back
	// to a node that has given it to somebody.
	h := o.handed
	c.send(r, r.only, 0)
	err = r.until(ctx, &c.timers, c.ending, r.t0.Add(c.cfg.NodeTimeout).Sub(c.cfg.Clock.Now()), o.swapSettled)
	o.mu.Lock()
	h.decided = true
	if swapped := r.grantedBy(); (swapped & o.provenAt()).len() >= c.need {
		h.counted, err = swapped&^o.suspects(extended), nil // a late answer may have taken a proof away since
	}
	o.mu.Unlock()
	_, votes := r.snapshot()
	switch {
	case err != nil || h.counted != 0:
	case votes.refused(o.onceHad()):
		err = r.error(ErrLost, o.lock.res.names, c.nodes, "")
	case votes.granted >= votes.need:
		err = r.error(ErrNoQuorum, o.lock.res.names, c.nodes, "a node that may have forgotten locks does not count")
	default:
		err = r.error(ErrNoQuorum, o.lock.res.names, c.nodes, "")
	}
	if err == nil { // what other nodes have, for the old token or a part of the names, is of no use
		c.releaseAt(o.lock.res.keys, o.tokenArg, (r.only|r.distrusted)&^h.counted, 0)
		c.releaseAt(o.lock.res.keys, token, r.only&^h.counted, 0)
	} else { // some nodes may have swapped, and others not
		c.releaseAt(o.lock.res.keys, o.tokenArg, r.only|r.distrusted, c.reservation())
		c.releaseAt(o.lock.res.keys, token, r.only, c.reservation())
	}
	h.err = err
	close(h.done)
	o.tellOf(was, c.cfg.Hooks.Released, err)
	t.end(err)
	if err != nil {
		return Ticket{}, err
	}
	took := c.cfg.Clock.Now().Sub(r.t0)
	secret := token.(string)
	return Ticket{names: o.lock.res.names, secret: &secret, ttl: o.lock.ttl,
		left: max(0, o.lock.ttl-took-driftOf(o.lock.ttl, c.cfg.Drift))}, nil
}

// awaitReliable waits until the answers to the renewal say of the nodes without a proof whether they may have the ticket (D3),
// and until one may rely on all that are proven (C2).
func (o *ownership) awaitReliable(ctx context.Context, extended *round) error {
	c := o.client
	heard := func(t *tally) bool { return t.votedBy(pending)&^o.provenAt() == 0 }
	if err := extended.until(ctx, &c.timers, c.ending, o.timeUp(extended).Sub(c.cfg.Clock.Now()), heard); err != nil {
		return err
	}
	o.mu.Lock()
	from := o.reliesFrom
	o.mu.Unlock()
	if wait := from.Sub(c.cfg.Clock.Now()); wait > 0 {
		c.pause(ctx, wait)
		return ctx.Err()
	}
	return nil
}

// swapSettled reports whether every node has answered, or no quorum can swap any more. A quorum is not enough: the ticket
// could be used before another node swaps, and what that one then has for the ticket would only keep others out. As in a
// renewal, only nodes count that were vouched for since they have the keys (R1).
func (o *ownership) swapSettled(t *tally) bool {
	proven, possible := o.provenAt(), 0
	for node, v := range t.votes {
		if proven.has(node) && (v == granted || v == pending) {
			possible++
		}
	}
	return t.open() == 0 || possible < t.need
}

// leaveTo ends the lease, if it is the last one of its ownership, and makes the round that swaps its owner token for
// this one. That round takes the place of the release: nothing else releases the keys.
//
// A node that does not count for the giver must not count for the taker: another client may rely on it (C2). So it never
// gets the ticket's token. A release of that would come too late: the taker may be faster, and the node out of reach.
func (l *Lease) leaveTo(token any, extended *round) (*round, error) {
	o := l.ownership
	o.checkExpiry()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released.Load() {
		return nil, ErrReleased
	}
	o.mu.Lock()
	if err := o.ended; err != nil {
		o.mu.Unlock()
		return nil, err
	}
	if o.leases > 1 {
		o.mu.Unlock()
		return nil, invalid("Detach", "other leases of this re-entered lock still hold it; release them first")
	}
	c := o.client
	// The minimum hold is over, and does not begin again with the ticket.
	swap := c.protocol.swapCall(c.protocol.swap, o.lock.res.keys, o.tokenArg, token, o.keyMillis(c.cfg.Clock.Now()))
	h := &handover{done: make(chan struct{})}
	o.lapseAt(c.allNodes()) // also where D1 has no answer
	distrusted := o.reached & o.suspects(extended)
	r := c.newRound(plan{call: swap, only: o.reached &^ distrusted, distrusted: distrusted,
		answered: func(r *round, node int, a answer, _ verdict, _ bool) {
			o.mu.Lock()
			late := h.decided && !h.counted.has(node)
			o.mu.Unlock()
			if a.vote == granted && late || a.vote == unknown {
				// The network held it up, or may still: what was sent on a connection that broke can arrive at any
				// time. The ticket may have been used by then, and nobody would release what this wrote.
				c.releaseAt(o.lock.res.keys, token, 1<<node, 0)
			}
		}})
	o.leases, o.release, o.handed = 0, r, h
	l.last = true
	l.released.Store(true)
	l.cleanup.Stop()
	if c.protocol.omits(giverStops) {
		l.released.Store(false)
		o.mu.Unlock()
		return r, nil
	}
	o.endLocked(ErrReleased)
	c.scheduler.drop(o)
	return r, nil
}

// handedOver waits for the end of a Detach, and returns its error. ok is false if there was none.
func (o *ownership) handedOver(ctx context.Context) (ok bool, err error) {
	o.mu.Lock()
	h := o.handed
	o.mu.Unlock()
	if h == nil {
		return false, nil
	}
	select {
	case <-h.done:
		return true, h.err
	default:
	}
	select {
	case <-h.done:
		return true, h.err
	case <-ctx.Done():
		return true, ctx.Err()
	}
}
