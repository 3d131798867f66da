package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// order finds what does not fit in between. Of a mutex, the order of the fencing tokens is that of the grants. So all that
// other processes had between two leases of one process were in the time from the end of the first to the grant of the second.
// How long that was, and how long they took, each process has measured by its own clock.
func (j *judge) order(leases []*hold) {
	var chain []*hold
	for _, l := range leases {
		if l.fence > 0 && !l.reader && l.permits == 0 {
			chain = append(chain, l)
		}
	}
	slices.SortStableFunc(chain, func(a, b *hold) int { return cmp.Compare(a.fence, b.fence) })
	chain = slices.CompactFunc(chain, func(a, b *hold) bool { return a.id == b.id }) // two Recorders may have written of a lease
	before := make([]int64, len(chain)+1)                                            // how long those before each one took together
	last := map[*process]int{}
	for i, c := range chain {
		before[i+1] = before[i] + c.to.at - c.from.at
		k, ok := last[c.of]
		last[c.of] = i
		if !ok {
			continue
		}
		a := chain[k]
		gap, wall := c.from.at-a.to.at, c.from.wall-a.to.wall
		if apart := max(gap-wall, wall-gap); gap < 0 || float64(apart) > float64(smallJump)+maxDrift*float64(gap) {
			continue // it had both at once, which is found there; or its machine was suspended, or its wall clock set
		}
		took := before[i] - before[k+1]
		if float64(took)*(1-maxDrift) <= float64(gap)*(1+maxDrift) {
			continue
		}
		between := chain[k+1 : i]
		longest := slices.MaxFunc(between, func(a, b *hold) int { return cmp.Compare(a.to.at-a.from.at, b.to.at-b.from.at) })
		j.add(Violation{Kind: Overlap, Basis: ByFence, Millis: millis(took - gap)}, []*hold{a, longest, c}, func() string {
			what := longest.who()
			if len(between) > 1 {
				what = fmt.Sprintf("%d leases, the longest by %s,", len(between), what)
			}
			return fmt.Sprintf("by the fencing tokens %s took %v between %s and its next with %d, which were only %v apart", what,
				time.Duration(took).Round(10*time.Microsecond), a.who(), c.fence, time.Duration(gap).Round(10*time.Microsecond))
		})
	}
}

// maxDrift is how far a clock may be from the true rate: as much as the lock itself takes into account.
const maxDrift = 0.01
