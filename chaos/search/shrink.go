package search

import (
	"slices"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
)

// shortest is the shortest fault that shrinking tries.
const shortest = 10 * time.Millisecond

// Shrink makes a schedule smaller for as long as it stays unsafe: it removes faults, and then shortens those that are
// left. It calls unsafe for each candidate, which may say false when it does not want to try any more.
func Shrink(s fault.Schedule, unsafe func(fault.Schedule) bool) fault.Schedule {
	s = slices.Clone(s)
	for chunk := len(s); chunk > 0; chunk /= 2 { // all, half of them, and so on
		for i := 0; i < len(s); {
			candidate := whole(slices.Delete(slices.Clone(s), i, min(i+chunk, len(s))))
			if unsafe(candidate) {
				s = candidate
			} else {
				i += chunk
			}
		}
	}
	for i := range s {
		for s[i].Lasts >= 2*shortest {
			candidate := slices.Clone(s)
			candidate[i].Lasts = (s[i].Lasts / 2).Round(time.Millisecond)
			if !unsafe(candidate) {
				break
			}
			s = candidate
		}
	}
	return s
}
