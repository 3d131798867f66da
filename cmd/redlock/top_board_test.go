package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	tokenA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:01234567:web-3/4711:night%20job%1b[2J"
	tokenB = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB" // of a client that may not publish
)

const reserved = "next:0123456789abcdef0123456789abcdef"

var topBegan = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// after is a sample of one lock, so many seconds after the first.
func (b *board) after(seconds int, nodes ...sighting) {
	seen := map[int][]sighting{}
	for i, n := range nodes {
		seen[i] = []sighting{n}
	}
	b.update(topBegan.Add(time.Duration(seconds)*time.Second), b.names(), seen)
}

func TestTheBoardFollowsALockFromHolderToHolder(t *testing.T) {
	t.Parallel()
	b := newBoard(2, 10, []string{"x"})
	x := b.locks["x"]
	a, other := sighting{owner: tokenA, left: 9 * time.Second}, sighting{owner: tokenB, left: 3 * time.Second}
	waited := sighting{owner: tokenA, left: 4 * time.Second, waiters: []string{"p", "q"}, waits: time.Second}

	b.after(0, a, a, sighting{})
	require.Equal(t, tokenA, x.owner)
	require.True(t, x.before, "it may have had the lock for longer")
	require.Equal(t, 9*time.Second, x.left)
	b.after(1, a, waited, sighting{})
	require.Equal(t, 4*time.Second, x.left, "the second of two that are needed")
	require.Equal(t, []any{2, time.Second, 50}, []any{x.waiters, x.waits, x.contention()})
	b.after(2, waited, sighting{}) // a node was late
	require.Equal(t, "partial", x.state(true))
	b.after(3, a, waited, waited)
	require.Equal(t, 1, x.owners, "the same holder again")
	require.Equal(t, 3*time.Second, x.held(topBegan.Add(3*time.Second)))
	b.after(4, other, other, a)
	require.Equal(t, []any{tokenB, 2, false}, []any{x.owner, x.owners, x.before})
	require.Zero(t, x.held(topBegan.Add(4*time.Second)))
	require.Equal(t, "new", x.cells(topBegan.Add(4*time.Second), true)[1], "it may have the lock for almost a second")
	require.Equal(t, "1.0s", x.cells(topBegan.Add(5*time.Second), true)[1])
	b.after(5, sighting{owner: reserved}, sighting{}, sighting{})
	require.Equal(t, "free", x.state(true), "a reservation is not a vote")
	require.Equal(t, "unknown", x.state(false))
	for name, foreign := range map[string]sighting{"no string": {owner: "?", left: 1}, "no token": {owner: "abc", left: 1},
		"it does not expire": {owner: tokenA, left: -1}, "begins as a reservation": {owner: "next:/home", left: 1},
		"does not expire, as a reservation does": {owner: reserved, left: -1}} {
		b.after(6, foreign)
		require.Equal(t, "foreign", x.state(true), name)
	}
	b.after(100)
	require.Contains(t, b.locks, "x", "a name that was given stays")
}

// A waiter is in the queue of the node that it asks first, which is another one where a node is slow for it.
func TestTheBoardCountsTheWaitersOfAllNodes(t *testing.T) {
	t.Parallel()
	b := newBoard(2, 10, []string{"x"})
	waited := func(by ...string) sighting { return sighting{owner: tokenA, left: time.Second, waiters: by} }
	b.after(0, waited("p"), waited("q", "p"), waited("r"))
	require.Equal(t, 3, b.locks["x"].waiters)
}

func TestTheBoardForgetsWhatNobodyWantsAndIsBounded(t *testing.T) {
	t.Parallel()
	b := newBoard(1, 3, nil)
	held, other, waited := sighting{owner: tokenA, left: time.Second}, sighting{owner: "?"}, sighting{waiters: []string{"p"}}
	b.found([]string{"a", "a", "b", "c", "d"}, false)
	require.Equal(t, []string{"a", "b", "c"}, b.names())
	require.True(t, b.full())
	b.update(topBegan, b.names(), map[int][]sighting{0: {held, other, held}})
	require.Equal(t, []string{"a", "c"}, b.names(), "it was a lock")
	require.False(t, b.full())
	b.found([]string{"d"}, false)
	b.update(topBegan.Add(keepFor), b.names(), map[int][]sighting{0: {held, {}, waited}})
	require.Equal(t, []string{"a", "d"}, b.names())
}

// A key that was no lock may become one.
func TestKeysThatAreNoLocksAreForgottenInTime(t *testing.T) {
	t.Parallel()
	var o others
	o.forget(topBegan)
	for i := range maxOthers {
		o.add(fmt.Sprint(i))
	}
	require.True(t, o.have("0"))
	o.add("one more")
	require.Equal(t, []bool{false, true}, []bool{o.have("0"), o.have("one more")}, "they are bounded")
	o.forget(topBegan.Add(othersFor - 1))
	require.True(t, o.have("one more"))
	o.forget(topBegan.Add(othersFor))
	require.False(t, o.have("one more"))
}

// One node with something else under the key does not hide the lock that a quorum has, nor those that wait for it.
func TestTheBoardKeepsALockBesideWhatAnotherProgramWrote(t *testing.T) {
	t.Parallel()
	b := newBoard(2, 10, nil)
	seen := map[int][]sighting{0: {{owner: tokenA, left: time.Second}, {}}, 1: {{owner: tokenA, left: time.Second}, {waiters: []string{"p"}}},
		2: {{owner: "?"}, {owner: "?"}}}
	b.found([]string{"x", "y"}, false)
	b.update(topBegan, b.names(), seen)
	require.Equal(t, []string{"x", "y"}, b.names())
	require.Equal(t, "held", b.locks["x"].state(true))
	require.Equal(t, "foreign", b.locks["y"].state(true))
}

// What nobody may read is not free. Nodes on which it can be read decide, if they are enough.
func TestTheBoardDoesNotKnowWhatItMayNotRead(t *testing.T) {
	t.Parallel()
	b := newBoard(2, 10, []string{"x"})
	x, unread := b.locks["x"], sighting{unread: true}
	b.after(0, unread, unread, sighting{})
	require.Equal(t, []string{"unknown", "no-right"}, []string{x.state(true), x.cells(topBegan, true)[0]})
	b.after(1, unread, sighting{}, sighting{})
	require.Equal(t, "free", x.state(true))
}

// A lock that a late search found was perhaps held all the time.
func TestTheBoardDoesNotCallNewWhatItFoundLate(t *testing.T) {
	t.Parallel()
	b := newBoard(1, 10, nil)
	seen := map[int][]sighting{0: {{owner: tokenA, left: time.Second}}}
	b.update(topBegan, nil, nil)
	for name, late := range map[string]bool{"late": true, "at once": false} {
		b.found([]string{name}, late)
	}
	now := topBegan.Add(time.Second)
	b.update(now, b.names(), map[int][]sighting{0: {seen[0][0], seen[0][0]}})
	require.Equal(t, []string{"0ms+", "new"}, []string{b.locks["late"].cells(now, true)[1], b.locks["at once"].cells(now, true)[1]})
}

// No line is wider than the terminal, and there are no more lines than it has.
func TestAFrameFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {200, 50}, {40, 10}, {1, 1}} {
		for _, locks := range []int{0, 1, 18, 19, 20, 500} {
			s := &topSample{at: topBegan, nodes: 5, votes: 5, quorum: 3, interval: time.Second, scanning: true, more: locks == 500}
			for i := range locks {
				text := [3]string{"long/ü/", "夜間バッチ", "🔒e\u0301\ufe0f"}[i%3]
				x := &track{name: fmt.Sprintf("%d/%s\x1b[2J", i, strings.Repeat(text, 20)), owner: tokenA, since: topBegan.Add(-999 * time.Hour),
					before: true, left: 30 * time.Second, waiters: 100, waits: 99*time.Hour + 59*time.Minute, samples: 1, contended: 1, owners: 12345}
				s.tracks = append(s.tracks, x)
			}
			lines := s.frame(size[0], size[1])
			require.LessOrEqual(t, len(lines), max(size[1], leastHeight))
			for _, line := range lines {
				require.LessOrEqual(t, displayWidth(line), max(size[0], 20), "%v: %q", size, line)
				require.NotContains(t, line, "\x1b", "a name cannot move the cursor")
			}
			if size == [2]int{80, 24} {
				require.Len(t, lines, 24)
				text := strings.Join(lines, "\n")
				require.Equal(t, locks > 19, strings.Contains(text, "more\n"), text)
				require.Contains(t, text, map[bool]string{true: "no lock is held", false: "web-3/4711 (\"night…    41d+  30.0s     100  99h59m 100% 12345"}[locks == 0])
			}
		}
	}
}

// What is not known is not said, and whoever sees a node missing learns where to look.
func TestAFrameTellsOfMissingVotes(t *testing.T) {
	t.Parallel()
	for votes, want := range map[int]struct {
		says string
		none bool
	}{5: {"A lock that is held for less than 1s", true}, 4: {"1 node without a vote: redlock doctor says why.", true},
		3: {"2 nodes without a vote: redlock doctor", true}, 2: {"It takes 3 votes. Who holds a lock is not known: redlock doctor", false}} {
		s := &topSample{at: topBegan, nodes: 5, votes: votes, quorum: 3, interval: time.Second, scanning: true}
		text := strings.Join(s.frame(80, 24), "\n")
		require.Contains(t, text, want.says)
		require.Equal(t, want.none, strings.Contains(text, "no lock is held"), text)
	}
}

func TestDurationsAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0ms", 999 * time.Millisecond: "999ms", 59949 * time.Millisecond: "59.9s", time.Minute: "1m00s",
		3599 * time.Second: "59m59s", time.Hour: "1h00m", 99 * time.Hour: "99h00m", 1000 * time.Hour: "41d"} {
		require.Equal(t, want, duration(d))
	}
}
