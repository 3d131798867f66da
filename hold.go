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

	until atomic.Int64 // Instant: the end of the validity
	over  atomic.Bool  // ended is set

	due   Instant // the scheduler's
	place int     // the scheduler's; -1: not queued

	mu       sync.Mutex      // guards the rest; nodes are sent to under it, nothing else is called
	ended    error           // why the lease ended; nil while it is held
	ctx      context.Context // ends with the hold; nil until somebody asks
	cancel   context.CancelCauseFunc
	leases   int     // that have not been released, nor dropped; more than one after re-entry
	reached  nodeSet // the nodes that may have the keys
	renewing bool
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

// nextDue is when tick is to be called next. h.mu is held, or the hold is not shared yet.
func (h *hold) nextDue() Instant {
	end := h.last().Add(-h.lead())
	switch {
	case !h.renewing:
		return end
	case h.renewal != nil:
		return min(end, h.renewal.t0.Add(h.client.cfg.nodeTimeout(h.lock.ttl)))
	default:
		return min(end, h.renewAt)
	}
}

// tick does what is due, and says when it is to be called again. The scheduler calls it.
func (h *hold) tick(now Instant) {
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		h.sendRelease() // a lost lease's, once its keys should have expired
		return
	}
	if now >= h.last().Add(-h.lead()) {
		h.mu.Unlock()
		h.expire()
		return
	}
	var late, begun *round
	if r := h.renewal; r != nil && now >= r.t0.Add(h.client.cfg.nodeTimeout(h.lock.ttl)) {
		late = r
	}
	if h.renewing && h.renewal == nil && now >= h.renewAt {
		begun = h.client.renew(h)
		h.renewal = begun
	}
	due := h.nextDue()
	h.mu.Unlock()

	switch {
	case late != nil:
		if late.expire(errSilent) {
			h.renewalFailed(late)
			return
		}
		due = now.Add(h.lead()) // decided just now: its verdict is on the way here
	case begun != nil:
		for _, n := range h.client.nodes {
			n.send(begun, false)
		}
	}
	h.client.scheduler.setAgain(h, due)
}

// extended hears each node's answer to a round of extend.lua.
func (h *hold) extended(r *round, node int, a answer, v verdict, decides bool) {
	if decides && v == won {
		h.prolong(r)
	}
	if decides && v == lost {
		h.renewalFailed(r)
	}
	if v != won && !h.client.protocol.lacks(takenOnce) {
		return
	}
	// R2: a quorum has extended, so no other can have one; put back what is missing elsewhere.
	lacking := nodeSet(0)
	if decides {
		answers, _ := r.snapshot()
		for i, a := range answers {
			if a.denial != nil && a.denial.reason == missing {
				lacking.add(i)
			}
		}
	} else if a.denial != nil && a.denial.reason == missing {
		lacking.add(node)
	}
	if lacking != 0 {
		h.plant(lacking)
	}
}

// plant puts the lease back on these nodes, if it still stands. That is decided under the mutex under which
// a release begins, so that no planting can come after the release.
func (h *hold) plant(lacking nodeSet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil || h.client.cfg.Clock.Now() >= h.last() {
		return
	}
	for i := range h.client.nodes {
		if lacking.has(i) && h.client.plant(h, i) {
			h.reached.add(i)
		}
	}
}

// prolong takes the validity that a won round gives, counted from the round's start. It does not revive a
// lease whose validity has ended (R2).
func (h *hold) prolong(r *round) {
	now := h.client.cfg.Clock.Now()
	ttl := h.lock.ttl
	cfg := &h.client.cfg
	_, slack := r.counted()
	until := now.Add(validityOf(ttl, now.Sub(r.t0), driftOf(ttl, cfg.Drift), bandCost(cfg.band(ttl), slack)))
	h.mu.Lock()
	if h.renewal == r {
		h.renewal = nil
	}
	if h.ended != nil || now >= h.last() {
		h.mu.Unlock()
		return
	}
	if h.limit != 0 && until >= h.limit {
		until = h.limit
		h.renewing = false
	}
	if until <= h.validUntil() { // nothing new: a later round was faster
		h.mu.Unlock()
		return
	}
	h.until.Store(int64(until))
	h.failures = 0
	h.renewAt = r.t0.Add(ttl / 3)
	due := h.nextDue()
	h.mu.Unlock()
	h.client.scheduler.set(h, due)
	if hook := h.client.cfg.Hooks.Extended; hook != nil {
		hook(h.info(), until.Sub(now), now.Sub(r.t0))
	}
}

// renewalFailed tries again soon, or gives up if so many nodes say that the lease is not ours that no
// quorum is left to extend it: those nodes will not say otherwise later.
func (h *hold) renewalFailed(r *round) {
	now := h.client.cfg.Clock.Now()
	h.mu.Lock()
	if h.renewal == r {
		h.renewal = nil
	}
	if h.ended != nil {
		h.mu.Unlock()
		return
	}
	h.failures++
	backoff := min(10*time.Millisecond<<min(h.failures, 8), h.lock.ttl/6)
	h.renewAt = now.Add(h.client.jitter(backoff))
	due := h.nextDue()
	h.mu.Unlock()

	_, votes := r.snapshot()
	refused := votes.refused() && !h.client.protocol.lacks(takenOnce)
	kind := ErrNoQuorum
	if refused {
		kind = ErrLost
	}
	err := r.error(kind, h.lock.res.names, h.client.nodes, "")
	if hook := h.client.cfg.Hooks.ExtendFailed; hook != nil {
		hook(h.info(), err)
	}
	if refused {
		h.lose(err)
		return
	}
	h.client.scheduler.set(h, due)
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
	h.client.scheduler.set(h, h.validUntil().Add(driftOf(h.lock.ttl, h.client.cfg.Drift)))
	h.client.cfg.Logger.Warn("redlock: lease lost", "names", h.lock.res.names, "error", why)
	if hook := h.client.cfg.Hooks.Lost; hook != nil {
		hook(h.info(), err)
	}
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
	favour, keep := c.watch.favours(h.lock.res), keepTime
	if favour {
		keep = 0
	}
	r := c.newRound(c.protocol.release, h.lock.res.keys, []any{h.boxed, millis(keep)}, c.cfg.Clock.Now())
	r.answered = h.freed
	h.release = r
	reached := h.reached
	h.mu.Unlock()
	c.tell(r, reached)
	if favour {
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
	defer h.mu.Unlock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(context.Background())
		if h.ended != nil {
			h.cancel(h.ended)
		}
	}
	return h.ctx
}

// abandon is called when nobody can reach one of the leases. The renewals stop with the last; it then expires by
// itself.
func (h *hold) abandon() {
	if !h.leave() {
		return
	}
	h.mu.Lock()
	held := h.ended == nil && h.renewing
	h.renewing = false
	h.mu.Unlock()
	if held {
		h.client.cfg.Logger.Warn("redlock: lease dropped without release; it is no longer renewed", "names", h.lock.res.names)
	}
}

func (h *hold) info() LeaseInfo {
	return LeaseInfo{Names: h.lock.res.names, Token: h.token, Fence: h.ballot}
}
