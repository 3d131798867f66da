package redlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"
)

// This file is the protocol: one attempt to acquire (A1–A5), one renewal (R1–R3) and one release (L1), each
// step numbered as in docs/protocol.md.

// An approach is how an attempt goes about it. The zero approach asks all nodes at once.
type approach struct {
	probe       *node   // ask this one first, and the others only if it has granted (W3)
	queueAt     nodeSet // where to be entered among those who wait, if refused (W2)
	queueEntry  int64   // what as; see acquire.lua
	reservation any     // what a key holds that is kept for this client; "": it was never refused
	try         bool    // for TryAcquire: it does not wait for its turn, so it must not take another's
}

// attempt tries once to acquire the lock, and leaves nothing behind where it fails. The round tells why it
// did; err is the end of ctx or of the client.
func (c *Client) attempt(ctx context.Context, l *spec, how approach) (lease *Lease, r *round, err error) {
	if err := c.awaitOpen(ctx); err != nil {
		return nil, nil, err
	}

	// A1: a token that was never used before, so that nothing sent late for an older attempt can touch this
	// one (etcd#22082), and a ballot.
	t0 := c.cfg.Clock.Now()
	var token any = c.waiters.ownerToken() // boxed once
	if c.protocol.omits(freshToken) {
		token = c.oldToken
	}
	var ballot uint64
	if !c.cfg.NoFence {
		if ballot = c.ballot(t0); ballot == 0 {
			return nil, c.unreached(l, t0), nil
		}
	}

	// A2, A3: all nodes at once, on their ordered connections; the verdict does not wait for the slow.
	band := c.cfg.band(l.ttl)
	r = newRound(plan{
		call:    c.protocol.acquireCall(l.res, how.reservation, token, l.millis, ballot),
		t0:      t0,
		queueAt: how.queueAt, queueEntry: how.queueEntry,
		probed: how.probe != nil,
		ending: c.ending,
	}, len(c.nodes), c.need, toleranceOf(band))
	timeout := c.cfg.nodeTimeout(l.ttl)
	reached := c.ask(ctx, r, how, timeout)
	verdict := r.await(ctx, &c.timers, timeout)
	yields := verdict == won && c.yields(ctx, l.res, r, how)
	_, slack := r.counted()
	if wait := bandWait(band, slack); verdict == won && wait > 0 {
		c.pause(ctx, wait)
	}

	// A4: what is left is read last. Cancellation that came first wins.
	now := c.cfg.Clock.Now()
	validity := validityOf(l.ttl, now.Sub(t0), driftOf(l.ttl, c.cfg.Drift), bandCost(band, slack))
	if c.protocol.omits(finalValidity) {
		validity = l.ttl
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case c.isClosed():
		err = ErrClosed
	case verdict == won && !yields && validity > c.cfg.MinValidity:
		lease := newLease(ctx, l, token, ballot, reached, now, now.Add(validity))
		if !c.isClosed() {
			return lease, r, nil
		}
		// Close may have ended all leases just before this one began. It was nobody's, so no minimum hold is kept.
		lease.ownership.end(ErrClosed)
		err = ErrClosed
	}

	// A5: every node that may have granted, or may yet, is told to forget it, whatever ctx says. One that
	// denied has nothing: its script wrote nothing, and the token is not used again.
	unsure := reached &^ r.deniedBy()
	switch {
	case c.protocol.omits(releaseLateGrants):
		unsure, _ = r.counted()
	case c.protocol.omits(cleanUpAfterCancel) && err != nil:
		unsure = 0
	}
	c.releaseAt(l.res.keys, token, unsure, reservationTime)

	// The loss is classified only now: whoever waits for these keys need not wait for that.
	if verdict == lost && err == nil && !r.alone() {
		err = c.classify(ctx, r)
	}
	return nil, r, err
}

// unreached is a round of which no node was ever reached, so there is nobody to ask.
func (c *Client) unreached(l *spec, t0 Instant) *round {
	r := c.newRound(plan{call: call{script: c.protocol.acquire}, t0: t0})
	for _, n := range c.nodes {
		_, _, why := n.state()
		r.record(n.index, answer{vote: unknown, err: cmp.Or(why, errConnecting)})
	}
	return r
}

// classify waits until a lost round tells a lock that is held from an outage: while too few answers have come to
// tell, for those that nodes which are up still owe, no longer than NodeTimeout after the round began.
func (c *Client) classify(ctx context.Context, r *round) error {
	if c.protocol.omits(lossClassified) {
		return nil
	}
	return c.awaitVotes(ctx, r, r.t0.Add(c.cfg.NodeTimeout), func(t *tally) bool { return t.loss() != lossUnclear })
}

// awaitVotes waits until the votes tell, or until that moment.
func (c *Client) awaitVotes(ctx context.Context, r *round, until Instant, decided func(*tally) bool) error {
	return r.until(ctx, &c.timers, c.ending, until.Sub(c.cfg.Clock.Now()), decided)
}

// renew asks all nodes to extend the lease (R1). Its answers come to hold.extended.
func (c *Client) renew(o *ownership) *round {
	now := c.cfg.Clock.Now()
	extend := plan{call: c.protocol.extendCall(o.lock.res, o.tokenArg, o.keyMillis(now)), t0: now, answered: o.extended}
	return newRound(extend, len(c.nodes), c.need, toleranceOf(c.cfg.band(o.lock.ttl)))
}

// plant puts the keys and the fence back on one node that lacks them, and reports whether it was reached
// (R2). It is called only after a quorum extended, while the lease is valid and not yet released.
func (c *Client) plant(o *ownership, node int) bool {
	now := c.cfg.Clock.Now()
	r := c.newRound(plan{call: c.protocol.plantCall(o.lock.res, o.tokenArg, o.keyMillis(now), o.ballot), t0: now})
	return c.nodes[node].send(r, false)
}

// newRound makes a round of all nodes that no clock has a part in.
func (c *Client) newRound(p plan) *round {
	if p.t0 == 0 {
		p.t0 = c.cfg.Clock.Now()
	}
	return newRound(p, len(c.nodes), c.need, -1)
}

// pause waits, unless ctx or the client ends.
func (c *Client) pause(ctx context.Context, d time.Duration) {
	timer := c.timers.start(d)
	defer c.timers.stop(timer)
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.ending:
	}
}

// ask sends the round to all nodes, or to the probe and, only if that has granted, to the rest. It returns
// the nodes that were reached. One who tries asks the rest also if the probe is late or away: it has no time to
// ask again.
func (c *Client) ask(ctx context.Context, r *round, how approach, timeout time.Duration) (reached nodeSet) {
	probe := how.probe
	if probe != nil {
		if probe.send(r, false) {
			reached.add(probe.index)
		}
		if how.try {
			timeout = c.patience(probe)
		}
		switch c.awaitProbe(ctx, r, probe, timeout) {
		case granted:
		case pending, unknown:
			if how.try && ctx.Err() == nil && !c.isClosed() {
				break
			}
			fallthrough
		default:
			r.expire(errNotAsked)
			return reached
		}
	}
	for _, n := range c.nodes {
		if n != probe && n.send(r, false) {
			reached.add(n.index)
		}
	}
	return reached
}

// awaitProbe is the probe's vote, as of when it came or of the timeout.
func (c *Client) awaitProbe(ctx context.Context, r *round, probe *node, timeout time.Duration) vote {
	timer := c.timers.start(timeout)
	defer c.timers.stop(timer)
	select {
	case <-r.first:
	case <-timer.C:
	case <-ctx.Done():
	case <-c.ending:
	}
	answers, _ := r.snapshot()
	return answers[probe.index].vote
}

// releaseAt sends a release to these nodes alone.
func (c *Client) releaseAt(keys []any, token any, nodes nodeSet, keep time.Duration) {
	if nodes == 0 {
		return
	}
	r := c.newRound(plan{call: c.protocol.releaseCall(keys, token, keep, 0)})
	for _, n := range c.nodes {
		if nodes.has(n.index) {
			n.send(r, true)
		}
	}
}

// sendRelease sends a release to all nodes. It is owed to those that were reached.
func (c *Client) sendRelease(r *round, reached nodeSet) {
	for _, n := range c.nodes {
		n.send(r, reached.has(n.index))
	}
}

// newToken is 128 random bits. They come from the kernel each time: a generator of our own would repeat
// itself in a restored snapshot of this machine.
func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	var text [32]byte
	hex.Encode(text[:], b[:])
	return string(text[:])
}
