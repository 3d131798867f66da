package check

import (
	"cmp"
	"math/bits"
	"slices"
)

// A possible state of a register: its content, and which of the calls in flight have taken effect.
type possible struct {
	content
	done uint64 // by slot
}

// settled has all reads and refusals take effect that change nothing: nothing is gained by a delay of these. A
// write that changes nothing now may do so later.
func (w *walk) settled(p possible) possible {
	for left := w.used &^ p.done &^ w.never; left != 0; left &= left - 1 {
		slot := bits.TrailingZeros64(left)
		c := &w.calls[w.slots[slot]]
		if c.in.kind == writes && c.out == known {
			continue
		}
		if after, ok := p.step(c.in, c.out, w.fenced); ok && after == p.content {
			p.done |= 1 << slot
		}
	}
	return p
}

// step is the register's own, helped by a fence that it may have seen where a refusal needs one. The smallest
// will do, as it can see a larger one later.
func (w *walk) step(c content, of *call) (content, bool) {
	after, ok := c.step(of.in, of.out, w.fenced)
	if ok || of.out != denied {
		return after, ok
	}
	at, _ := slices.BinarySearch(w.ghosts, of.in.fence+1)
	if at == len(w.ghosts) {
		return c, false
	}
	c.fence = w.ghosts[at]
	return c, true
}

// forced are the contents that there may be after a call that this one does not allow. After a wrong read the
// register may contain what was read, or what it did before: so one lie is told once.
func (c content) forced(in input, out result, fenced bool) []content {
	if out == denied {
		return []content{c}
	}
	if fenced {
		c.fence = max(c.fence, in.fence)
	}
	after := c
	after.known, after.value = true, in.value
	if in.kind == reads {
		return []content{after, c}
	}
	return []content{after}
}

// fewest leaves out a state that another makes superfluous: the same, with more writes without an answer still
// to come, or not.
func (w *walk) fewest(all []possible) []possible {
	all = slices.CompactFunc(sorted(all), func(a, b possible) bool { return a == b })
	if w.never == 0 || len(all) > 1000 {
		return all
	}
	var kept []possible
	for i, a := range all {
		if !slices.ContainsFunc(all[:i], func(b possible) bool { return w.covers(b, a) }) &&
			!slices.ContainsFunc(all[i+1:], func(b possible) bool { return w.covers(b, a) }) {
			kept = append(kept, a)
		}
	}
	return kept
}

// covers says whether all that can come after b can come after a.
func (w *walk) covers(a, b possible) bool {
	return a != b && a.content == b.content && a.done&^w.never == b.done&^w.never && a.done&^b.done == 0
}

func sorted(all []possible) []possible {
	slices.SortFunc(all, func(a, b possible) int {
		return cmp.Or(cmp.Compare(a.fence, b.fence), cmp.Compare(a.value, b.value), cmp.Compare(a.done, b.done))
	})
	return all
}
