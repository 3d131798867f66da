package redlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A ownership is what keeps a lease: its renewals, its end and its release. The client knows the ownership and not the
// Lease, so that a Lease which nobody can reach any more is noticed.
type ownership struct {
	client   *Client
	lock     *spec
	token    string
	tokenArg any // the token, for redigo
	ballot   uint64
	limit    Instant // no validity goes past it (WithMaxHold); 0: none
	least    Instant // no other has the lock before it (WithMinHold); 0: none

	until atomic.Int64 // Instant: the end of the validity
	over  atomic.Bool  // ended is set

	due   Instant // the scheduler's
	place int     // the scheduler's; -1: not queued

	mu       sync.Mutex      // guards the rest; nodes and hooks are sent to under it, which never blocks; nothing else is called
	ended    error           // why the lease ended; nil while it is held
	ctx      context.Context // ends with the hold; nil until somebody asks
	cancel   context.CancelCauseFunc
	leases   int     // that have not been released, nor dropped; more than one after re-entry
	reached  nodeSet // the nodes that may have the keys
	renewing bool
	dropped  bool    // nobody could reach it while it was being renewed
	renewal  *round  // in flight, of the scheduler's; nil: none
	renewAt  Instant // when the next one begins
	failures int     // renewals failed since one succeeded
	release  *round
	// unreleased is why release did not succeed; nil while that is not known, or if it did.
	unreleased error
}

var (
	errExpired = errors.New("it was not renewed before its validity ended")
	errMaxHold = errors.New("its longest hold is over")
	errDropped = errors.New("its Lease was dropped without Release, so it was no longer renewed")
)

// lead is how long before the end of the validity the lease's context ends: a timer may be late.
func (o *ownership) lead() time.Duration { return min(o.lock.ttl/50, 20*time.Millisecond) }

func (o *ownership) validUntil() Instant { return Instant(o.until.Load()) }

// deadline is the moment from which the lease is not to be had back (R2).
func (o *ownership) deadline() Instant {
	if o.client.protocol.omits(takenOnce) {
		return math.MaxInt64
	}
	return o.validUntil()
}

// start begins the hold's time.
func (o *ownership) start(now Instant) {
	o.renewing = o.lock.renew
	o.renewAt = now.Add(o.lock.ttl / 3)
	o.client.scheduler.set(o, o.nextDue())
}

// end makes the lease stop believing, for this cause, unless it has before. Its context ends before anyone
// is told anything (L1).
func (o *ownership) end(cause error) bool {
	o.mu.Lock()
	if o.ended != nil {
		o.mu.Unlock()
		return false
	}
	o.ended = cause
	o.over.Store(true)
	cancel := o.cancel
	o.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
	return true
}

// checkExpiry ends the lease if its validity has ended, also when no timer has noticed yet.
func (o *ownership) checkExpiry() {
	if o.client.cfg.Clock.Now() >= o.validUntil() {
		o.expire()
	}
}

// expire ends the lease at the end of its validity.
func (o *ownership) expire() {
	if o.limit != 0 && o.validUntil() == o.limit {
		o.lose(errMaxHold)
		return
	}
	o.mu.Lock()
	dropped := o.dropped
	o.mu.Unlock()
	if dropped {
		o.lose(errDropped)
		return
	}
	o.lose(errExpired)
}

// lose ends the lease without its owner's wish. Its releases are sent once the drift that was held back from
// its validity has passed too: whoever was working under it has that long to stop.
func (o *ownership) lose(why error) {
	err := why
	if !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w: %w", ErrLost, why)
	}
	if !o.end(err) {
		return
	}
	o.client.scheduler.set(o, o.dueRelease())
	o.client.cfg.Logger.Warn("redlock: lease lost", "names", o.lock.res.names, "error", why)
	if hook := o.client.cfg.Hooks.Lost; hook != nil {
		hook(o.info(), err)
	}
}

// dueRelease is when a lost lease's releases are sent: once its keys should have expired.
func (o *ownership) dueRelease() Instant {
	return o.validUntil().Add(driftOf(o.lock.ttl, o.client.cfg.Drift))
}

// sendRelease sends the release to all nodes, once, and returns its round (L1). The lease has ended.
func (o *ownership) sendRelease() *round {
	o.client.scheduler.drop(o)
	o.mu.Lock()
	if r := o.release; r != nil {
		o.mu.Unlock()
		return r
	}
	c := o.client
	// Once the client is closed, who waits here no longer does: others are told.
	now := c.cfg.Clock.Now()
	rest := o.rest(now)
	favour, keep := rest == 0 && !c.isClosed() && c.waiters.handsOver(o.lock.res), reservationTime
	if favour {
		keep = 0
	}
	r := c.newRound(plan{call: c.protocol.releaseCall(o.lock.res.keys, o.tokenArg, keep, rest), t0: now, answered: o.freed})
	o.release = r
	reached := o.reached
	o.mu.Unlock()
	c.sendRelease(r, reached)
	if favour || rest > 0 { // who waits here looks again, and learns how long the rest is
		c.waiters.released(o.lock.res)
	}
	return r
}

// freed hears each node's answer to the release.
func (o *ownership) freed(_ *round, _ int, a answer, _ verdict, _ bool) {
	if a.reserved {
		o.client.waiters.contend(o.lock.res)
	}
}

// context is what the contexts of the hold's leases end with.
func (o *ownership) context() context.Context {
	o.mu.Lock()
	if o.ctx == nil {
		o.ctx, o.cancel = context.WithCancelCause(context.Background())
	}
	ctx, cancel, ended := o.ctx, o.cancel, o.ended
	o.mu.Unlock()
	if ended != nil {
		cancel(ended)
	}
	return ctx
}

// abandon is called when nobody can reach one of the leases. The renewals stop with the last; it then expires by
// itself, and expire tells why. The runtime calls it on a goroutine of its own, which must neither wait nor, in tests,
// touch a channel of a testing/synctest bubble.
func (o *ownership) abandon() {
	if !o.dropLease() {
		return
	}
	o.mu.Lock()
	o.dropped = o.ended == nil && o.renewing
	o.renewing = false
	o.mu.Unlock()
}

func (o *ownership) info() LeaseInfo {
	return LeaseInfo{Names: o.lock.res.names, Token: o.token, Fence: o.ballot}
}
