package redlock

import (
	"errors"
	"time"
)

// The renewals of an ownership (R1 to R3): when one begins, what its answers change, and when to give up.

// nextDue is when tick must be called next. o.mu is held, or no other goroutine has the ownership.
func (o *ownership) nextDue() Instant {
	end := o.deadline().Add(-o.lead())
	switch {
	case !o.renewing:
		return end
	case o.renewal != nil:
		return min(end, o.silentFrom())
	case o.late != nil:
		return end
	default:
		return min(end, o.renewAt)
	}
}

// silentFrom is when nodes that have not answered the renewal in flight count as silent. o.mu is held.
func (o *ownership) silentFrom() Instant {
	if o.spared == o.renewal {
		return o.silentAt
	}
	return o.timeUp(o.renewal)
}

// timeUp is when the time of this renewal is over.
func (o *ownership) timeUp(r *round) Instant { return r.t0.Add(o.client.cfg.nodeTimeout(o.lock.ttl)) }

// isSilent reports whether the time of the renewal in flight is over. If that is found late, it is not, the first time:
// this process stood still, and answers may be here that nobody has read (timer.isOver). o.mu is held.
func (o *ownership) isSilent(now Instant) bool {
	late := now.Sub(o.silentFrom())
	if late <= 0 || o.spared == o.renewal {
		return late >= 0
	}
	o.spared, o.silentAt = o.renewal, now.Add(max(late, o.client.cfg.nodeTimeout(o.lock.ttl)/16))
	return false
}

// tick does what is due now, and tells the scheduler when to call it again. Only the scheduler calls it.
func (o *ownership) tick(now Instant) {
	o.mu.Lock()
	left := o.left
	o.left = nil
	defer func() {
		for _, do := range left { // what clean-ups left to it
			do()
		}
	}()
	if lost, released := o.ended, o.release != nil; lost != nil {
		o.mu.Unlock()
		due := o.dueRelease()
		switch {
		case released:
		case errors.Is(lost, ErrLost) && now < due: // R3: its releases wait for the drift
			o.client.scheduler.setAgain(o, due)
		default:
			o.sendRelease()
		}
		return
	}
	if now >= o.deadline().Add(-o.lead()) {
		o.mu.Unlock()
		o.expire(o.lead())
		o.putBack()
		return
	}
	var late, begun *round
	var unsent []unsentTo
	if r := o.renewal; r != nil && o.isSilent(now) {
		late = r
	}
	if o.renewing && o.renewal == nil && o.late == nil && now >= o.renewAt {
		begun, unsent = o.sendRenewal()
		o.renewal = begun
	}
	due := o.nextDue()
	o.mu.Unlock()

	switch {
	case late != nil:
		if late.expire(errSilent) {
			o.renewalFailed(late)
			o.putBack()
			return
		}
		due = now.Add(o.lead()) // the round was decided just now; extended is about to set the next due
	case begun != nil:
		begun.recordUnsent(unsent)
	}
	o.client.scheduler.setAgain(o, due)
}

// putBack hands the ownership to the scheduler again after a tick that meant to end the lease, or to say when to call it
// again, and found that another goroutine had just ended it. Until that one has sent the release, Close must find the
// ownership there (L2). Otherwise this changes nothing: it was handed over already, for no later instant.
func (o *ownership) putBack() { o.client.scheduler.setAgain(o, o.dueRelease()) }

// beginRenewal sends a renewal now, unless the lease has ended.
func (o *ownership) beginRenewal() (*round, error) {
	o.mu.Lock()
	if o.ended != nil {
		defer o.mu.Unlock()
		return nil, o.ended
	}
	r, unsent := o.sendRenewal()
	o.mu.Unlock()
	r.recordUnsent(unsent)
	return r, nil
}

// sendRenewal sends a renewal to all nodes. The caller counts the votes of those that did not accept it. A renewal may
// take the keys on a node that never had them (R2). So it is sent under the mutex under which a release begins: no
// renewal follows the release, and the release goes to these nodes too. o.mu is held.
func (o *ownership) sendRenewal() (*round, []unsentTo) {
	c := o.client
	if o.acquire != nil { // what was granted after the verdict
		waiting := o.acquire.awaited() // read first: who grants meanwhile is noted by the next renewal
		o.grantedIn(o.acquire)
		if waiting == 0 {
			o.acquire = nil
		}
	}
	r := c.renew(o)
	reached, unsent := c.enqueue(r, c.allNodes(), 0)
	o.reached |= reached
	o.taking |= reached & r.takeAt
	return r, unsent
}

// whileHeld calls send, which sends this renewal to a node once more, and reports whether it did. It does not if the lease
// has ended or expired (R2), or if keys were planted meanwhile: the node may have some of them, and the renewal knows only
// who was vouched for when it began (R1). It holds the mutex under which a release begins, as sendRenewal.
func (o *ownership) whileHeld(r *round, send func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil || r.plants != o.plants || o.client.cfg.Clock.Now() >= o.deadline() {
		return false
	}
	send()
	return true
}

// acquiredBy notes the nodes that granted the keys, and the round if others may still grant them.
func (o *ownership) acquiredBy(r *round) {
	waiting := r.awaited()
	o.proven.Store(uint64(r.relied))
	o.grantedIn(r)
	if waiting != 0 {
		o.acquire = r
	}
}

// grantedIn notes the nodes that granted the acquire: they were vouched for with the grant (Q1). Where a renewal was sent that
// may take the keys, the grant proves nothing: the node may have lost them, and its answer may be lost that it took them anew.
// o.mu is held, or no other goroutine has the ownership.
func (o *ownership) grantedIn(r *round) {
	nodes := r.grantedBy()
	o.had.Or(uint64(nodes))
	if nodes&^o.provenAt()&^o.taking != 0 {
		o.provedIn(r, o.taking)
	}
}

// hadKeys is the nodes that said once that they have the keys. A renewal takes the keys on the other nodes. A node that
// had them and lacks them now forgot them, or somebody deleted them: there they are not taken (R2).
func (o *ownership) hadKeys() nodeSet { return nodeSet(o.had.Load()) }

// onceHad is hadKeys, and the nodes that granted the acquire after it was won. Only these can have lost the keys (L1).
func (o *ownership) onceHad() nodeSet {
	o.mu.Lock()
	acquire := o.acquire
	o.mu.Unlock()
	had := o.hadKeys()
	if acquire != nil {
		had |= acquire.grantedBy()
	}
	return had
}

// hasKeys notes that the node said that it has the keys.
func (o *ownership) hasKeys(node int) {
	if !o.hadKeys().has(node) {
		o.had.Or(1 << node)
	}
}

// extended is called with each node's answer to a round of extend.lua. decides says that this answer made the verdict.
func (o *ownership) extended(r *round, node int, a answer, v verdict, decides bool) {
	if a.vote == granted {
		o.hasKeys(node)
		o.keeps(r, node)
	}
	if v == won && (decides || r.tooLate.Load()) {
		o.prolong(r)
	}
	if v == lost && r.isByTime() {
		o.answeredLate(r)
	}
	if v == won && r.grantedBy()&^o.provenAt() != 0 {
		o.mu.Lock()
		o.provedIn(r, 0)
		o.mu.Unlock()
	}
	if decides && v == lost {
		o.renewalFailed(r)
	}
	if v != won && !o.client.protocol.omits(takenOnce) {
		return
	}
	// R2: a quorum has extended, so no other client has one, and the keys may be planted where they are missing.
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
		o.plant(lacking)
	}
}

// answeredLate is called with each answer to a renewal whose time is over (R3).
func (o *ownership) answeredLate(r *round) {
	wonLate, mayBe := r.lateVotes(o.provenAt())
	if mayBe {
		return
	}
	if wonLate {
		o.prolong(r)
	}
	o.mu.Lock()
	again := o.late == r && o.ended == nil // it was of no use
	if again {
		o.late = nil
	}
	due := o.nextDue()
	o.mu.Unlock()
	if again {
		o.client.scheduler.set(o, due)
	}
}

// plant puts the keys back on these nodes, if the lease is still valid and not released (R2). It holds the mutex under
// which a release begins, so that no plant is sent after the release.
func (o *ownership) plant(lacking nodeSet) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil || o.client.cfg.Clock.Now() >= o.deadline() {
		return
	}
	// The node may have forgotten another client's vote, and nobody vouches for it now: until somebody does, it does not
	// count in a renewal, though it has the keys (R1).
	o.writtenAnew(lacking)
	o.reached |= o.client.plant(o, lacking)
}

// plantAnswered is called with each node's answer to a plant.
func (o *ownership) plantAnswered(_ *round, node int, a answer, _ verdict, _ bool) {
	if a.vote == granted {
		o.hasKeys(node)
	}
}

// prolong sets the validity that a won round gives, counted from the round's t0 (R1). It does not bring back a lease
// whose validity has ended (R2). If the lease cannot rely on the round before that (C2), the renewal has failed, unless
// another node still answers.
func (o *ownership) prolong(r *round) {
	ttl := o.lock.ttl
	cfg := &o.client.cfg
	o.mu.Lock()
	counted, apart := r.reliesOn(o.provenAt())
	now := cfg.Clock.Now() // not before: this goroutine may have waited for the mutex until the lease expired
	until := now.Add(validityOf(ttl, now.Sub(r.t0), driftOf(ttl, cfg.Drift), bandCost(cfg.band(ttl), apart)))
	if o.ended == nil && now < o.deadline() && o.mustWait(counted, apart, now) {
		o.mu.Unlock()
		if !r.isByTime() && !r.tooLate.Swap(true) {
			o.renewalFailed(r)
		}
		return
	}
	r.tooLate.Store(false)
	if o.renewal == r {
		o.renewal = nil
		o.traceRenewal(now.Sub(r.t0), nil)
	}
	if o.ended != nil || now >= o.deadline() {
		o.mu.Unlock()
		return
	}
	if o.limit != 0 && until >= o.limit {
		until = o.limit
		o.renewing = false
	}
	if valid := o.validUntil(); until < valid || until == valid && r.t0 <= o.written { // a later round was faster and gave more
		o.mu.Unlock()
		return
	}
	o.until.Store(int64(until))
	o.keepByNode()
	o.written = r.t0
	o.failures, o.failed, o.late = 0, nil, nil
	o.renewAt = r.t0.Add(ttl / 3)
	due := o.nextDue()
	if hook := o.client.cfg.Hooks.Extended; hook != nil {
		// It is queued under mu, so that it comes before whatever happens after this renewal.
		info := o.info()
		o.story.tell(func() { hook(info, until.Sub(now), now.Sub(r.t0)) })
	}
	watches := o.watch != nil
	o.mu.Unlock()
	o.client.scheduler.set(o, due)
	if watches {
		o.lookForWaiters()
	}
}

// renewalFailed tries again with backoff. If so many nodes that had the keys once no longer have them that no quorum is
// left, it gives up at once, because these nodes will not change their answer (R3).
func (o *ownership) renewalFailed(r *round) {
	now := o.client.cfg.Clock.Now()
	_, votes := r.snapshot()
	had := o.onceHad() &^ r.takeAt // when it was sent
	refused := votes.refused(had) && !o.client.protocol.omits(takenOnce)
	kind := ErrNoQuorum
	if refused {
		kind = ErrLost
	}
	o.mu.Lock()
	scheduled := o.renewal == r
	wonLate, mayBe := r.lateVotes(o.provenAt())
	if scheduled {
		o.renewal = nil
		if mayBe {
			o.late = r
		}
	}
	if o.ended != nil {
		o.mu.Unlock()
		return
	}
	if wonLate { // its last answers came just after its time was over
		if scheduled {
			o.traceRenewal(now.Sub(r.t0), nil)
		}
		due := o.nextDue()
		o.mu.Unlock()
		o.client.scheduler.set(o, due)
		return
	}
	o.failures++
	o.failed = r
	backoff := min(10*time.Millisecond<<min(o.failures, 8), o.lock.ttl/6)
	// The nodes may come back at any time, so it asks more often as the end comes nearer: a lease must not end beside a quorum
	// that votes, only because it pauses.
	backoff = min(backoff, max(o.validUntil().Sub(now)/4, 10*time.Millisecond))
	if votes.votedBy(denied)&^had != 0 { // waiters may pass a node from one to the next: there are only moments to take it (R2)
		backoff = min(backoff, o.lock.ttl/100)
	}
	o.renewAt = now.Add(o.client.jitter(backoff))
	due := o.nextDue()
	err := o.renewalError(r, kind)
	o.tell(o.client.cfg.Hooks.ExtendFailed, err) // under mu, as in prolong: it comes before the end of the lease
	if scheduled {
		o.traceRenewal(now.Sub(r.t0), err)
	}
	o.mu.Unlock()
	if refused {
		o.lose(err)
		return
	}
	o.client.scheduler.set(o, due)
}

// renewalError is the error of a renewal that failed.
func (o *ownership) renewalError(r *round, kind error) *RoundError {
	note := ""
	if r.tooLate.Load() {
		note = "so far as the nodes' clocks may be apart, the lease would end before it may rely on those that have just taken the lock"
	}
	return r.error(kind, o.lock.res.names, o.client.nodes, note)
}
