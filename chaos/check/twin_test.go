package check

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/quick"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/stretchr/testify/require"
)

// naiveSweep compares every belief with every other, at every instant.
func naiveSweep(all []belief) (o overlaps) {
	end := int64(0)
	for i, a := range all {
		end = max(end, a.to)
		for _, b := range all[:i] {
			if overlap(a, b) {
				o.pairs++
				o.longest = max(o.longest, min(a.to, b.to)-max(a.from, b.from))
			}
		}
	}
	for t := range end {
		believers := 0
		for _, b := range all {
			if b.from <= t && t < b.to {
				believers++
			}
		}
		if believers > 1 {
			o.together++
		}
	}
	return o
}

func TestSweepAgreesWithItsNaiveTwin(t *testing.T) {
	require.NoError(t, quick.Check(func(ends [][2]uint8, scale uint8) bool {
		wide := int64(scale)%250 + 2 // how much they overlap
		all := make([]belief, 0, len(ends))
		for i, e := range ends {
			from := int64(e[0]) % wide
			all = append(all, belief{from: from, to: from + int64(e[1])%9, op: int32(i)})
		}
		want := naiveSweep(all)
		found := map[[2]int32]bool{}
		got := sweep(all, len(all)*len(all), func(a, b belief) {
			require.True(t, overlap(a, b))
			require.LessOrEqual(t, a.from, b.from)
			found[[2]int32{min(a.op, b.op), max(a.op, b.op)}] = true
		})
		require.Len(t, found, got.pairs, "each pair is told once")
		return got == want
	}, &quick.Config{MaxCount: 3000}))
}

// A grant is what the naive check of fencing tokens knows about an op.
type grant struct {
	asked, granted int // lines
	fence          uint64
}

// naiveFences compares every grant with every other.
func naiveFences(all []grant) (duplicates, inversions int) {
	for _, b := range all {
		duplicate, inverted := false, false
		for _, a := range all {
			duplicate = duplicate || a.granted < b.granted && a.fence == b.fence && b.fence > 0
			inverted = inverted || a.granted < b.asked && a.fence > b.fence
		}
		if duplicate {
			duplicates++
		}
		if inverted {
			inversions++
		}
	}
	return duplicates, inversions
}

// randomFences makes a history of acquires whose fencing tokens are mostly correct, but not always. 0 is none.
func randomFences(r *rand.Rand) (events []history.Event, all []grant) {
	const at = 5 // the same for all events: only the order of the lines counts
	events = append(events, history.Event{Kind: history.Start, Run: &history.Run{Version: 1, TTL: 1}})
	type open struct {
		op     uint64
		asked  int
		taken  uint64
		failed bool
	}
	var asking []open
	fence, op := uint64(1), uint64(0)
	for range r.IntN(60) {
		if len(asking) == 0 || len(asking) < 4 && r.IntN(2) == 0 {
			op++
			fence += uint64(r.IntN(3))
			taken := fence
			if r.IntN(12) == 0 {
				taken = r.Uint64N(fence + 1)
			}
			events = append(events, history.Event{At: at, Kind: history.Acquire, Client: 1 + len(asking), Op: op, Resource: "r"})
			asking = append(asking, open{op: op, asked: len(events), taken: taken, failed: r.IntN(5) == 0})
			continue
		}
		i := r.IntN(len(asking))
		o := asking[i]
		asking = append(asking[:i], asking[i+1:]...)
		if o.failed {
			events = append(events, history.Event{At: at, Kind: history.Failed, Op: o.op})
			continue
		}
		events = append(events, history.Event{At: at, Kind: history.Granted, Op: o.op, Fence: o.taken})
		all = append(all, grant{asked: o.asked, granted: len(events), fence: o.taken})
	}
	return append(events, history.Event{At: at, Kind: history.End}), all
}

// Judge fails if its own check and porcupine disagree, so here all three agree.
func TestFencesAgreeWithTheirNaiveTwinAndPorcupine(t *testing.T) {
	bad := 0
	for seed := range uint64(3000) {
		events, all := randomFences(rand.New(rand.NewPCG(seed, 1)))
		res, err := Judge(events)
		require.NoError(t, err, "seed %d", seed)
		duplicates, inversions := naiveFences(all)
		require.Equal(t, duplicates, res.FenceDuplicates, "seed %d", seed)
		require.Equal(t, inversions, res.FenceInversions, "seed %d", seed)
		if len(all) > 0 {
			histories := 1 // the holders
			if slices.ContainsFunc(all, func(g grant) bool { return g.fence > 0 }) {
				histories++ // the tokens
			}
			require.Equal(t, histories, res.Confirmed.Agreed, "seed %d", seed)
		}
		if duplicates+inversions > 0 {
			bad++
		}
	}
	require.Greater(t, bad, 300, "the histories are of both sorts")
	require.Less(t, bad, 2700, "the histories are of both sorts")
}
