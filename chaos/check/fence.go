package check

import (
	"fmt"
	"slices"
)

// A badFence is a grant with a wrong fencing token.
type badFence struct {
	kind       ViolationKind
	first, bad int32 // ops
}

// grantFence judges the fencing token of an op that was just granted. 0 means that it has none.
//
// An inversion is a token below that of some op that was granted before this one was requested. It is enough to compare
// with the largest of those tokens, which acquire noted. An op without a token is one too, where there was a token
// before: a resource cannot refuse its late writes.
func (j *judge) grantFence(i int32) {
	o := &j.ops[i]
	l := o.lock
	if !j.showsFence(o) {
		return
	}
	if o.fence == 0 {
		if o.fenceFloor == 0 {
			j.withoutFence++
			return
		}
	} else if first, taken := l.fences[o.fence]; taken {
		j.res.FenceDuplicates++
		l.badFences = append(l.badFences, badFence{FenceDuplicate, first, i})
	} else {
		l.fences[o.fence] = i
	}
	if o.fence < o.fenceFloor {
		j.res.FenceInversions++
		l.badFences = append(l.badFences, badFence{FenceInversion, o.floorOp, i})
	}
	if o.fence > l.largest {
		l.largest, l.largestOp = o.fence, i
	}
}

// isDowngraded reports whether the op is a reader that was the writer, and kept its fencing token.
func (j *judge) isDowngraded(o *op) bool {
	return o.reader && o.from >= 0 && j.ops[o.from].fence == o.fence
}

// showsFence reports whether the fencing token of an op is judged, also if it has none. A library may give none to
// readers, who do not write.
func (j *judge) showsFence(o *op) bool { return !j.isDowngraded(o) && (o.fence > 0 || !o.reader) }

// endFences names the ops without a fencing token that grantFence could not judge, if others have one.
func (j *judge) endFences() {
	some := slices.ContainsFunc(j.locks.all, func(l *lock) bool { return l.largest > 0 })
	if some && j.withoutFence > 0 {
		j.leaveOut("fencing tokens", "", fmt.Sprintf("%d of %d leases have none, and were requested before there was any",
			j.withoutFence, len(j.answers[granted])))
	}
}

// checkFences lists what grantFence found.
func (j *judge) checkFences(l *lock) {
	for _, b := range l.badFences {
		first, bad := &j.ops[b.first], &j.ops[b.bad]
		j.violate(b.kind, l, []int32{b.first, b.bad}, bad.granted, 0, func() string {
			if b.kind == FenceDuplicate {
				return fmt.Sprintf("%s and %s were both granted %q with the fencing token %d, at %s and at %s",
					j.name(b.first), j.name(b.bad), l.name, bad.fence, clock(first.granted), clock(bad.granted))
			}
			got := "no fencing token"
			if bad.fence > 0 {
				got = fmt.Sprintf("the smaller fencing token %d", bad.fence)
			}
			return fmt.Sprintf("%s requested %q at %s, after %s was granted it with the fencing token %d at %s, and got %s",
				j.name(b.bad), l.name, clock(bad.asked), j.name(b.first), first.fence, clock(first.granted), got)
		})
	}
}
