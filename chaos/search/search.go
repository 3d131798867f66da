// Package search looks for schedules of faults under which a lock is unsafe. It makes schedules, is told how close each
// came to a violation, and varies the closest. It only decides, from what it is told: it runs nothing and reads no clock,
// so that the same seed and the same measurements give the same schedules.
package search

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
)

const (
	fewest   = 8 // so many schedules are random before any is varied
	keep     = 6 // so many of the closest are varied
	newEvery = 4 // one in so many of the others is random too, so that the search does not stay in one place
)

// A Tried is a schedule that was run.
type Tried struct {
	Schedule fault.Schedule
	Margin   time.Duration // the least time from the end of a belief to the next grant
	Known    bool          // that time is known: there was such a grant
}

// A Search is a search in a Space.
type Search struct {
	space  Space
	rand   *rand.Rand
	varies bool
	made   int
	kept   []Tried // the closest, in order
}

// New begins a search. Without varies, all its schedules are random.
func New(space Space, seed uint64, varies bool) *Search {
	return &Search{space: space, rand: rand.New(rand.NewPCG(seed, 1)), varies: varies}
}

// Next makes a schedule to run.
func (s *Search) Next() fault.Schedule {
	s.made++
	if !s.varies || s.made <= fewest || len(s.kept) == 0 || s.rand.IntN(newEvery) == 0 {
		return s.space.Random(s.rand)
	}
	return s.space.Vary(s.rand, s.pick(), s.pick())
}

// pick draws one of the closest. The closer, the more often.
func (s *Search) pick() fault.Schedule {
	return s.kept[min(s.rand.IntN(len(s.kept)), s.rand.IntN(len(s.kept)))].Schedule
}

// Tell says how close a schedule came. One whose margin is not known is not kept.
func (s *Search) Tell(t Tried) {
	if !t.Known {
		return
	}
	s.kept = append(s.kept, t)
	slices.SortStableFunc(s.kept, func(a, b Tried) int { return cmp.Compare(a.Margin, b.Margin) })
	s.kept = s.kept[:min(keep, len(s.kept))]
}

// Closest returns the schedule that came closest. false: of none the margin is known.
func (s *Search) Closest() (Tried, bool) {
	if len(s.kept) == 0 {
		return Tried{}, false
	}
	return s.kept[0], true
}
