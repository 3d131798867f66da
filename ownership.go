package redlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An ownership is what keeps a lock: its renewals (renew.go), its end and its release (L1). After re-entry several
// Leases share one. The client refers to the ownership and not to the Lease, so that a Lease that the program has
// dropped is garbage-collected, and its renewals stop.
type ownership struct {
	client   *Client
	lock     *spec
	tokenArg any // the value of the keys, a string, as a script argument: the owner token, or an entry that ends with it
	ballot   uint64
	limit    Instant // no validity goes past it (WithMaxHold); 0: none
	ticket   any     // the token of the ticket that it was adopted with; nil: it was acquired
	least    Instant // nobody else gets the lock before it (WithMinHold); 0: none
	acquired Instant
	traced   *leaseTrace // nil: its renewals are not traced

	until atomic.Int64  // an Instant: the end of the validity
	over  atomic.Bool   // whether ended is set, to be read without mu
	had   atomic.Uint64 // a nodeSet: the nodes that said that they have the keys, or had them once; see hadKeys

	// proven is a nodeSet: the nodes that were vouched for since they have the keys (R1), and have counted since (C2). It is
	// changed under mu.
	proven atomic.Uint64

	story story // what the hooks are told of the lease

	due   Instant // belongs to the scheduler, and is guarded by its mu
	place int     // likewise; -1: not in its queue

	// mu guards the rest. Under it rounds are sent to nodes and calls of hooks are queued, which never blocks. No I/O
	// and no code of the user's runs under it.
	mu       sync.Mutex
	ended    error           // why the lease ended; nil while it is held
	written  Instant         // when the round began that gave the validity: a quorum has the keys for the TTL from then
	ctx      context.Context // ends with the ownership; nil until context is called
	cancel   context.CancelCauseFunc
	joints   map[context.Context]joints // by the own context of a lease: those that end with it and with another one (With)
	leases   int                        // that were neither released nor dropped; more than one after re-entry
	reached  nodeSet                    // the nodes that may have the keys: they get the release
	acquire  *round                     // some nodes had not answered it when it was won; nil: all had, or their answers are in had
	renewing bool
	dropped  bool     // all its Leases were garbage-collected while it was renewed
	left     []func() // what their clean-ups left to the next tick
	plants   int32    // how often keys were planted
	planted  nodeSet  // where
	// kept is, by node, until when the keys are there without a gap, as far as the node said; nil: since the acquire began. A
	// proof lasts no longer (R1).
	kept   []Instant
	taking nodeSet // the nodes that a renewal was sent to which may take the keys there (R2); see grantedIn
	// reliesFrom is from when on one may rely on all nodes that are proven, without those that granted the acquire (C2). The
	// lease itself relies on these for longer.
	reliesFrom Instant

	given    []int64    // by node: see gives; nil: there is no minimum hold, or nothing was written since the acquire
	reader   *ownership // what it has become (Downgrade); nil: nothing
	renewal  *round     // the renewal in flight that the scheduler began; nil: none
	spared   *round     // the renewal whose time was found to be over late, and that gets another look; nil: none
	silentAt Instant    // when that look is due
	late     *round     // the last renewal, if its time is over and late answers may still win it (R3); nil: none
	renewAt  Instant    // when the next renewal begins
	failures int        // how many renewals have failed since one succeeded
	failed   *round     // the last of these; nil: there is none
	release  *round     // nil: not sent
	handed   *handover  // the Detach that ended it; nil: none did
	checking *round     // the last one that asked whether the keys are still there (taken.go); nil: none
	watch    *watch     // to know of waiters; nil: nobody has asked
	// judged: a call has waited for the answers to the release. unreleased is then why it did not succeed; nil if it did.
	judged     bool
	unreleased error
}

var (
	errExpired = errors.New("it was not renewed before its validity ended")
	errMaxHold = errors.New("its longest hold is over")
	errDropped = errors.New("its Lease was dropped without Release, so it was no longer renewed")
)

// lead is how long before the end of the validity the lease's context ends (R3), because a timer may be late.
func (o *ownership) lead() time.Duration {
	lead := min(o.lock.ttl/50, 20*time.Millisecond)
	if o.lock.maxHold > 0 { // else a lease as short as that would be lost at once
		lead = min(lead, o.lock.maxHold/50)
	}
	return lead
}

func (o *ownership) validUntil() Instant { return Instant(o.until.Load()) }

// deadline is when the lease has expired, after which no renewal or plant may bring it back (R2).
func (o *ownership) deadline() Instant {
	if o.client.protocol.omits(takenOnce) || o.client.protocol.omits(takenInTime) {
		return math.MaxInt64
	}
	return o.validUntil()
}

// start hands the ownership to the scheduler, and reports whether that took it. The first renewal is due a third of the TTL
// after the round began that gave the validity, as any other: what that round took, the lease does not have.
func (o *ownership) start() bool {
	o.renewing = o.lock.renew
	o.renewAt = o.written.Add(o.lock.ttl / 3)
	return o.client.scheduler.set(o, o.nextDue())
}

// end ends the lease for this cause, and reports whether it had not ended before. The lease's context ends first,
// before anything is sent (L1).
func (o *ownership) end(cause error) bool {
	o.mu.Lock()
	if o.ended != nil {
		o.mu.Unlock()
		return false
	}
	o.endLocked(cause)
	return true
}

// endLocked ends the lease, which had not ended. o.mu is held, and is then unlocked.
func (o *ownership) endLocked(cause error) {
	o.ended = cause
	o.over.Store(true)
	cancel, ending, watch := o.cancel, o.joints, o.watch
	o.joints, o.left = nil, nil
	o.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
	for _, joined := range ending {
		joined.end(cause)
	}
	if watch != nil {
		o.client.waiters.unwatch(watch)
	}
	if o.ticket != nil { // another adopter may have given it keys back since this one won (D5), and waiters queue there
		o.client.releaseAt(o.lock.res.keys, o.ticket, o.client.allNodes(), o.client.reservation())
	}
}

// checkExpiry ends the lease if its validity has ended and no timer has noticed that.
func (o *ownership) checkExpiry() {
	if o.client.cfg.Clock.Now() >= o.validUntil() {
		o.expire(0)
	}
}

// expire ends the lease at this long before the end of its validity, and says why it was not longer. It does nothing if a
// renewal was faster.
func (o *ownership) expire(lead time.Duration) {
	isOver := func() bool { return o.client.cfg.Clock.Now() >= o.validUntil().Add(-lead) }
	if o.limit != 0 && o.validUntil() == o.limit {
		o.loseIf(isOver, errMaxHold)
		return
	}
	o.mu.Lock()
	dropped, failed, renewing := o.dropped, o.failed, o.renewing
	o.mu.Unlock()
	why := errExpired
	if late := o.client.scheduler.overdue(o); renewing && late > o.lock.ttl/6 {
		why = fmt.Errorf("%w: this process, or its machine, stood still for at least %v", errExpired, inBrief(late.Round(time.Millisecond)))
	}
	switch {
	case dropped:
		o.loseIf(isOver, errDropped)
	case failed != nil: // what the nodes said to the last renewal
		o.loseIf(isOver, failed.error(fmt.Errorf("%w: %w", ErrLost, why), o.lock.res.names, o.client.nodes, ""))
	default:
		o.loseIf(isOver, why)
	}
}

// lose ends the lease although its owner did not release it. Its releases are sent only when the drift, which the
// validity gave up, has passed too. So work under the lease has that long to stop (R3).
func (o *ownership) lose(why error) { o.loseIf(func() bool { return true }, why) }

// loseIf is lose if this is still so when the mutex is held, under which renewals prolong the lease.
func (o *ownership) loseIf(still func() bool, why error) {
	err := why
	if !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w: %w", ErrLost, why)
	}
	o.mu.Lock()
	if o.ended != nil || !still() {
		o.mu.Unlock()
		return
	}
	o.endLocked(err)
	o.client.scheduler.set(o, o.dueRelease())
	o.client.cfg.Logger.Warn("redlock: lease lost", "names", o.lock.res.names, "error", why)
	o.tell(o.client.cfg.Hooks.Lost, err)
}

// dueRelease is when a lost lease's releases are sent, unless its owner releases it earlier (R3).
func (o *ownership) dueRelease() Instant {
	return o.validUntil().Add(driftOf(o.lock.ttl, o.client.cfg.Drift))
}

// sendRelease sends the release once, to all nodes that may have the keys, and returns its round (L1). The lease has
// ended.
//
// It is sent under mu, and the scheduler drops the ownership only then. So whoever finds it gone from the scheduler, or its
// release made, knows that the release was sent: Close closes the nodes after that (L2).
func (o *ownership) sendRelease() *round {
	defer o.client.scheduler.drop(o)
	o.mu.Lock()
	if r := o.release; r != nil {
		o.mu.Unlock()
		return r
	}
	c := o.client
	now := c.cfg.Clock.Now()
	rest := o.rest(now)
	// W1: the lock may go to a waiter of this process, which needs no reservation. Once the client is closed, its own
	// waiters have gone, so the nodes reserve the lock for a waiter elsewhere.
	handsOver := rest == 0 && !o.lock.fair && !o.lock.res.isShared() && !c.isClosed() && c.waiters.handsOver(o.lock.res)
	release := plan{call: c.protocol.releaseCall(o.lock.res.keys, o.tokenArg, c.reservation(), rest), t0: now,
		only: o.reached, answered: o.freed}
	if handsOver {
		// Where that waiter asks first, its acquire follows. On the other nodes those may be queued to whom they are nearer.
		// (Several keys may go to several waiters, who ask different nodes first.)
		release.silentAt = c.allNodes()
		if asked := c.quorumFor(o.lock.res, now, 0); asked != 0 && len(o.lock.res.keys) == 1 {
			release.silentAt = asked
		}
	}
	r := c.newRound(release)
	o.release = r
	_, unsent := c.enqueue(r, r.only, r.only)
	o.mu.Unlock()
	r.recordUnsent(unsent)
	if handsOver || rest > 0 { // with a rest, this process's waiters ask, and learn how long it is (H2)
		c.waiters.released(o.lock.res)
	}
	return r
}

// freed is called with each node's answer to the release. A reservation shows that others want the lock.
func (o *ownership) freed(_ *round, _ int, a answer, _ verdict, _ bool) {
	if a.reserved {
		o.client.waiters.contend(o.lock.res)
	}
}

// abandon is called when one of the Leases was garbage-collected. The renewals stop with the last Lease. The lease then
// expires, and expire says why. The runtime calls abandon on a goroutine of its own, which must not block. In tests it
// must not touch a channel of a testing/synctest bubble either, as a context has one: see leaveToTick.
func (o *ownership) abandon() {
	if !o.dropLease() {
		return
	}
	o.mu.Lock()
	o.dropped = o.ended == nil && o.renewing
	o.renewing = false
	o.mu.Unlock()
}

// leaveToTick has the next tick call this, which a clean-up of the runtime must not do itself. If the ownership has ended, all
// its contexts have, and no tick may come: what waits for one would keep the leases in memory.
func (o *ownership) leaveToTick(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == nil {
		o.left = append(o.left, do)
	}
}

func (o *ownership) token() string { return tokenOf(o.tokenArg.(string)) }

// info describes the lease. Its wall clock is read first: if the process stands still before the other clock is, the lease was
// still valid at that moment.
func (o *ownership) info() LeaseInfo {
	share := o.lock.res.share
	info := LeaseInfo{Names: o.lock.res.names, Token: o.token(), Fence: o.ballot, At: wallClock(), Reader: share.isReader()}
	now := o.client.cfg.Clock.Now()
	info.Held = now.Sub(o.acquired)
	if !o.over.Load() {
		info.Left = max(0, o.validUntil().Sub(now))
	}
	if share.isSemaphore() {
		info.Permits, info.Of = share.take, share.permits
	}
	return info
}

// rest is how much longer the keys must live for the minimum hold (H1); 0: there is none, or it is over.
func (o *ownership) rest(now Instant) time.Duration {
	left := o.least.Sub(now)
	if o.least == 0 || left <= 0 {
		return 0
	}
	return left + driftOf(left, o.client.cfg.Drift)
}

// keyMillis is how long the keys must live that a renewal or a plant writes now.
func (o *ownership) keyMillis(now Instant) any {
	if o.least == 0 {
		return o.lock.millis
	}
	return millis(max(o.lock.ttl, o.rest(now)))
}

// gives notes that keys which live for so long are written on these nodes, and returns for each node what the last write gave
// that it was sent: no earlier one gave less. nil: all gave the TTL, because there is no minimum hold. o.mu is held.
func (o *ownership) gives(nodes nodeSet, ttlMillis any) []int64 {
	if o.least == 0 {
		return nil
	}
	if o.given == nil {
		o.given = slices.Repeat([]int64{o.lock.millis.(int64)}, len(o.client.nodes))
	}
	for node := range o.given {
		if nodes.has(node) {
			o.given[node] = ttlMillis.(int64)
		}
	}
	return slices.Clone(o.given)
}

// addLease counts another lease, unless the ownership has ended or its last lease is being released.
func (o *ownership) addLease() bool {
	o.checkExpiry()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil || o.leases == 0 {
		return false
	}
	o.leases++
	return true
}

// dropLease counts one lease less, and reports whether that was the last one.
func (o *ownership) dropLease() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leases--
	return o.leases == 0
}
