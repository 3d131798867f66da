package check

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"
)

// A belief is the time in which the holder of an op believed that it alone held the lock.
type belief struct {
	from, to int64
	op       int32
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

// sweep finds the overlaps. It calls found for the first few pairs, with the earlier belief first. It sorts all.
func sweep(all []belief, few int, found func(a, b belief)) (o overlaps) {
	// Of beliefs that begin together, those of length 0 come first, because they overlap with none of the others.
	slices.SortFunc(all, func(a, b belief) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.op, b.op))
	})
	var open beliefs                // those that end after the current one begins: each overlaps with it
	var last, counted int64 = -1, 0 // the latest end so far; together includes the time before counted
	for _, b := range all {
		for len(open) > 0 && open[0].to <= b.from {
			heap.Pop(&open)
		}
		o.pairs += len(open)
		for i := 0; i < len(open) && few > 0; i++ {
			found(open[i], b)
			few--
		}
		if both := min(b.to, last); both > b.from {
			o.longest = max(o.longest, both-b.from)
			o.together += max(0, both-max(b.from, counted))
			counted = max(counted, both)
		}
		last = max(last, b.to)
		heap.Push(&open, b)
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

func (j *judge) belief(i int32) belief {
	return belief{from: j.ops[i].granted, to: j.ops[i].believes, op: i}
}

func (j *judge) checkOverlap(l *lock) {
	all := make([]belief, 0, len(l.ops))
	for _, i := range l.ops {
		all = append(all, j.belief(i))
	}
	listed := 0
	o := sweep(all, MaxListed, func(a, b belief) {
		listed++
		from, to := b.from, min(a.to, b.to)
		j.violate(Overlap, l, []int32{a.op, b.op}, from, to-from, func() string {
			return fmt.Sprintf("%s and %s both believed that they held %q for %s, from %s to %s; %s%s",
				j.name(a.op), j.name(b.op), l.name, time.Duration(to-from), clock(from), clock(to),
				j.where([]int32{a.op, b.op}, from), j.faultsAt(from))
		})
	})
	j.res.ViolationsFound += o.pairs - listed
	j.res.Overlaps += o.pairs
	j.res.OverlapTime += millis(o.together)
	j.res.OverlapLongest = max(j.res.OverlapLongest, millis(o.longest))
}

// clock formats a time for people.
func clock(at int64) string { return time.Duration(at).String() }
