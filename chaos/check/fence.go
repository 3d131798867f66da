package check

import "fmt"

// A badFence is a grant with a wrong fencing token.
type badFence struct {
	kind       ViolationKind
	first, bad int32 // ops
}

// grantFence judges the fencing token of an op that was just granted. 0 means that it has none.
//
// An inversion is a token below that of some op that was granted before this one was requested. It is enough to compare
// with the largest of those tokens, which acquire noted.
func (j *judge) grantFence(i int32) {
	o := &j.ops[i]
	l := o.lock
	if o.fence == 0 || j.isDowngraded(o) {
		return
	}
	if first, taken := l.fences[o.fence]; taken {
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

// checkFences lists what grantFence found.
func (j *judge) checkFences(l *lock) {
	for _, b := range l.badFences {
		first, bad := &j.ops[b.first], &j.ops[b.bad]
		j.violate(b.kind, l, []int32{b.first, b.bad}, bad.granted, 0, func() string {
			if b.kind == FenceDuplicate {
				return fmt.Sprintf("%s and %s were both granted %q with the fencing token %d, at %s and at %s",
					j.name(b.first), j.name(b.bad), l.name, bad.fence, clock(first.granted), clock(bad.granted))
			}
			return fmt.Sprintf("%s requested %q at %s, after %s was granted it with the fencing token %d at %s, and got the smaller fencing token %d",
				j.name(b.bad), l.name, clock(bad.asked), j.name(b.first), first.fence, clock(first.granted), bad.fence)
		})
	}
}
