package redlock

import "time"

// What stays under a key on nodes that nobody needs for the lock, and is in no attempt's way but that of who asks such a node
// first (W3): what another program wrote there, or a holder that died.

// A stranger is an owner on a node that nobody needs who wants the lock.
type stranger struct {
	owner       string
	first, last Instant // when it was met there
}

// metTime is for how long a node is not asked first after an owner that stays was last met there.
const metTime = 3 * time.Second

// meet notes who has the key on nodes that denied this round, which asked all, and has no quorum. Of several names, a denial
// does not say which one it is about.
func (w *waiters) meet(res *resource, r *round) {
	if len(res.keys) > 1 || r.deniedBy() == 0 {
		return
	}
	answers, _ := r.snapshot()
	now := w.client.cfg.Clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.key(res.keys[0])
	for i, a := range answers {
		d := a.denial
		if d == nil || !d.hasOneOwner() {
			continue
		}
		at := 0
		for _, b := range answers {
			if b.denial != nil && b.denial.reason == held && b.denial.owner == d.owner {
				at++
			}
		}
		if len(answers)-at < w.client.need {
			continue // it is in the way
		}
		met := k.met[i]
		if met.owner != d.owner || now.Sub(met.last) > metTime {
			met = stranger{owner: d.owner, first: now}
		}
		met.last = now
		w.metAt.Store(int64(now))
		if k.met == nil {
			k.met = map[int]stranger{}
		}
		k.met[i] = met
	}
}

// metByNow is the nodes where an owner stays that is not in the way: it has had the key there for longer than any attempt.
func (w *waiters) metByNow(res *resource) (nodes nodeSet) {
	last := Instant(w.metAt.Load())
	if last == longAgo { // mostly: every acquire comes here, and takes no mutex
		return 0
	}
	now := w.client.cfg.Clock.Now()
	if now.Sub(last) >= metTime {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range res.keys {
		if k := w.keys[key.(string)]; k != nil {
			for i, met := range k.met {
				if met.last.Sub(met.first) >= 2*w.client.cfg.NodeTimeout && now.Sub(met.last) < metTime {
					nodes.add(i)
				}
			}
		}
	}
	return nodes
}
