package redlock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
)

// This file has one attempt to acquire a lock: attempt goes through the steps A1 to A5 of docs/protocol.md in order. It
// also makes the rounds that the other steps send. What these steps decide is elsewhere:
//
//	A3, A4, C, L1   what votes mean, and what validity is left        quorum.go
//	R1 to R3        when to renew, plant and give up                  renew.go
//	R3, L1          how a lease ends, and when its release is sent    ownership.go
//	L1              what Release waits for and returns                lease.go
//	W, T, O         what to do after a lost attempt                   waiter.go, try.go, fair_waiter.go

// An approach is how an attempt asks the nodes. The zero approach asks a bare quorum, and the others if need be.
type approach struct {
	probe       *node   // ask this node first, and the others only if it granted (W3); nil: none
	all         bool    // ask all nodes at once, by acquire.lua
	queueAt     nodeSet // the nodes that enter the client in their queue if they refuse (W2)
	queueEntry  int64   // how they enter it; see acquire.lua
	include     nodeSet // ask these nodes with the first, because they reserved a key for this client
	reservation any     // the value of a key that is reserved for this client; "": it was never refused
	try         bool    // for TryAcquire: it yields to a reservation for another client (T3)
	slots       []int   // which permits of a semaphore to ask for; nil: by chance
	fair        *place  // in the queue of a fair lock (O1); nil: the lock is not fair

	lead time.Duration // how far the ballot is ahead of the servers' clocks (F1)
}

// attempt tries once to acquire the lock. If it fails, it leaves nothing behind, and the round says why. err is not nil
// only if ctx or the client has ended.
func (c *Client) attempt(ctx context.Context, l *spec, how approach) (lease *Lease, r *round, err error) {
	if err := c.awaitOpen(ctx); err != nil {
		return nil, nil, err
	}
	if unasked, err := c.enterAdmission(ctx); err != nil {
		return nil, unasked, err
	}

	// A1: the moment from which a lease counts. With several groups, it is one at which all of them were known (Q3).
	t0, blocked, err := c.enterGroup(ctx, c.protocol.acquire, l.res.names)
	if blocked != nil || err != nil {
		c.admission.quit()
		return nil, blocked, err
	}
	// A token that was never used before, so that nothing that was sent for an older attempt and arrives late can
	// touch this one (etcd#22082); and a ballot.
	token := c.waiters.ownerToken(l.owner)
	if c.protocol.omits(freshToken) {
		token = c.oldToken
	}
	if how.slots == nil {
		how.slots = l.res.share.anySlots(c.protocol.random)
	}
	var tokenArg any = l.res.share.entry(token, how.slots)
	sent := func() {}
	if l.res.isShared() { // F1: who comes in with others must not be outbid by those of this process that began after it
		c.outbidding.Lock()
		sent = c.outbidding.Unlock
	}
	ballot, known := c.propose(t0.Add(how.lead))
	if !known {
		sent()
		c.admission.quit()
		return nil, c.unreached(c.protocol.acquire, t0), nil
	}

	// A2, A3: to a bare quorum (W3: to one node first), each on its one ordered connection. The verdict does not wait
	// for slow nodes.
	r = newRound(plan{
		call:    how.acquireCall(c.protocol, l, tokenArg, ballot),
		t0:      t0,
		queueAt: how.queueAt, queueEntry: how.queueEntry,
		full:   how.all,
		ending: c.ending,
		ballot: ballot,
		sent:   sent,
		over:   c.over,
	}, len(c.nodes), c.need, toleranceOf(c.cfg.band(l.ttl)))
	timeout := c.cfg.nodeTimeout(l.ttl)
	reached := c.ask(ctx, r, l.res, how, timeout)
	verdict := r.await(ctx, &c.timers, timeout)
	yields := verdict == won && c.yields(ctx, l.res, r, how)

	// A4: If ctx has ended, the lock that was won is released.
	now, validity := c.settle(ctx, l, r, verdict)
	if c.protocol.omits(finalValidity) {
		validity = l.ttl
	}
	r.closed.Store(true)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case c.isClosed():
		err = ErrClosed
	case verdict == won && !yields && validity > c.cfg.MinValidity && l.keepsLongEnough(now.Sub(t0)):
		lease, _ := startLease(ctx, newOwnership(ctx, l, tokenArg, ballot, reached, r, now, now.Add(validity)))
		if !c.isClosed() {
			return lease, r, nil
		}
		// L2: Close may have ended all leases just before this one began. A5 releases it: nobody had it, so its minimum
		// hold does not count.
		lease.ownership.end(ErrClosed)
		err = ErrClosed
	}

	// A5: every node that granted or may still grant gets the release, also if ctx has ended. A node that denied needs
	// none, because it wrote no lock, and the token is not used again. The light form may write a lock and then refuse
	// (light.go): leftNothing leaves that node out.
	unsure := reached &^ r.leftNothing()
	switch {
	case c.protocol.omits(releaseLateGrants):
		unsure, _ = r.counted()
	case c.protocol.omits(cleanUpAfterCancel) && err != nil:
		unsure = 0
	case c.protocol.omits(hedgesReleased) && r.later:
		unsure &= c.quorumFor(l.res, t0, how.include)
	}
	c.releaseAt(l.res.keys, tokenArg, unsure, c.reservation())

	// A3: wait until it is clear why the round is lost. The releases go first, so that waiters do not wait for this.
	if verdict == lost && err == nil && !r.alone() {
		err = c.classify(ctx, r)
	}
	return nil, r, err
}

// settle ends a round that acquires. If it was won, it first waits as long as the clocks of its quorum ask for (C2). It
// returns the validity that is left, from a moment that is read last (A4).
func (c *Client) settle(ctx context.Context, l *spec, r *round, v verdict) (now Instant, validity time.Duration) {
	band := c.cfg.band(l.ttl)
	counted, apart := r.counted()
	r.relied = counted
	if wait := bandWait(band, apart); v == won && wait > 0 {
		c.pause(ctx, wait)
	}
	now = c.cfg.Clock.Now()
	return now, validityOf(l.ttl, now.Sub(r.t0), driftOf(l.ttl, c.cfg.Drift), bandCost(band, apart))
}

// acquireCall is what the attempt sends: acquire.lua, or fair.lua.
func (how *approach) acquireCall(p *protocol, l *spec, token any, ballot uint64) call {
	if how.fair != nil {
		return p.fairCall(l.res, how.fair, token, l.millis, ballot)
	}
	return p.acquireCall(l.res, how.reservation, token, l.millis, ballot)
}

// classify waits until it is clear whether a lost round means held or an outage (A3), for nodes that are up and still
// owe an answer, no longer than NodeTimeout after the last ones were asked. A grant that came late in that time has
// as much again to be vouched for.
func (c *Client) classify(ctx context.Context, r *round) error {
	if c.protocol.omits(lossClassified) {
		return nil
	}
	clear := func(t *tally) bool { return t.loss() != lossUnclear }
	until := r.lastAsked.Add(c.cfg.NodeTimeout)
	if err := c.awaitVotes(ctx, r, until, clear); err != nil {
		return err
	}
	if _, votes := r.snapshot(); !clear(&votes) {
		r.concede(c.allNodes())
	}
	if !r.awaitsVouching() {
		return nil
	}
	return c.awaitVotes(ctx, r, until.Add(c.cfg.NodeTimeout), clear) // Q1: a grant that was late is being vouched for
}

// awaitVotes waits until the votes decide something, or until that moment.
func (c *Client) awaitVotes(ctx context.Context, r *round, until Instant, decided func(*tally) bool) error {
	return r.until(ctx, &c.timers, c.ending, until.Sub(c.cfg.Clock.Now()), decided)
}

// renew makes the round that extends the lease on all nodes (R1). The caller sends it; ownership.extended gets the
// answers.
func (c *Client) renew(o *ownership) *round {
	now := c.cfg.Clock.Now()
	ttl, takeAt := o.keyMillis(now), c.allNodes()&^o.hadKeys()
	extend := plan{call: c.protocol.extendCall(o.lock.res, o.tokenArg, ttl, o.ballot), t0: now,
		takeAt: takeAt, given: o.gives(takeAt, ttl), proven: o.provenAt(), plants: o.plants,
		renewed: o, granting: o.hasKeys, answered: o.extended}
	return newRound(extend, len(c.nodes), c.need, toleranceOf(c.cfg.band(o.lock.ttl)))
}

// plant puts the keys and the fencing token back on these nodes, which lack them (R2), and returns those that were
// reached. It may be called only after a quorum extended, and while the lease is valid and not released.
func (c *Client) plant(o *ownership, lacking nodeSet) (reached nodeSet) {
	now := c.cfg.Clock.Now()
	ttl := o.keyMillis(now)
	o.gives(lacking, ttl)
	r := c.newRound(plan{call: c.protocol.plantCall(o.lock.res, o.tokenArg, ttl, o.ballot), t0: now, answered: o.plantAnswered})
	reached, _ = c.enqueue(r, lacking, 0)
	return reached
}

// rest waits for d. It returns an error if ctx or the client has ended.
func (c *Client) rest(ctx context.Context, d time.Duration) error {
	if d > 0 {
		c.pause(ctx, d)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.isClosed():
		return ErrClosed
	}
	return nil
}

// pause waits for d, or until ctx or the client ends.
func (c *Client) pause(ctx context.Context, d time.Duration) {
	timer := c.timers.start(d)
	defer c.timers.stop(timer)
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.ending:
	}
}

// ask sends the round (A2) and waits while the nodes that it asked so far may decide it:
//
//   - the probe alone, if there is one (W3). The others are asked only if it granted. A try asks them also if the probe
//     is late or away, because it does not ask again later;
//   - a bare quorum, the same for all clients of the lock (quorumFor);
//   - the others, if any of these is away or late, or if their votes are split.
//
// ask returns the nodes that were reached. The round's time, which is timeout, begins when the last ones were asked.
func (c *Client) ask(ctx context.Context, r *round, res *resource, how approach, timeout time.Duration) (reached nodeSet) {
	now, all := r.t0, c.allNodes()
	if probe := how.probe; probe != nil {
		first, patience := nodeSet(1)<<probe.index, timeout
		if how.try {
			patience = c.patience(probe)
		}
		reached = c.askFirst(ctx, r, first, patience)
		switch v := r.voteOf(probe.index); {
		case v == granted:
		case v == pending && hasEnded(ctx): // its time may not be over: see failureFromNodes
			return reached
		case how.try && (v == pending || v == unknown) && ctx.Err() == nil && !c.isClosed():
		default:
			r.expire(errNotAsked)
			return reached
		}
		now = c.cfg.Clock.Now()
	}
	if !how.all {
		if some := c.quorumFor(res, now, how.include) &^ r.askedNodes(); some != 0 {
			r.later = how.probe != nil
			reached |= c.askFirst(ctx, r, some, min(c.hedgeAfter(some), timeout))
			if r.suffices() || hasEnded(ctx) || c.isClosed() {
				return reached
			}
		}
	}
	r.later, r.lastAsked = true, c.cfg.Clock.Now()
	rest := all &^ r.askedNodes()
	r.askMore(rest)
	return reached | c.send(r, rest, 0)
}

// askFirst sends the round to these nodes, and waits until it is decided or they do not suffice, no longer than patience.
func (c *Client) askFirst(ctx context.Context, r *round, nodes nodeSet, patience time.Duration) (reached nodeSet) {
	r.askMore(nodes)
	reached = c.send(r, nodes, 0)
	r.awaitAsked(ctx, &c.timers, patience)
	return reached
}

// releaseAt sends a release only to these nodes (A5). It is owed to them (L3).
func (c *Client) releaseAt(keys []any, tokenArg any, nodes nodeSet, reserve time.Duration) {
	if nodes == 0 {
		return
	}
	r := c.newRound(plan{call: c.protocol.releaseCall(keys, tokenArg, reserve, 0)})
	c.send(r, nodes, nodes)
}

// send sends the round to these nodes and returns those that accepted it. A release is owed to the nodes that may have
// the keys (L3).
func (c *Client) send(r *round, to, owed nodeSet) (reached nodeSet) {
	reached, unsent := c.enqueue(r, to, owed)
	if r.sent != nil {
		r.sent()
		r.sent = nil
	}
	r.recordUnsent(unsent)
	return reached
}

// enqueue is send, but the caller counts the votes of the nodes that did not accept the round. The round's callback may
// take a mutex that the caller holds.
func (c *Client) enqueue(r *round, to, owed nodeSet) (reached nodeSet, unsent []unsentTo) {
	for _, n := range c.nodes {
		if !to.has(n.index) {
			continue
		}
		if err := n.enqueue(r, owed.has(n.index)); err != nil {
			unsent = append(unsent, unsentTo{n.index, err})
		} else {
			reached.add(n.index)
		}
	}
	return reached, unsent
}

// newToken is 128 random bits in hexadecimal, and the suffix. The bits come from the kernel each time, because a
// generator in this process would repeat itself in a restored snapshot of the machine.
func newToken(suffix string) string {
	var bits [tokenDigits / 2]byte
	rand.Read(bits[:])
	var digits [tokenDigits]byte
	hex.Encode(digits[:], bits[:])
	var b strings.Builder // one allocation; the allocations of BenchmarkCycle show it
	b.Grow(len(digits) + len(suffix))
	b.Write(digits[:])
	b.WriteString(suffix)
	return b.String()
}
