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

// settled lets all reads and refusals take effect that change nothing, because delaying them makes no difference. A
// write that changes nothing now may change something later.
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

// step is the step of the register. If a refusal needs a larger fencing token than the register has seen, step uses the
// smallest that it may have seen. A larger one can be seen later.
func (w *walk) step(c content, of *call) (content, bool) {
	after, ok := c.step(of.in, of.out, w.fenced)
	if ok || of.out != denied {
		return after, ok
	}
	at, _ := slices.BinarySearch(w.loose, of.in.fence+1)
	if at == len(w.loose) {
		return c, false
	}
	c.fence = w.loose[at]
	return c, true
}

// forced returns the possible contents after a call that the content does not allow. After a wrong read the register
// may contain the value that was read, or the value from before. So one wrong answer is reported only once.
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

// fewest leaves out redundant states: those that another state covers.
func (w *walk) fewest(all []possible) []possible {
	all = slices.CompactFunc(sorted(all), func(a, b possible) bool { return a == b })
	if w.never == 0 || len(all) > 1000 {
		return all
	}
	var needed []possible
	for i, a := range all {
		if !slices.ContainsFunc(all[:i], func(b possible) bool { return w.covers(b, a) }) &&
			!slices.ContainsFunc(all[i+1:], func(b possible) bool { return w.covers(b, a) }) {
			needed = append(needed, a)
		}
	}
	return needed
}

// covers reports whether everything that can follow b can also follow a.
func (w *walk) covers(a, b possible) bool {
	return a != b && a.content == b.content && a.done&^w.never == b.done&^w.never && a.done&^b.done == 0
}

func sorted(all []possible) []possible {
	slices.SortFunc(all, func(a, b possible) int {
		return cmp.Or(cmp.Compare(a.fence, b.fence), cmp.Compare(a.value, b.value), cmp.Compare(a.done, b.done))
	})
	return all
}
