package check

import "math"

// margin is how close a lock came to an overlap: the least time from the end of a belief to the next grant. It is below 0
// if two believed at the same time. A holder that releases lets the next one in at once, so only a belief that ended by
// itself counts: its lease was over, or lost. false: there was none with a grant after it. A semaphore has no
// margin: several may have permits.
func (j *judge) margin(all []belief) (least int64, found bool) {
	least = math.MaxInt64
	// Who believes for longest so far: of all, and of those that are alone.
	last, lastAlone := belief{op: -1}, belief{op: -1}
	for _, b := range all { // sorted by their beginning
		before := last
		if b.reader {
			before = lastAlone
		}
		if before.op >= 0 && j.ops[b.op].from < 0 {
			between := b.from - before.to
			if o := &j.ops[before.op]; between < 0 || o.ended && o.over < o.released {
				least = min(least, between)
			}
		}
		if b.to >= last.to {
			last = b
		}
		if !b.reader && b.to >= lastAlone.to {
			lastAlone = b
		}
	}
	return least, least < math.MaxInt64
}

// closest notes the margin of a lock if it is the least one so far.
func (j *judge) closest(all []belief) {
	if between, found := j.margin(all); found && (j.res.Margin == nil || millis(between) < *j.res.Margin) {
		j.res.Margin = toMillis(between)
	}
}
