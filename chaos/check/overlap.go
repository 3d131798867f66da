package check

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A belief is the time in which the holder of an op believed that it held the lock: alone, or with others that read or
// that have permits.
type belief struct {
	from, to int64
	op       int32
	reader   bool
	permits  int
}

// overlap reports whether both believed at the same instant; a common edge does not count. A belief of length 0 counts
// if it is inside the other.
func overlap(a, b belief) bool { return a.from < b.to && b.from < a.to }

// overlaps is the result of a sweep over beliefs.
type overlaps struct {
	pairs    int
	together int64 // how long more than one client believed
	longest  int64 // of a pair
}

// sweep finds the overlaps of beliefs, except of two readers. It calls found for the first few pairs, with the earlier
// belief first. It sorts all.
func sweep(all []belief, few int, found func(a, b belief)) (o overlaps) {
	sortBeliefs(all)
	var alone, readers beliefs // those that end after the current one begins
	// The latest ends so far, of beliefs that overlap with anything and of all; together includes the time before counted.
	var lastAlone, last, counted int64 = -1, -1, 0
	tell := func(open beliefs, b belief) {
		o.pairs += len(open)
		for i := 0; i < len(open) && few > 0; i++ {
			found(open[i], b)
			few--
		}
	}
	for _, b := range all {
		alone.drop(b.from)
		readers.drop(b.from)
		until := lastAlone
		tell(alone, b)
		if !b.reader {
			tell(readers, b)
			until = last
		}
		if both := min(b.to, until); both > b.from {
			o.longest = max(o.longest, both-b.from)
			o.together += max(0, both-max(b.from, counted))
			counted = max(counted, both)
		}
		last = max(last, b.to)
		if b.reader {
			heap.Push(&readers, b)
			continue
		}
		lastAlone = max(lastAlone, b.to)
		heap.Push(&alone, b)
	}
	return o
}

// sortBeliefs sorts by their beginning. Of beliefs that begin together, those of length 0 come first, because they
// overlap with none of the others.
func sortBeliefs(all []belief) {
	slices.SortFunc(all, func(a, b belief) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.op, b.op))
	})
}

// sweepPermits finds the beliefs that begin while too few permits are left for them. It calls found for the first few,
// with all that have permits then, and with the time at which enough are left. It sorts all.
func sweepPermits(all []belief, permits, few int, found func(have []belief, b belief, until int64)) (o overlaps) {
	sortBeliefs(all)
	var open beliefs
	taken, counted := 0, int64(0)
	for _, b := range all {
		taken -= open.drop(b.from)
		heap.Push(&open, b)
		taken += b.permits
		if taken <= permits {
			continue
		}
		o.pairs++
		until := open.enough(taken - permits)
		if few > 0 {
			few--
			found(slices.DeleteFunc(slices.Clone(open), func(a belief) bool { return a == b }), b, until)
		}
		o.longest = max(o.longest, until-b.from)
		o.together += max(0, until-max(b.from, counted))
		counted = max(counted, until)
	}
	return o
}

// beliefs is a heap, with the first end on top.
type beliefs []belief

func (h beliefs) Len() int           { return len(h) }
func (h beliefs) Less(i, k int) bool { return h[i].to < h[k].to }
func (h beliefs) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *beliefs) Push(x any)        { *h = append(*h, x.(belief)) }
func (h *beliefs) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	*h = (*h)[:last]
	return b
}

// drop removes the beliefs that have ended by then, and returns how many permits they had.
func (h *beliefs) drop(at int64) (permits int) {
	for len(*h) > 0 && (*h)[0].to <= at {
		permits += heap.Pop(h).(belief).permits
	}
	return permits
}

// enough returns when beliefs that have so many permits have ended.
func (h beliefs) enough(permits int) (until int64) {
	for _, b := range slices.SortedFunc(slices.Values(h), func(a, b belief) int { return cmp.Compare(a.to, b.to) }) {
		if permits <= 0 {
			break
		}
		until = b.to
		permits -= b.permits
	}
	return until
}

// belief returns the belief of an op. One that was handed the lock has it from the moment at which the other stopped:
// nobody else may get in between.
func (j *judge) belief(i int32) belief {
	o := &j.ops[i]
	b := belief{from: o.granted, to: o.believes, op: i, reader: o.reader, permits: o.permits}
	if o.from >= 0 {
		b.from = min(b.from, j.ops[o.from].believes)
	}
	return b
}

func (j *judge) checkOverlap(l *lock) {
	all := make([]belief, 0, len(l.ops))
	for _, i := range l.ops {
		if !j.ops[i].neverBelieved() {
			all = append(all, j.belief(i))
		}
	}
	if j.run.Permits > 0 {
		j.checkPermits(l, all)
		return
	}
	listed := 0
	o := sweep(all, MaxListed, func(a, b belief) {
		listed++
		from, to := b.from, min(a.to, b.to)
		j.violate(Overlap, l, []int32{a.op, b.op}, from, to-from, func() string {
			return fmt.Sprintf("%s and %s both believed that they held %q for %s, from %s to %s; %s",
				j.name(a.op), j.name(b.op), l.name, time.Duration(to-from), clock(from), clock(to),
				j.where([]int32{a.op, b.op}, from))
		})
	})
	j.overlapped(l, o, listed)
	j.closest(all)
}

// checkPermits is checkOverlap for a semaphore.
func (j *judge) checkPermits(l *lock, all []belief) {
	listed := 0
	o := sweepPermits(all, j.run.Permits, MaxListed, func(have []belief, b belief, until int64) {
		listed++
		ops, names, taken := []int32{b.op}, []string{}, b.permits
		slices.SortFunc(have, func(a, b belief) int { return cmp.Compare(a.from, b.from) })
		for _, a := range have {
			ops, names, taken = append(ops, a.op), append(names, j.name(a.op)), taken+a.permits
		}
		j.violate(Overlap, l, ops, b.from, until-b.from, func() string {
			return fmt.Sprintf("%s believed that it held a permit of %q, beside %s: "+
				"%d permits of %d for %s, from %s to %s; %s", j.name(b.op), l.name, strings.Join(names, ", "),
				taken, j.run.Permits, time.Duration(until-b.from), clock(b.from), clock(until),
				j.where(ops, b.from))
		})
	})
	j.overlapped(l, o, listed)
}

// overlapped counts the overlaps of a lock, of which so many are listed.
func (j *judge) overlapped(l *lock, o overlaps, listed int) {
	l.wrongHolders += o.pairs
	j.res.ViolationsFound += o.pairs - listed
	j.res.Overlaps += o.pairs
	j.res.OverlapTime += millis(o.together)
	j.res.OverlapLongest = max(j.res.OverlapLongest, millis(o.longest))
}

// clock formats a time for people.
func clock(at int64) string { return time.Duration(at).String() }
