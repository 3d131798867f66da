package redlock

import (
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// naive counts again from the whole list of casts each time, in the plainest way there is.
func naive(nodes, need int, casts []cast) (verdict, map[int]vote) {
	first := map[int]vote{}
	for _, c := range casts {
		if _, voted := first[c.node]; !voted {
			first[c.node] = c.vote
		}
	}
	yes, possible := 0, 0
	for node := range nodes {
		switch v, voted := first[node]; {
		case !voted:
			possible++
		case v == granted:
			yes++
			possible++
		}
	}
	switch {
	case yes >= need:
		return won, first
	case possible < need:
		return lost, first
	}
	return undecided, first
}

type cast struct {
	node int
	vote vote
}

func casts(nodes int, script []byte) []cast {
	all := make([]cast, 0, len(script))
	for _, b := range script {
		all = append(all, cast{node: int(b>>2) % nodes, vote: granted + vote(b&3)%3})
	}
	return all
}

// checkTally runs a script of casts through the tally and its naive twin.
func checkTally(t assert.TestingT, size, more uint8, script []byte) bool {
	nodes := int(size)%9 + 1
	need := majority(nodes) + int(more)%(nodes-majority(nodes)+1)
	tally := newTally(nodes, need)
	decided := undecided
	all := casts(nodes, script)
	for i, c := range all {
		tally.cast(c.node, c.vote)
		want, votes := naive(nodes, need, all[:i+1])
		got := tally.verdict()
		ok := assert.Equal(t, want, got) &&
			assert.Equal(t, len(votes), tally.granted+tally.denied+tally.unknown)
		if decided != undecided {
			ok = assert.Equal(t, decided, got, "a verdict stands") && ok
		}
		if tally.refused() {
			ok = assert.Equal(t, lost, got, "refused is lost") && ok
		}
		if !ok {
			return false
		}
		decided = got
	}
	return true
}

func TestTallyAgreesWithItsNaiveTwin(t *testing.T) {
	require.NoError(t, quick.Check(func(size, more uint8, script []byte) bool {
		return checkTally(t, size, more, script)
	}, &quick.Config{MaxCount: 5000}))
}

func FuzzTally(f *testing.F) {
	f.Add(uint8(4), uint8(0), []byte{0, 4, 8, 12, 16})
	f.Add(uint8(4), uint8(1), []byte{1, 5, 8, 12, 16, 0})
	f.Add(uint8(0), uint8(0), []byte{2})
	f.Fuzz(func(t *testing.T, size, more uint8, script []byte) { checkTally(t, size, more, script) })
}

// A node grants one owner at a time, so two winners would need disjoint quorums.
func TestTwoOwnersCannotBothWinWhenEachNodeGrantsOne(t *testing.T) {
	require.NoError(t, quick.Check(func(size uint8, owners []bool) bool {
		nodes := int(size)%9 + 1
		a, b := newTally(nodes, majority(nodes)), newTally(nodes, majority(nodes))
		for node := range nodes {
			toA := node < len(owners) && owners[node]
			if toA {
				a.cast(node, granted)
				b.cast(node, denied)
			} else {
				a.cast(node, denied)
				b.cast(node, granted)
			}
		}
		return !(a.verdict() == won && b.verdict() == won)
	}, nil))
}

func TestMajority(t *testing.T) {
	for nodes, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 7: 4, 64: 33} {
		require.Equal(t, want, majority(nodes), "%d nodes", nodes)
	}
}

// A4.
func TestValidityGivesUpTheRoundAndTheDrift(t *testing.T) {
	require.Equal(t, 102*time.Millisecond, driftOf(10*time.Second, 0.01))
	require.Equal(t, 9*time.Second-102*time.Millisecond, validityOf(10*time.Second, time.Second, driftOf(10*time.Second, 0.01)))
	require.Negative(t, validityOf(time.Second, time.Second, driftOf(time.Second, 0)))
	require.NoError(t, quick.Check(func(ttl, elapsed uint32) bool {
		v := validityOf(time.Duration(ttl), time.Duration(elapsed), driftOf(time.Duration(ttl), 0.01))
		return v < time.Duration(ttl) && v <= time.Duration(ttl)-time.Duration(elapsed)
	}, nil))
}

func TestProspectNamesWhoIsInTheWayAndSinceWhere(t *testing.T) {
	no := func(owner string, left time.Duration) answer {
		return answer{vote: denied, denial: &denial{reason: held, owner: owner, left: left}}
	}
	yes, silent := answer{vote: granted}, answer{vote: unknown}
	for name, c := range map[string]struct {
		answers []answer
		probed  bool
		want    prospect
	}{
		"one holder": {answers: []answer{no("a", 3), no("a", 4), no("a", 5), silent, silent},
			want: prospect{owner: "a", at: 0b00111, free: 5}},
		"the third to expire frees a quorum": {answers: []answer{no("a", 9), no("a", 2), no("a", 1), no("a", 7), no("a", 8)},
			want: prospect{owner: "a", at: 0b11111, free: 7}},
		"a split": {answers: []answer{no("a", 1), no("a", 2), no("b", 3), no("b", 4), yes},
			want: prospect{free: 2}},
		"too few answers": {answers: []answer{no("a", 1), silent, silent, silent, yes},
			want: prospect{free: 1<<63 - 1}},
		"the node asked first": {answers: []answer{no("a", 6), silent, silent, silent, silent}, probed: true,
			want: prospect{owner: "a", at: 0b00001, free: 6}},
		"a key without expiry": {answers: []answer{no("a", -1), no("a", -1), no("a", -1), yes, yes},
			want: prospect{owner: "a", at: 0b00111, free: 1<<63 - 1}},
	} {
		require.Equal(t, c.want, prospectOf(c.answers, 3, c.probed), name)
	}
}
