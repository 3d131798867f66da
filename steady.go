package redlock

import "time"

// The clock of a node from when the node took the keys until it counts (R1, C2). If it was ahead, another client's key may
// have ended there too early, and that client may rely on it for as long as its lease lasts.

// provedIn notes that the nodes that count in this round, which was won, were vouched for since they have the keys. Of keys
// that were planted after it was sent, it says nothing. o.mu is held.
func (o *ownership) provedIn(r *round) {
	counted, apart := r.counted()
	if o.mustWait(counted, apart, o.client.cfg.Clock.Now()) {
		return
	}
	if r.plants != o.plants {
		counted &^= o.planted
	}
	o.proven.Or(uint64(counted))
	o.sightings.drop(counted)
}

// mustWait reports whether some of these nodes, whose clocks may be so far apart, are not proven, and the validity ends
// before the lease may rely on them: for the keys that such a node took, this is the later quorum (C2). o.mu is held.
func (o *ownership) mustWait(counted nodeSet, apart time.Duration, now Instant) bool {
	wait := bandWait(o.client.cfg.band(o.lock.ttl), apart)
	return wait > 0 && counted&^o.provenAt() != 0 && now.Add(wait) >= o.deadline()
}

// A sighting is what a node's clock showed when the node was first heard to have the keys, and when that was.
type sighting struct {
	clock span
	at    Instant
}

// sightings are by node.
type sightings map[int]sighting

func (s *sightings) add(node int, first sighting) {
	if _, seen := (*s)[node]; seen {
		return
	}
	if *s == nil {
		*s = sightings{}
	}
	(*s)[node] = first
}

func (s sightings) drop(nodes nodeSet) {
	for node := range s {
		if nodes.has(node) {
			delete(s, node)
		}
	}
}

// steady reports whether the clock of a node that is not proven was not set since the node has the keys (R1). If it was,
// another client's key may have ended there too early, unseen: the node does not count before that client's lease is over,
// whatever its clock shows now. If not, the span of its answer covers what it showed then.
func (o *ownership) steady(node int, clock *span) bool {
	cfg := &o.client.cfg
	band := cfg.band(o.lock.ttl)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.acquire != nil { // a late grant of this node came before this answer
		o.grantedIn(o.acquire)
	}
	now := cfg.Clock.Now()
	first, seen := o.sightings[node]
	switch {
	case band < 0 || o.provenAt().has(node):
		return true
	case !seen:
		o.sightings.add(node, sighting{*clock, now})
		return true
	case now.Sub(first.at) > cfg.MaxTTL+driftOf(cfg.MaxTTL, cfg.Drift):
		return true
	case !first.clock.agrees(*clock, toleranceOf(band).Microseconds()):
		return false
	}
	*clock = clock.with(first.clock)
	return true
}
