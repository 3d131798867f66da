package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
)

// explains reports whether a late write may have destroyed the update between these lines: a write that was answered
// after another op was granted the lock, or a write without an answer, which may arrive at any time. Its client was
// stopped between its look at the lease and its write. No lock can prevent that.
func (r *register) explains(p lostPair) bool {
	n := sort.Search(len(r.late), func(i int) bool { return r.late[i].answerLine >= p.from })
	return n < len(r.late) && r.lateFrom[n] <= p.to ||
		slices.ContainsFunc(r.unclear, func(w write) bool { return w.line <= p.to })
}

// checkLost counts lost updates. Each op writes one more than it read. If two ops wrote the same value, both read the
// same value, and one update is lost. If a stale write sets the counter back, the values of the lost updates are
// written a second time. So the order of the writes does not matter, except for the last one: all larger values are
// lost too. If several writes may be the last one, the largest counts.
func (j *judge) checkLost(r *register) {
	if len(r.tail) > 0 {
		last := slices.MaxFunc(r.tail, func(a, b write) int { return cmp.Compare(a.value, b.value) })
		values := slices.Sorted(maps.Keys(r.writers))
		n, _ := slices.BinarySearch(values, last.value+1)
		for _, value := range values[n:] {
			r.lose(j, r.writers[value], last, value, j.at)
		}
	}
	r.lateFrom = make([]int, len(r.late))
	for i, w := range slices.Backward(r.late) {
		if r.lateFrom[i] = w.line; i+1 < len(r.late) {
			r.lateFrom[i] = min(w.line, r.lateFrom[i+1])
		}
	}
	for _, p := range r.lost {
		j.res.LostUpdates++
		if p.fenced {
			j.res.FencedLostUpdates++
		}
		if !p.fenced && !overlap(j.belief(p.first), j.belief(p.second)) && r.explains(p) {
			continue
		}
		j.violate(LostUpdate, r.lock, []int32{p.first, p.second}, p.at, 0, func() string {
			if p.value != p.wrote {
				return fmt.Sprintf("%s wrote %d to %q, and %s set it back to %d: the update is lost",
					j.name(p.first), p.value, r.name, j.name(p.second), p.wrote)
			}
			return fmt.Sprintf("%s and %s both wrote %d to %q, the second at %s: one update is lost",
				j.name(p.first), j.name(p.second), p.value, r.name, clock(p.at))
		})
	}
}

// lose records that the write w destroyed the update of first, unless both are by the same op.
func (r *register) lose(j *judge, first, w write, value, at int64) {
	if first.op != w.op {
		fenced := r.fenced && w.fence > 0 && j.ops[first.op].fence > 0
		r.lost = append(r.lost, lostPair{first.op, w.op, value, w.value, at, fenced, first.line, w.answerLine})
	}
}
