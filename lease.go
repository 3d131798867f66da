package redlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Lease is a lock that is held for a time. The client renews it, unless the lock is [Lock.WithoutRenewal]. It ends
// when it is released, when the client is closed, or when it is lost; in each case before another client can own the
// lock. Its methods are safe for concurrent use. Get one from [Lock.Acquire], [Lock.TryAcquire] or [Client.Adopt].
//
// Keep the Lease, or a context that it gave, for as long as the lock is needed: a garbage-collected Lease stops
// renewing.
type Lease struct {
	ownership *ownership
	cleanup   runtime.Cleanup

	parent context.Context // Context has its values

	mu sync.Mutex // guards the rest; the ownership's mu is taken under it
	// own ends with the lease but does not refer to it. The ownership can reach own; if it could reach the Lease, a
	// dropped Lease would never be garbage-collected.
	own    context.Context
	ctx    context.Context // own, with the lease in it
	cancel context.CancelCauseFunc
	last   bool       // when it was released, no other lease of the ownership was left
	lost   error      // why the ownership had been lost, if other leases were left
	reader *ownership // what it has become (Downgrade); nil: nothing

	released atomic.Bool // written under mu
}

// newOwnership makes what keeps the lock that the round r won, valid until then. It begins with startLease. reached is
// the nodes that may have the keys.
func newOwnership(ctx context.Context, l *spec, tokenArg any, ballot uint64, reached nodeSet, r *round, now, until Instant) *ownership {
	o := &ownership{client: l.client, lock: l, tokenArg: tokenArg, ballot: ballot, acquired: now,
		traced: l.client.traceLease(ctx), reached: reached, place: -1, leases: 1}
	if limit := now.Add(l.maxHold); limit > now { // else there is none, or none that the clock can tell
		o.limit = limit
		until = min(until, limit)
	}
	if l.minHold > 0 {
		o.least = now.Add(l.minHold)
	}
	o.until.Store(int64(until))
	o.written = r.t0
	o.story.waits = l.client.cfg.Hooks.Acquired != nil
	o.acquiredBy(r)
	return o
}

// startLease makes the first lease of an ownership, which begins now. If it reports true, Close ends and releases it. If
// false, Close has ended all leases just before, so its caller has to do that.
func startLease(ctx context.Context, o *ownership) (lease *Lease, begun bool) {
	lease = &Lease{ownership: o, parent: ctx}
	if o.lock.renew {
		lease.cleanup = runtime.AddCleanup(lease, (*ownership).abandon, o)
	}
	return lease, o.start()
}

// Valid reports whether the lease is valid now. It reads the clock, so it is right also if timers are late or the
// machine was suspended. Ask it just before work that two processes must not do at the same time. The
// process may still be paused between the answer and the work, so let the resource check [Lease.Fence] too.
func (l *Lease) Valid() bool {
	return !l.released.Load() && !l.ownership.over.Load() && l.ownership.client.cfg.Clock.Now() < l.ownership.validUntil()
}

// Remaining is how much longer the lease is valid if it is not renewed; 0 if it is not valid.
func (l *Lease) Remaining() time.Duration {
	if l.released.Load() || l.ownership.over.Load() {
		return 0
	}
	return max(0, l.ownership.validUntil().Sub(l.ownership.client.cfg.Clock.Now()))
}

// Fence is the fencing token. It is unique for each of the lock's names, and larger than the fencing token of every
// lease of such a name whose acquisition had returned before this one began. A resource that refuses smaller numbers
// than the largest it has seen is safe from a holder that has lost the lock without knowing it: see package fence. It is
// below 2^53, so it fits into an int64. It is 0 with [Config.NoFence].
func (l *Lease) Fence() uint64 { return l.ownership.ballot }

// Token is the owner token, the value of the lock's keys: 32 random hexadecimal digits, new for each attempt, and then
// who has it: a few digits that name the client, [Config.Owner], and the label of [Lock.WithOwner]. It has no spaces.
// Whoever knows it and may write to the nodes can release the lock; see [Client.ReleaseToken].
func (l *Lease) Token() string { return l.ownership.token() }

// Names returns a copy of the names that are locked, in the order in which they were given.
func (l *Lease) Names() []string { return slices.Clone(l.ownership.lock.res.names) }

// Extend renews the lease now. It is then valid for its TTL, less what every round gives up: its own time, the drift
// and the clock band; and not past [Lock.WithMaxHold].
//
// Errors are [ErrLost] if so many nodes that had the lock no longer have it that no quorum is left, or if the lease has
// expired, because an expired lease is never taken again; [ErrNoQuorum], after which the lease is valid for what was
// left; [ErrReleased], [ErrClosed] and ctx.Err(). After ErrNoQuorum and ctx.Err() the renewal may still happen, if nodes
// answer late. What the nodes said comes in a [*RoundError].
func (l *Lease) Extend(ctx context.Context) error {
	_, err := l.extend(ctx)
	return err
}

// extend is Extend, and returns the renewal.
func (l *Lease) extend(ctx context.Context) (r *round, err error) {
	o := l.ownership
	o.checkExpiry()
	if err := l.endedOr(ctx.Err()); err != nil {
		return nil, err
	}
	t := l.trace(ctx, "extend")
	defer func() { t.end(err) }()
	r, err = o.beginRenewal()
	if err != nil {
		return nil, err
	}
	return r, l.awaitExtended(ctx, r)
}

// awaitExtended waits until it is clear whether the renewal succeeded.
func (l *Lease) awaitExtended(ctx context.Context, r *round) error {
	o := l.ownership
	switch r.await(ctx, &o.client.timers, o.client.cfg.nodeTimeout(o.lock.ttl)) {
	case undecided: // ctx may be the lease's own, and the lease lost
		return l.endedOr(ctx.Err())
	case won:
		o.checkExpiry()
		if r.tooLate.Load() {
			return l.endedOr(o.renewalError(r, ErrNoQuorum))
		}
		return l.endedOr(nil)
	}
	if r.isByTime() {
		o.renewalFailed(r)
	}
	// R3: the lease may be lost for good. The nodes that have not answered decide that.
	patience := o.timeUp(r).Sub(o.client.cfg.Clock.Now())
	had := o.onceHad() &^ r.takeAt // when it was sent: another renewal may have taken the keys since, where this one could not
	clear := func(t *tally) bool { return t.refusedOrNever(had) }
	if err := r.until(ctx, &o.client.timers, nil, patience, clear); err != nil {
		return l.endedOr(err)
	}
	if _, votes := r.snapshot(); votes.refused(had) {
		o.lose(o.renewalError(r, ErrLost))
		return o.cause()
	}
	o.checkExpiry() // that may have taken longer than the lease lasted
	return l.endedOr(o.renewalError(r, ErrNoQuorum))
}

// endedOr is why the lease has ended, or else err. If ctx is the lease's own, it ends with the lease.
func (l *Lease) endedOr(err error) error {
	if cause := l.ownership.cause(); cause != nil {
		return cause
	}
	if l.released.Load() {
		return ErrReleased
	}
	return err
}

// Release ends the lease and releases the lock on all nodes. If other leases of a re-entered lock ([Lock.Reentrant])
// still hold it, it ends only this lease. It returns:
//   - nil if a quorum of the nodes deleted the lock or never had it, or if other leases still hold it;
//   - [ErrLost] if a quorum no longer had the lock, or if the lease was lost before;
//   - [ErrNoQuorum] if neither is known, because nodes are away, because it was released by force at the same moment, or
//     because the answers took so long that the lock may have expired meanwhile.
//     What is left of the lock then expires by itself. Nodes that come back earlier still get the release.
//
// ErrLost and ErrNoQuorum come in a [*RoundError] if they are what the nodes said. Release waits for nodes that are up, or
// whose connection has just broken, no longer than NodeTimeout.
//
// ctx bounds only the wait. If it ends first, the error is ctx.Err(), and the release is sent all the same. It may carry the
// lease, and then ends with it: that does not bound the wait, but its deadline does. Release can be called any number of
// times. All calls that waited for the answers return the same.
func (l *Lease) Release(ctx context.Context) error {
	o, given := l.ownership, ctx
	ctx, stop := o.bounding(ctx)
	defer stop()
	first, last, lost := l.leave()
	if !last {
		return lost
	}
	if handed, err := o.handedOver(ctx); handed {
		return err
	}
	if o.client.begin() { // so that Close waits, and the hook is still called
		defer o.client.finish()
	}
	var t *tracing
	if first { // a later call asks no node
		t = l.trace(given, "release")
	}
	o.checkExpiry()
	was := o.infoFor(o.client.cfg.Hooks.Released)
	held := o.end(ErrReleased)
	r := o.sendRelease()
	err := o.awaitRelease(ctx, r)
	if held {
		o.tellOf(was, o.client.cfg.Hooks.Released, err)
	}
	t.end(err)
	return err
}

func (o *ownership) awaitRelease(ctx context.Context, r *round) error {
	if err := o.cause(); errors.Is(err, ErrLost) {
		return err
	}
	c := o.client
	var err error
	patience := c.cfg.NodeTimeout
	if r.only != c.allNodes() {
		patience = min(patience, c.hedgeAfter(r.only))
	}
	switch r.await(ctx, &c.timers, patience) {
	case undecided:
		return ctx.Err()
	case lost: // L1: it is not clear what this proves before the other nodes that are up have answered
		proof, ended := o.awaitProof(ctx, r)
		if ended != nil {
			return ended
		}
		err = o.unconfirmed(r, proof)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.judged { // later answers may prove something else, but all calls must return the same
		o.judged, o.unreleased = true, err
	}
	return o.unreleased
}

// awaitProof returns what the votes of a lost release prove, once they do, or after NodeTimeout (L1). What the first answers
// prove while others are late can be undone by the next answer. So one look at the votes decides, and not that they once
// proved something.
func (o *ownership) awaitProof(ctx context.Context, r *round) (verdict, error) {
	c := o.client
	for {
		had := o.onceHad() // not under the round's mutex, under which the votes are asked
		proven := func(t *tally) bool { proof, final := t.released(true, had); return final || proof != undecided }
		left := r.t0.Add(c.cfg.NodeTimeout).Sub(c.cfg.Clock.Now())
		if err := r.until(ctx, &c.timers, nil, left, proven); err != nil {
			return undecided, err
		}
		if _, votes := r.snapshot(); left <= 0 || proven(&votes) {
			proof, _ := votes.released(true, o.onceHad())
			return proof, nil
		}
	}
}

// unconfirmed is the error of a release of which the votes prove this. A quorum without the keys proves no loss if they may
// have ended by themselves before the release came.
func (o *ownership) unconfirmed(r *round, proof verdict) error {
	switch proof {
	case won:
		return nil // by now a quorum has answered
	case lost:
		if now := o.client.cfg.Clock.Now(); now >= o.validUntil() && o.rest(now) == 0 {
			return r.error(ErrNoQuorum, o.lock.res.names, o.client.nodes, "the lock may have expired before the release came")
		}
		return r.error(ErrLost, o.lock.res.names, o.client.nodes, "")
	default:
		return r.error(ErrNoQuorum, o.lock.res.names, o.client.nodes, "")
	}
}

// cause is why the lease ended, or nil.
func (o *ownership) cause() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}
