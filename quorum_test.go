package redlock

import (
	"slices"
	"sort"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// agree reports whether two clocks may lie within the tolerance of each other. In a group that counts, any two must
// (C1).
func agree(a, b span, tolerance int64) bool {
	return a.low-b.high <= tolerance && b.low-a.high <= tolerance
}

// naive counts the whole list of casts again each time.
func naive(nodes, need int, tolerance time.Duration, casts []cast) (v verdict, votes map[int]cast) {
	first := map[int]cast{}
	for _, c := range casts {
		if _, voted := first[c.node]; !voted {
			first[c.node] = c
		}
	}
	best := naiveBest(nodes, tolerance, first, granted)
	switch open := nodes - len(first); {
	case best >= need:
		return won, first
	case best+open < need:
		return lost, first
	}
	return undecided, first
}

// naiveBest tries every set of nodes, and returns the size of the largest that cast one of these votes, and whose clocks
// agree.
func naiveBest(nodes int, tolerance time.Duration, votes map[int]cast, of ...vote) (best int) {
	for set := nodeSet(0); set < 1<<nodes; set++ {
		ok := true
		for i := range nodes {
			for j := range nodes {
				if set.has(i) && set.has(j) {
					ok = ok && slices.Contains(of, votes[i].vote) && slices.Contains(of, votes[j].vote) &&
						(tolerance < 0 || agree(votes[i].clock, votes[j].clock, tolerance.Microseconds()))
				}
			}
		}
		if ok {
			best = max(best, set.len())
		}
	}
	return best
}

// naiveEnds tries every way in which the open nodes may still answer. What is true in all of them is known. said is the
// size of the largest set that granted or denied, and whose clocks agree. Only the nodes of had can have lost the keys of
// a release.
func naiveEnds(nodes, need, said int, had nodeSet, votes map[int]cast) (why loss, released verdict, final bool) {
	count := map[vote]int{}
	for _, c := range votes {
		count[c.vote]++
	}
	gone := 0
	for node, c := range votes {
		if c.vote == denied && had.has(node) {
			gone++
		}
	}
	open := nodes - len(votes)
	losses, releases := map[loss]bool{}, map[verdict]bool{}
	for yes := range open + 1 {
		for no := range open + 1 - yes {
			why, released := lossOutage, undecided
			if said+no >= need { // whether an answer counts depends on its clock: at worst not
				why = lossHeld
			}
			if count[granted]+yes >= need {
				released = won
			}
			if gone+no >= need { // whether an open node had the keys: at worst it had
				released = lost
			}
			losses[why], releases[released] = true, true
		}
	}
	if len(losses) == 1 {
		for why = range losses {
		}
	}
	if len(releases) == 1 {
		for released = range releases {
		}
	}
	return why, released, len(releases) == 1
}

type cast struct {
	node  int
	vote  vote
	clock span
}

// casts reads three bytes for each vote: the node and its vote, where its clock is, and how wide the span is.
// Thirty-two votes are more than nine nodes can give, so that late and repeated answers occur too.
func casts(nodes int, script []byte) []cast {
	var all []cast
	for ; len(script) >= 3 && len(all) < 32; script = script[3:] {
		low := int64(script[1])
		all = append(all, cast{node: int(script[0]>>2) % nodes, vote: granted + vote(script[0]&3)%3,
			clock: span{low, low + int64(script[2])/4, script[2]&1 == 1}})
	}
	return all
}

// checkTally runs a script of casts through the tally and its naive twin.
func checkTally(t assert.TestingT, size, more, tolerated uint8, script []byte) bool {
	nodes := int(size)%9 + 1
	need := majority(nodes) + int(more)%(nodes-majority(nodes)+1)
	tolerance := (time.Duration(tolerated) - 16) * time.Microsecond
	tally := newTally(nodes, need, tolerance)
	decided, known, never := undecided, lossUnclear, false
	had := ^nodeSet(size / 9) // a few of the nodes may never have had the keys
	all := casts(nodes, script)
	for i, c := range all {
		tally.cast(c.node, c.vote, c.clock)
		want, votes := naive(nodes, need, tolerance, all[:i+1])
		wantLoss, wantReleased, wantFinal := naiveEnds(nodes, need, naiveBest(nodes, tolerance, votes, granted, denied), had, votes)
		got := tally.verdict()
		released, final := tally.released(false, had)
		ok := assert.Equal(t, want, got) &&
			assert.Equal(t, wantLoss, tally.loss()) &&
			assert.Equal(t, wantReleased, released) && assert.Equal(t, wantFinal, final) &&
			assert.Equal(t, len(votes), tally.granted+tally.denied+tally.unknown) && checkApart(t, &tally, votes)
		if decided != undecided {
			ok = assert.Equal(t, decided, got, "a verdict is final") && ok
		}
		if known != lossUnclear {
			ok = assert.Equal(t, known, tally.loss(), "the kind of a loss is final") && ok
		}
		known = tally.loss()
		if tally.refused(had) {
			ok = assert.Equal(t, lost, got, "refused is lost") && assert.False(t, never, "it never is") && ok
		}
		never = tally.refusedOrNever(had) && !tally.refused(had)
		if !ok {
			return false
		}
		decided = got
	}
	return true
}

// checkApart checks how far apart the clocks may be (C2): of any two that are counted together, one is ahead of the
// other, or behind it, by no more; but for the time that its own request or reply took, unless its span is loose.
func checkApart(t assert.TestingT, tally *tally, votes map[int]cast) bool {
	set, most := tally.counted()
	ok := true
	for i, a := range votes {
		for j, b := range votes {
			if set.has(i) && set.has(j) && tally.tolerance >= 0 {
				ahead, behind := a.clock.low-b.clock.low, b.clock.high-a.clock.high
				if a.clock.loose {
					ahead, behind = a.clock.high-b.clock.low, b.clock.high-a.clock.low
				}
				apart := time.Duration(max(ahead, behind)) * time.Microsecond
				ok = assert.LessOrEqual(t, apart, most) && ok
			}
		}
	}
	return ok
}

func TestTallyAgreesWithItsNaiveTwin(t *testing.T) {
	require.NoError(t, quick.Check(func(size, more, tolerated uint8, script []byte) bool {
		return checkTally(t, size, more, tolerated, script)
	}, &quick.Config{MaxCount: 3000}))
}

func FuzzTally(f *testing.F) {
	f.Add(uint8(4), uint8(0), uint8(66), []byte{0, 9, 0, 4, 9, 0, 8, 9, 0, 12, 200, 0, 16, 9, 0})
	f.Add(uint8(4), uint8(1), uint8(20), []byte{0, 9, 0, 4, 9, 9, 8, 20, 0, 13, 200, 0, 16, 9, 0})
	f.Add(uint8(0), uint8(0), uint8(0), []byte{2, 0, 0})
	f.Fuzz(func(t *testing.T, size, more, tolerated uint8, script []byte) {
		checkTally(t, size, more, tolerated, script)
	})
}

// A node grants one owner at a time. Two winners would need two quorums that share no node.
func TestTwoOwnersCannotBothWinWhenEachNodeGrantsOne(t *testing.T) {
	require.NoError(t, quick.Check(func(size uint8, owners []bool) bool {
		nodes := int(size)%9 + 1
		a, b := newTally(nodes, majority(nodes), -1), newTally(nodes, majority(nodes), -1)
		for node := range nodes {
			toA := node < len(owners) && owners[node]
			if toA {
				a.cast(node, granted, span{})
				b.cast(node, denied, span{})
			} else {
				a.cast(node, denied, span{})
				b.cast(node, granted, span{})
			}
		}
		return !(a.verdict() == won && b.verdict() == won)
	}, nil))
}

// A3: Two denials of four lose an acquire. Only the third answer tells whether the lock is held or there is an outage.
func TestALossIsClearWhenAQuorumHasAnsweredOrCannot(t *testing.T) {
	tally := newTally(4, 3, -1)
	tally.cast(0, denied, span{})
	tally.cast(1, denied, span{})
	require.Equal(t, lost, tally.verdict())
	require.Equal(t, lossUnclear, tally.loss())
	outage := tally
	outage.votes = slices.Clone(tally.votes)
	tally.cast(2, granted, span{})
	require.Equal(t, lossHeld, tally.loss())
	outage.cast(2, unknown, span{})
	require.Equal(t, lossUnclear, outage.loss())
	outage.cast(3, unknown, span{})
	require.Equal(t, lossOutage, outage.loss())
}

// A3: Of a node that refused the light form, and whose script is not awaited, no clock is known. It denied all the same.
func TestARefusalWithoutAClockIsADenial(t *testing.T) {
	for scripts := range 3 {
		r := newRound(plan{call: call{script: standard.acquire}}, 4, 3, 50*time.Millisecond)
		clock := span{low: 1_700_000_000_000_000, high: 1_700_000_000_000_300}
		for node := range scripts {
			r.record(node, answer{vote: denied, clock: clock, denial: &denial{reason: held}})
		}
		for node := scripts; node < 3; node++ {
			r.lightRefused(node, false)
		}
		r.concede(0b1111)
		_, votes := r.snapshot()
		require.Equal(t, lossHeld, votes.loss())
	}
}

func TestAReleaseProvesNothingBetweenAQuorumsYesAndItsNo(t *testing.T) {
	tally := newTally(3, 2, -1)
	tally.cast(0, granted, span{})
	tally.cast(1, denied, span{})
	v, final := tally.released(false, 0b111)
	require.Equal(t, undecided, v)
	require.False(t, final)
	tally.cast(2, unknown, span{})
	v, final = tally.released(false, 0b111)
	require.Equal(t, undecided, v)
	require.True(t, final)
}

// L1: Two of three say that the keys are gone, and one of them never had them. Nobody else can have had a quorum.
func TestANodeThatNeverHadTheKeysDoesNotProveThatTheyAreLost(t *testing.T) {
	tally := newTally(3, 2, -1)
	tally.cast(0, denied, span{})
	tally.cast(1, denied, span{})
	v, final := tally.released(true, 0b110)
	require.Equal(t, undecided, v)
	require.False(t, final)
	tally.cast(2, granted, span{})
	v, final = tally.released(true, 0b110)
	require.Equal(t, undecided, v)
	require.True(t, final)
	v, _ = tally.released(true, 0b111)
	require.Equal(t, lost, v)
}

func TestMajority(t *testing.T) {
	for nodes, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 7: 4, 64: 33} {
		require.Equal(t, want, majority(nodes), "%d nodes", nodes)
	}
}

// A4.
func TestValidityGivesUpTheRoundAndTheDrift(t *testing.T) {
	require.Equal(t, 102*time.Millisecond, driftOf(10*time.Second, 0.01))
	require.Equal(t, 9*time.Second-102*time.Millisecond, validityOf(10*time.Second, time.Second, driftOf(10*time.Second, 0.01), 0))
	require.Negative(t, validityOf(time.Second, time.Second, driftOf(time.Second, 0), 0))
	require.NoError(t, quick.Check(func(ttl, elapsed uint32) bool {
		v := validityOf(time.Duration(ttl), time.Duration(elapsed), driftOf(time.Duration(ttl), 0.01), 0)
		return v < time.Duration(ttl) && v <= time.Duration(ttl)-time.Duration(elapsed)
	}, nil))
}

func TestARefusalNamesTheOwnerInTheWayAndItsNodes(t *testing.T) {
	no := func(owner string, left time.Duration) answer {
		return answer{vote: denied, denial: &denial{reason: held, owner: owner, left: left}}
	}
	yes, silent := answer{vote: granted}, answer{vote: unknown}
	for name, c := range map[string]struct {
		answers []answer
		probed  bool
		want    obstacle
	}{
		"one holder": {answers: []answer{no("a", 3), no("a", 4), no("a", 5), silent, silent},
			want: obstacle{owner: "a", at: 0b00111, free: 5}},
		"the third to expire frees a quorum": {answers: []answer{no("a", 9), no("a", 2), no("a", 1), no("a", 7), no("a", 8)},
			want: obstacle{owner: "a", at: 0b11111, free: 7}},
		"a split": {answers: []answer{no("a", 1), no("a", 2), no("b", 3), no("b", 4), yes},
			want: obstacle{free: 2}},
		"too few answers": {answers: []answer{no("a", 1), silent, silent, silent, yes},
			want: obstacle{free: 1<<63 - 1}},
		"the node asked first": {answers: []answer{no("a", 6), silent, silent, silent, silent}, probed: true,
			want: obstacle{owner: "a", at: 0b00001, free: 6}},
		"a key without expiry": {answers: []answer{no("a", -1), no("a", -1), no("a", -1), yes, yes},
			want: obstacle{owner: "a", at: 0b00111, free: 1<<63 - 1}},
	} {
		require.Equal(t, c.want, obstacleOf(c.answers, 3, c.probed), name)
	}
}

// C2: A lease has ended when its key has. One server's clock steps between two quorums that share only that server, and
// the other servers differ by as much as is in good order. Where clocks need only agree within the whole band, this
// test finds a step that neither quorum notices.
//
// The time that a script's request takes delays the key's end, while the validity counts from the sending. The time that
// its reply takes passes before the later winner relies on its lease. Neither is so for a loose span.
func TestALeaseEndsBeforeAStepThatNeitherQuorumNoticesEndsItsKey(t *testing.T) {
	const rtt = 60_000 // µs, at most
	require.NoError(t, quick.Check(func(seed [18]uint16, band16 uint16) bool {
		band := time.Duration(1+band16%100) * time.Millisecond
		spread := band.Microseconds() / 2
		at := func(i int, n int64) int64 { // from 0 to n, and often at an end
			switch seed[i] % 9 {
			case 0, 1, 2, 3:
				return 0
			case 4, 5, 6, 7:
				return n
			}
			return int64(seed[i]) * 7 % (n + 1)
		}
		seen := func(i int, clock int64) span { // somewhere within the round trip
			low := clock - at(i, rtt)
			return span{low: low, high: low + max(clock-low, at(i+1, rtt))}
		}
		// The true clocks: of the shared server, then of the two others in each quorum.
		quorum := func(i int, shared int64) (first span, all tally) {
			first, all = seen(i, shared), newTally(3, 3, toleranceOf(band))
			first.loose = seed[i+6]%2 == 1
			all.cast(0, granted, first)
			all.cast(1, granted, seen(i+2, at(i+6, spread)))
			all.cast(2, granted, seen(i+4, at(i+7, spread)))
			return first, all
		}
		unnoticed := func(i int, sign int64) int64 { // how far the shared clock may be behind or ahead
			return int64(sort.Search(int(3*spread+4*rtt), func(far int) bool {
				_, all := quorum(i, sign*int64(far))
				return all.verdict() != won
			}) - 1)
		}
		behind, ahead := at(16, unnoticed(0, -1)), at(17, unnoticed(8, 1))
		first, earlier := quorum(0, -behind)
		second, later := quorum(8, ahead)
		_, apartEarlier := earlier.counted()
		_, apartLater := later.counted()
		travelled := int64(0)
		if !first.loose {
			travelled += first.high + behind // the request of the earlier script
		}
		if !second.loose {
			travelled += ahead - second.low // the reply to the later one
		}
		micros := time.Microsecond
		early := time.Duration(behind+ahead) * micros // the key expires
		return early <= time.Duration(travelled)*micros+bandCost(band, apartEarlier)+bandWait(band, apartLater)
	}, &quick.Config{MaxCount: 20_000}))
}

func TestOneClockOutOfStepIsNotCounted(t *testing.T) {
	tally := newTally(5, 3, 50*time.Millisecond)
	near, far := span{low: 0, high: 300}, span{low: 60_000_000, high: 60_000_300}
	tally.cast(0, granted, near)
	tally.cast(2, granted, far)
	tally.cast(1, granted, near)
	require.Equal(t, undecided, tally.verdict())
	tally.cast(3, denied, near)
	require.Equal(t, undecided, tally.verdict())
	tally.cast(4, granted, near)
	require.Equal(t, won, tally.verdict())
	set, apart := tally.counted()
	require.Equal(t, nodeSet(0b10011), set)
	require.Zero(t, apart)
}

// L1: The lock was acquired on three of five nodes. What two of them say is enough only if the third does not answer,
// and only if both had the keys.
func TestAReleaseOfABareQuorumNeedsOnlyTheNodesThatAnswer(t *testing.T) {
	release := func(votes ...vote) *tally {
		tally := newTally(5, 3, -1)
		tally.exclude(0b10110)
		for i, v := range votes {
			tally.cast([]int{1, 2, 4}[i], v, span{})
		}
		return &tally
	}
	for _, c := range []struct {
		votes []vote
		late  bool
		want  verdict
		final bool
	}{
		{[]vote{granted, granted, granted}, false, won, true},
		{[]vote{denied, denied, denied}, false, lost, true},
		{[]vote{granted, granted}, false, undecided, false}, // the third may still say that it is gone
		{[]vote{granted, granted}, true, won, true},
		{[]vote{granted, granted, unknown}, false, won, true},
		{[]vote{granted, unknown, unknown}, false, won, true},
		{[]vote{granted, granted, denied}, true, undecided, true},
		{[]vote{denied, denied, unknown}, true, undecided, true},
		{[]vote{unknown, unknown, unknown}, true, undecided, true},
		{nil, true, undecided, false},
	} {
		v, final := release(c.votes...).released(c.late, 0b11111)
		require.Equal(t, c.want, v, "%v", c)
		require.Equal(t, c.final, final, "%v", c)
	}
}
