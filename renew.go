package redlock

import (
	"errors"
	"time"
)

// The renewals of a hold (R1–R3).

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
	if lost, released := h.ended, h.release != nil; lost != nil {
		h.mu.Unlock()
		due := h.dueRelease()
		switch {
		case released:
		case errors.Is(lost, ErrLost) && now < due: // it was lost after this tick was due
			h.client.scheduler.setAgain(h, due)
		default:
			h.sendRelease()
		}
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
	if hook := h.client.cfg.Hooks.Extended; hook != nil { // queued before whatever comes after this renewal
		hook(h.info(), until.Sub(now), now.Sub(r.t0))
	}
	h.mu.Unlock()
	h.client.scheduler.set(h, due)
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
