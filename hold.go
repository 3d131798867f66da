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

// A hold is what keeps a lease: its renewals, its end and its release. The client knows the hold and not the
// Lease, so that a Lease which nobody can reach any more is noticed.
type hold struct {
	client *Client
	lock   *spec
	token  string
	boxed  any // the token, for redigo
	ballot uint64
	limit  Instant // no validity goes past it (WithMaxHold); 0: none
	least  Instant // no other has the lock before it (WithMinHold); 0: none

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
func (h *hold) lead() time.Duration { return min(h.lock.ttl/50, 20*time.Millisecond) }

func (h *hold) validUntil() Instant { return Instant(h.until.Load()) }

// last is the moment from which the lease is not to be had back (R2).
func (h *hold) last() Instant {
	if h.client.protocol.lacks(takenOnce) {
		return math.MaxInt64
	}
	return h.validUntil()
}

// start begins the hold's time.
func (h *hold) start(now Instant) {
	h.renewing = h.lock.renew
	h.renewAt = now.Add(h.lock.ttl / 3)
	h.client.scheduler.set(h, h.nextDue())
}

// end makes the lease stop believing, for this cause, unless it has before. Its context ends before anyone
// is told anything (L1).
func (h *hold) end(cause error) bool {
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return false
	}
	h.ended = cause
	h.over.Store(true)
	cancel := h.cancel
	h.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
	return true
}

// look ends the lease if its validity has ended, also when no timer has noticed yet.
func (h *hold) look() {
	if h.client.cfg.Clock.Now() >= h.validUntil() {
		h.expire()
	}
}

// expire ends the lease at the end of its validity.
func (h *hold) expire() {
	if h.limit != 0 && h.validUntil() == h.limit {
		h.lose(errMaxHold)
		return
	}
	h.mu.Lock()
	dropped := h.dropped
	h.mu.Unlock()
	if dropped {
		h.lose(errDropped)
		return
	}
	h.lose(errExpired)
}

// lose ends the lease without its owner's wish. Its releases are sent once the drift that was held back from
// its validity has passed too: whoever was working under it has that long to stop.
func (h *hold) lose(why error) {
	err := why
	if !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w: %w", ErrLost, why)
	}
	if !h.end(err) {
		return
	}
	h.client.scheduler.set(h, h.dueRelease())
	h.client.cfg.Logger.Warn("redlock: lease lost", "names", h.lock.res.names, "error", why)
	if hook := h.client.cfg.Hooks.Lost; hook != nil {
		hook(h.info(), err)
	}
}

// dueRelease is when a lost lease's releases are sent: once its keys should have expired.
func (h *hold) dueRelease() Instant {
	return h.validUntil().Add(driftOf(h.lock.ttl, h.client.cfg.Drift))
}

// sendRelease sends the release to all nodes, once, and returns its round (L1). The lease has ended.
func (h *hold) sendRelease() *round {
	h.client.scheduler.drop(h)
	h.mu.Lock()
	if r := h.release; r != nil {
		h.mu.Unlock()
		return r
	}
	c := h.client
	// Once the client is closed, who waits here no longer does: others are told.
	now := c.cfg.Clock.Now()
	rest := h.rest(now)
	favour, keep := rest == 0 && !c.isClosed() && c.watch.favours(h.lock.res), keepTime
	if favour {
		keep = 0
	}
	args := []any{h.boxed, millis(keep)}
	if rest > 0 {
		args = append(args, millis(rest))
	}
	r := c.newRound(c.protocol.release, h.lock.res.keys, args, now)
	r.answered = h.freed
	h.release = r
	reached := h.reached
	h.mu.Unlock()
	c.tell(r, reached)
	if favour || rest > 0 { // who waits here looks again, and learns how long the rest is
		c.watch.released(h.lock.res)
	}
	return r
}

// freed hears each node's answer to the release.
func (h *hold) freed(_ *round, _ int, a answer, _ verdict, _ bool) {
	if a.kept {
		h.client.watch.contend(h.lock.res)
	}
}

// context is what the contexts of the hold's leases end with.
func (h *hold) context() context.Context {
	h.mu.Lock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(context.Background())
	}
	ctx, cancel, ended := h.ctx, h.cancel, h.ended
	h.mu.Unlock()
	if ended != nil {
		cancel(ended)
	}
	return ctx
}

// abandon is called when nobody can reach one of the leases. The renewals stop with the last; it then expires by
// itself, and expire tells why. The runtime calls it on a goroutine of its own, which must neither wait nor, in tests,
// touch a channel of a testing/synctest bubble.
func (h *hold) abandon() {
	if !h.leave() {
		return
	}
	h.mu.Lock()
	h.dropped = h.ended == nil && h.renewing
	h.renewing = false
	h.mu.Unlock()
}

func (h *hold) info() LeaseInfo {
	return LeaseInfo{Names: h.lock.res.names, Token: h.token, Fence: h.ballot}
}
