package redlock

import (
	"context"
	"time"
)

// The taking half of a hand-over (D4, D5). detach.go has the other half.

// Adopt takes over the lock of a ticket. The lease has the names, the TTL and the label of the one that was detached, a
// new owner token and a larger fencing token. It renews itself, with no end: [Lock.WithMaxHold] and [Lock.WithoutRenewal]
// of the lease that was detached concern that one alone. It is valid from this client's own round on, by the
// same rules as one from [Lock.Acquire], whatever happened to the ticket on its way. The client needs the same
// configuration as the one that detached it, as all clients of the nodes do.
//
// Of all that adopt a ticket, at the same moment or one after the other, at most one gets the lock. The error is
//   - [ErrTicketUsed] if another has the lock;
//   - [ErrTicketExpired] if too few nodes still have it for the ticket;
//   - [ErrHeld], and neither of these two, if others have some of the nodes, or adopt it at this moment with larger
//     fencing tokens, and nobody has a quorum;
//   - [ErrNoQuorum] if none of this is known, because nodes are away or slow;
//   - [ErrInvalid] for the zero Ticket, or if the client is configured otherwise than that which detached it, or has another
//     group of a [Sharded]; [ErrClosed], and ctx.Err().
//
// Except after the first two, the ticket is as good as before, and can be adopted again, by this client or another.
//
// The first four come in a [*RoundError]. Adopt mostly takes one round. It does not wait for whoever has the lock, but
// before it says [ErrTicketUsed] it asks again after NodeTimeout, because another that adopts it may still fail. If ctx
// ends sooner, the error is ctx.Err(). If several adopt at the same moment it makes further rounds, within another
// NodeTimeout or some dozens of round trips. The first use of a client may wait until its nodes have connected and have
// said whether they may grant. [Hooks.Acquired] is called for its lease.
func (c *Client) Adopt(ctx context.Context, t Ticket) (lease *Lease, err error) {
	if len(t.names) == 0 {
		return nil, invalid("Ticket", "it is the zero Ticket; get one from Lease.Detach")
	}
	s := c.Mutex(t.names[0], t.names[1:]...).WithTTL(t.ttl).WithOwner(t.label()).spec
	switch {
	case s.err != nil:
		return nil, s.err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.finish()
	traced := c.traceAcquire(ctx, "adopt", s)
	defer func() { traced.acquired(lease, err) }()
	begun, settled, looked := c.cfg.Clock.Now(), false, false
	loaded := nodeSet(0)     // these had forgotten the script, and it has asked again
	lead := time.Duration(0) // as in approach
	for rounds := 1; ; rounds++ {
		settled = settled || c.hasTried()
		lease, r, err := c.adopt(ctx, s, &t, lead)
		switch {
		case lease != nil:
			c.acquired(lease, begun, rounds)
			return lease, nil
		case err != nil:
			return nil, err
		}
		lead = c.leadAfter(lead, r)
		if c.learn(r) && rounds < maxBallots {
			continue
		}
		next, kind := t.judge(r)
		switch {
		case next == askAgain && !c.triedEnough(rounds, begun):
			// Others adopt it too, or only the ballot was too low. Who pauses for longest leaves it to them. Many of them
			// need pauses of several round trips, however far away the nodes are.
			c.giveWay(ctx, rounds, max(8*c.roundTrip(), c.cfg.NodeTimeout/minTries))
			continue
		case next == isUnknown && !settled:
			settled = true // some node was connecting for the first time: it may complete the quorum
			if err := c.awaitAll(ctx); err != nil {
				return nil, err
			}
			continue
		case next == isUnknown && r.forgetful()&^loaded != 0:
			loaded |= r.forgetful() // the script is loaded again, ahead of the next round
			continue
		case kind == ErrTicketUsed && !looked:
			// Another adopter has a quorum, but its round may be lost all the same, as by answers that are late. Then it has
			// given the keys back by the end of its NodeTimeout (D5).
			looked = true
			if c.pause(ctx, c.cfg.NodeTimeout); ctx.Err() != nil {
				return nil, ctx.Err() // it has not asked again, so it does not know
			}
			continue
		case next == isDead:
			// What is left of it would only block nodes until it expires. Where others have the keys nothing is left, and
			// what one of them gives back only now must stay (D5).
			c.releaseAt(s.res.keys, t.Token(), c.allNodes()&^r.heldBy(), c.reservation())
		}
		return nil, r.error(kind, s.res.names, c.nodes, "")
	}
}

// adopt tries once. If it fails, it leaves the ticket as it was, and the round says why. err is not nil only if ctx or
// the client has ended.
func (c *Client) adopt(ctx context.Context, l *spec, t *Ticket, lead time.Duration) (*Lease, *round, error) {
	if err := c.awaitOpen(ctx); err != nil {
		return nil, nil, err
	}

	// D4: like one attempt to acquire (A1 to A4), but each node grants only what the ticket has.
	t0, blocked, err := c.enterGroup(ctx, c.protocol.adopt, l.res.names)
	if blocked != nil || err != nil {
		return nil, blocked, err
	}
	var token any = c.waiters.ownerToken(l.owner)
	ballot, known := c.propose(t0.Add(lead))
	if !known {
		return nil, c.unreached(c.protocol.adopt, t0), nil
	}
	r := newRound(plan{call: c.protocol.adoptCall(l.res, t.Token(), token, l.millis, ballot), t0: t0, ballot: ballot, ending: c.ending},
		len(c.nodes), c.need, toleranceOf(c.cfg.band(l.ttl)))
	r.askMore(c.allNodes())
	reached := c.send(r, c.allNodes(), 0)
	verdict := r.await(ctx, &c.timers, c.cfg.nodeTimeout(l.ttl))
	now, validity := c.settle(ctx, l, r, verdict)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case c.isClosed():
		err = ErrClosed
	case verdict == won && validity > c.cfg.MinValidity:
		o := newOwnership(ctx, l, token, ballot, reached, r, now, now.Add(validity))
		o.ticket = t.Token()
		if lease, begun := startLease(ctx, o); begun { // even if Close ends it now: then the ticket has been used
			// Where the ticket still has the keys, as on a node in quarantine, they would only keep this lease out.
			c.releaseAt(l.res.keys, t.Token(), c.allNodes()&^r.grantedBy(), 0)
			return lease, r, nil
		}
		err = ErrClosed
	}

	// D5: every node that granted or may still grant gives the keys back to the ticket, also if ctx has ended. Only
	// this attempt has the token, so this takes them from nobody else.
	if back := reached &^ r.deniedBy(); back != 0 && !c.protocol.omits(adopterGivesBack) {
		undo := c.newRound(plan{call: c.protocol.swapCall(c.protocol.undo, l.res.keys, token, t.Token(), int64(0))})
		c.send(undo, back, back)
	}
	if err == nil { // what the other nodes say tells a dead ticket from an outage
		err = c.awaitVotes(ctx, r, r.t0.Add(c.cfg.NodeTimeout), func(t *tally) bool { return t.open() == 0 })
	}
	return nil, r, err
}

// What follows a lost round of Adopt.
type afterLoss uint8

const (
	isUnknown afterLoss = iota // the caller may try again
	askAgain                   // at once
	isDead                     // the ticket is of no use any more
)

// judge says what follows a lost round, and which error it is if that is the end.
//
// A key that is gone does not come back to the ticket, because nobody makes its token again. A key that another owner
// has may come back, if that is somebody who adopts it too and then fails (D5). One that several share does not: nobody adopts
// a ticket as a reader, or as a holder of permits.
func (t *Ticket) judge(r *round) (afterLoss, error) {
	answers, votes := r.snapshot()
	gone, readers, permits, others, stales := 0, 0, 0, 0, 0
	for _, a := range answers {
		switch {
		case a.denial == nil:
		case a.denial.reason == missing:
			gone++
		case a.denial.reason == stale:
			stales++
		case a.denial.owner == ownedByReaders:
			readers++
		case a.denial.owner == ownedByPermits:
			permits++
		default:
			others++
		}
	}
	nodes := len(answers)
	counted, _ := votes.counted()
	switch {
	case max(readers, permits) >= votes.need, holderOf(answers, &votes) != "":
		return isDead, ErrTicketUsed
	case nodes-gone-readers-permits < votes.need:
		return isDead, ErrTicketExpired
	case nodes-gone-readers-permits-others < votes.need,
		others+stales > 0 && counted.len()+others+stales >= votes.need: // it would be won without them
		return askAgain, ErrHeld
	case stales > 0 && votes.answered():
		return askAgain, ErrNoQuorum
	default:
		return isUnknown, ErrNoQuorum
	}
}
