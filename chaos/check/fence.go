package check

import "fmt"

// A badFence is a grant that broke the rule of the fences.
type badFence struct {
	kind       ViolationKind
	first, bad int32 // ops
}

// grantFence judges the fence of an op that was granted just now. A fence of 0 is none.
//
// An inversion is a fence below that of any op granted before this one was asked for. That is so for any
// of them if it is so for the largest, which acquire noted: so one look is enough, and exact.
func (j *judge) grantFence(i int32) {
	o := &j.ops[i]
	l := o.lock
	if o.fence == 0 {
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

// checkFences lists what grantFence found.
func (j *judge) checkFences(l *lock) {
	for _, b := range l.badFences {
		first, bad := &j.ops[b.first], &j.ops[b.bad]
		j.violate(b.kind, l, []int32{b.first, b.bad}, bad.granted, 0, func() string {
			if b.kind == FenceDuplicate {
				return fmt.Sprintf("%s and %s were both granted %q with fence %d, at %s and at %s",
					j.name(b.first), j.name(b.bad), l.name, bad.fence, clock(first.granted), clock(bad.granted))
			}
			return fmt.Sprintf("%s asked for %q at %s, after %s had been granted it with fence %d at %s, and got the smaller fence %d",
				j.name(b.bad), l.name, clock(bad.asked), j.name(b.first), first.fence, clock(first.granted), bad.fence)
		})
	}
}
