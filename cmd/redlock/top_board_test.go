package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const (
	tokenA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:01234567:web-3/4711:night%20job%1b[2J"
	tokenB = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB" // of a client that may not publish
)

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
	b.after(5, sighting{owner: "next:0123"}, sighting{}, sighting{})
	require.Equal(t, "free", x.state(true), "a reservation is not a vote")
	require.Equal(t, "unknown", x.state(false))
	for name, foreign := range map[string]sighting{"no string": {owner: "?", left: 1}, "no token": {owner: "abc", left: 1},
		"it does not expire": {owner: tokenA, left: -1}} {
		b.after(6, foreign)
		require.Equal(t, "foreign", x.state(true), name)
	}
	b.after(100)
	require.Contains(t, b.locks, "x", "a name that was given stays")
}

// A waiter is in the queue of the node that it asks first, which is another one where a node is slow for it.
func TestTheBoardCountsTheWaitersOfAllNodes(t *testing.T) {
	b := newBoard(2, 10, []string{"x"})
	waited := func(by ...string) sighting { return sighting{owner: tokenA, left: time.Second, waiters: by} }
	b.after(0, waited("p"), waited("q", "p"), waited("r"))
	require.Equal(t, 3, b.locks["x"].waiters)
}

func TestTheBoardForgetsWhatNobodyWantsAndIsBounded(t *testing.T) {
	b := newBoard(1, 3, nil)
	b.found([]string{"a", "b", "cache", "d"})
	require.Equal(t, []string{"a", "b", "cache"}, b.names())
	require.True(t, b.more)
	held := sighting{owner: tokenA, left: time.Second}
	b.update(topBegan, b.names(), map[int][]sighting{0: {held, {}, {owner: "?"}}})
	require.Equal(t, []string{"a", "b"}, b.names(), "what is no lock leaves room")
	b.found([]string{"cache", "d"})
	require.Equal(t, []string{"a", "b", "d"}, b.names())
	require.False(t, b.more)
	b.update(topBegan.Add(keepFor), b.names(), map[int][]sighting{0: {held, {}, {waiters: []string{"p"}}}})
	require.Equal(t, []string{"a", "d"}, b.names())
}

// No line is wider than the terminal, and there are no more lines than it has.
func TestAFrameFitsTheTerminal(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {200, 50}, {40, 10}, {1, 1}} {
		for _, locks := range []int{0, 1, 18, 19, 20, 500} {
			s := &topSample{at: topBegan, nodes: 5, votes: 5, quorum: 3, interval: time.Second, scanning: true, more: locks == 500}
			for i := range locks {
				x := &track{name: fmt.Sprintf("%d/%s\x1b[2J", i, strings.Repeat("long/ü/", 20)), owner: tokenA, since: topBegan.Add(-999 * time.Hour),
					before: true, left: 30 * time.Second, waiters: 100, waits: 99*time.Hour + 59*time.Minute, samples: 1, contended: 1, owners: 12345}
				s.tracks = append(s.tracks, x)
			}
			lines := s.frame(size[0], size[1])
			require.LessOrEqual(t, len(lines), max(size[1], leastHeight))
			for _, line := range lines {
				require.LessOrEqual(t, utf8.RuneCountInString(line), max(size[0], 20), "%v: %q", size, line)
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
	for d, want := range map[time.Duration]string{0: "0ms", 999 * time.Millisecond: "999ms", 59949 * time.Millisecond: "59.9s", time.Minute: "1m00s",
		3599 * time.Second: "59m59s", time.Hour: "1h00m", 99 * time.Hour: "99h00m", 1000 * time.Hour: "41d"} {
		require.Equal(t, want, duration(d))
	}
}
