package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
)

// explains says whether a write that came too late may have cost an update between these lines: one that was
// answered after another had been granted the lock, or one without an answer, which may come at any time. The
// client was stopped then between its look at its lease and its write. No lock can prevent that.
func (r *register) explains(p lostPair) bool {
	n := sort.Search(len(r.late), func(i int) bool { return r.late[i].answerLine >= p.from })
	return n < len(r.late) && r.lateFrom[n] <= p.to ||
		slices.ContainsFunc(r.unclear, func(w write) bool { return w.line <= p.to })
}

// checkLost counts the updates that were lost. Each write is what was read and one more, so if two ops wrote
// the same value, they had read the same, and one update is lost; and if a stale write takes the counter
// back, the values that it has twice from there on are as many as the updates that were lost. So it need not
// be known in which order the writes took effect, but for the last one: what is above it in the end is lost
// too. Where several may be the last one, the largest counts.
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
				return fmt.Sprintf("%s wrote %d to %q, and %s took it back to %d: the update is lost",
					j.name(p.first), p.value, r.name, j.name(p.second), p.wrote)
			}
			return fmt.Sprintf("%s and %s both wrote %d to %q, the latter by %s: one update is lost",
				j.name(p.first), j.name(p.second), p.value, r.name, clock(p.at))
		})
	}
}

// lose notes that the update by which an op wrote value is lost to w, if w is another's.
func (r *register) lose(j *judge, first, w write, value, at int64) {
	if first.op != w.op {
		fenced := r.fenced && w.fence > 0 && j.ops[first.op].fence > 0
		r.lost = append(r.lost, lostPair{first.op, w.op, value, w.value, at, fenced, first.line, w.answerLine})
	}
}
