package redlock

import (
	"errors"
	"slices"
	"time"
)

// The nodes that are proven: they were vouched for since they have the keys of a lease (Q1, R1), and have counted since, with
// clocks in step (C2). A node that is not proven counts for the first time only under more conditions. For if its clock was
// ahead when it took the keys, another client's key may have ended there too early, and that client may rely on it.

// provenAt is these nodes.
func (o *ownership) provenAt() nodeSet { return nodeSet(o.proven.Load()) }

// provedIn notes that the nodes that count in this round, which was won, were vouched for since they have the keys, but for
// these. Of keys that were planted or taken anew after it was sent, it says nothing. o.mu is held.
func (o *ownership) provedIn(r *round, but nodeSet) {
	counted, apart := r.counted()
	counted &^= but
	now := o.client.cfg.Clock.Now()
	if o.mustWait(counted, apart, now) {
		return
	}
	if r.plants != o.plants {
		counted &^= o.planted
	}
	if counted&^o.provenAt() != 0 {
		o.reliesFrom = max(o.reliesFrom, now.Add(bandWait(o.client.cfg.band(o.lock.ttl), apart)))
	}
	o.proven.Or(uint64(counted))
}

// mustWait reports whether some of these nodes, whose clocks may be so far apart, are not proven, and the validity ends
// before the lease may rely on them: for the keys that such a node took, this is the later quorum (C2). o.mu is held.
func (o *ownership) mustWait(counted nodeSet, apart time.Duration, now Instant) bool {
	wait := bandWait(o.client.cfg.band(o.lock.ttl), apart)
	return wait > 0 && counted&^o.provenAt() != 0 && now.Add(wait) >= o.deadline()
}

// writtenAnew notes that the keys on these nodes are not those of before: what was proven of those, or is yet to be proven by
// a round that was sent before, says nothing of these. o.mu is held.
func (o *ownership) writtenAnew(nodes nodeSet) {
	o.plants++
	o.planted |= nodes
	o.proven.And(^uint64(nodes))
}

// keeps notes that the node prolonged the keys in this round.
func (o *ownership) keeps(r *round, node int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keepByNode()
	o.kept[node] = max(o.kept[node], o.keptFrom(r.t0))
}

// keepByNode makes kept, before a renewal changes what the acquire gave. o.mu is held.
func (o *ownership) keepByNode() {
	if o.kept == nil {
		o.kept = slices.Repeat([]Instant{o.keptFrom(o.written)}, len(o.client.nodes))
	}
}

// keptFrom is until when a key lasts at least that was written or prolonged after t0.
func (o *ownership) keptFrom(t0 Instant) Instant {
	return t0.Add(o.lock.ttl - driftOf(o.lock.ttl, o.client.cfg.Drift))
}

// lapses is called when the node says again that it has the keys.
func (o *ownership) lapses(node int) {
	o.mu.Lock()
	o.lapseAt(1 << node)
	o.mu.Unlock()
}

// lapseAt takes away the proof of those of these nodes where the keys may have ended since they were heard of. Another client
// may have got the node then. If the keys are there all the same, they came with the data of another node, whose replica the
// server was or whose files it got. o.mu is held.
func (o *ownership) lapseAt(nodes nodeSet) {
	nodes &= o.provenAt()
	if nodes == 0 {
		return
	}
	o.keepByNode()
	now, lapsed := o.client.cfg.Clock.Now(), nodeSet(0)
	for node, until := range o.kept {
		if nodes.has(node) && now >= until {
			lapsed.add(node)
		}
	}
	if lapsed != 0 {
		o.writtenAnew(lapsed)
	}
}

// took notes that a renewal took the keys on this node. If it had them before, it lost them in between. That
// happens if the renewal was sent before the client heard that the node had granted the acquire.
func (o *ownership) took(node int) {
	o.mu.Lock()
	had, reader := o.hadKeys(), o.reader
	if o.acquire != nil {
		had |= o.acquire.grantedBy() | o.acquire.vouchingNow()
	}
	if had.has(node) {
		o.writtenAnew(1 << node)
	}
	o.mu.Unlock()
	if reader != nil { // the writer's keys are the reader's now
		reader.took(node)
	}
}

// suspects is the nodes without a proof that another client may rely on, as far as this renewal tells, which was won: their
// clocks are out of step or were set back, another client has the lock there, they may not grant, or nothing is known of them.
// o.mu is held.
func (o *ownership) suspects(r *round) (nodes nodeSet) {
	answers, votes := r.snapshot()
	if votes.clocks == nil {
		return 0
	}
	counted, _ := votes.counted()
	granting := r.vouchingNow() // the vote of such a node has no answer yet, but a clock
	for node, a := range answers {
		heard := a.micros != 0 && !errors.Is(a.err, errClockSet) || granting.has(node)
		others := a.denial != nil && a.denial.reason == held // a later renewal may take it when that client's key ends too early
		if !heard || others || a.unready || votes.isOutOfStep(node, counted) {
			nodes.add(node)
		}
	}
	return nodes &^ o.provenAt()
}
