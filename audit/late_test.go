package audit_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/audit"
)

func acquired(id string, fence uint64, valid time.Duration) audit.Event {
	return audit.Event{Kind: audit.Acquired, Lease: id, Names: []string{"order"}, Fence: fence, Left: left(valid), AskedWall: epoch}
}

// What a process says late, in another order or twice must not make a lease longer than it was.
func TestWhatIsSaidLateMakesNoLeaseLonger(t *testing.T) {
	for name, write := range map[string]func(a, b *writer){
		"the process stood still between the grant and its line": func(a, b *writer) {
			a.add(40*s, acquired("1", 5, 0))
			a.add(50*s, audit.Event{Kind: audit.Released, Lease: "1", Left: left(0)})
			b.lease("2", 6, 0, 41*s, 49*s)
		},
		"a renewal is answered when the lease is over": func(a, b *writer) {
			a.add(1*s, acquired("1", 5, 10*s))
			a.add(60*s, audit.Event{Kind: audit.Valid, Lease: "1", Left: left(0)})
			a.add(60*s, audit.Event{Kind: audit.Lost, Lease: "1", Left: left(0), Error: "x"})
			b.lease("2", 6, 0, 20*s, 29*s)
		},
		"the same, and nobody says how long it was valid": func(a, b *writer) {
			a.add(1*s, acquired("1", 5, 10*s))
			a.add(60*s, audit.Event{Kind: audit.Valid, Lease: "1"})
			a.add(60*s, audit.Event{Kind: audit.Lost, Lease: "1", Error: "x"})
			b.lease("2", 6, 0, 20*s, 29*s)
		},
		"a renewal is answered after the release": func(a, b *writer) {
			a.add(1*s, acquired("1", 5, 10*s))
			a.add(3*s, audit.Event{Kind: audit.Valid, Lease: "1", Left: left(8 * s)})
			a.add(2*s, audit.Event{Kind: audit.Released, Lease: "1", Left: left(9 * s)})
			b.lease("2", 6, 0, 2100*time.Millisecond, 4*s)
		},
		"a writer becomes a reader, and is released before it says so": func(a, b *writer) {
			a.add(1*s, acquired("1", 5, 10*s))
			a.add(5*s, audit.Event{Kind: audit.Released, Lease: "1", Left: left(6 * s), Reader: true})
			b.lease("2", 6, 0, 3*s, 4*s, reads)
		},
		"the loss comes before the acquisition": func(a, b *writer) {
			a.add(4*s, audit.Event{Kind: audit.Lost, Lease: "1", Left: left(0), Error: "denied"})
			a.add(4*s, acquired("1", 5, 6*s))
			a.add(9*s, audit.Event{Kind: audit.Released, Lease: "1", Left: left(1 * s)})
			b.lease("2", 6, 0, 5*s, 8*s)
		},
		"the machine was suspended, and timers stood still": func(a, _ *writer) {
			a.add(0, acquired("1", 5, 10*s))
			a.off = time.Hour
			a.add(1200*time.Millisecond, acquired("2", 6, 10*s))
			a.add(3*s, audit.Event{Kind: audit.Released, Lease: "2", Left: left(8 * s)})
			a.add(3333*time.Millisecond, audit.Event{Kind: audit.Lost, Lease: "1", Left: left(0), Error: "stood still"})
		},
		"the same, and somebody set the wall clock back": func(a, _ *writer) {
			a.add(0, acquired("1", 5, 10*s))
			a.add(1200*time.Millisecond, acquired("2", 6, 10*s))
			a.add(3*s, audit.Event{Kind: audit.Released, Lease: "2", Left: left(8 * s), Held: int64(1800 * time.Millisecond)})
			a.add(3333*time.Millisecond, audit.Event{Kind: audit.Lost, Lease: "1", Left: left(0), Held: int64(time.Hour), Error: "stood still"})
		},
		"the machine was suspended with a renewal under way": func(a, b *writer) {
			a.add(1*s, acquired("1", 5, 10*s))
			a.off = time.Minute
			a.add(4*s, audit.Event{Kind: audit.Valid, Lease: "1"})
			a.add(4*s+s/4, audit.Event{Kind: audit.Lost, Lease: "1", Error: "x"})
			a.lease("3", 7, 4*s, 5*s, 6*s)
			b.lease("2", 6, 12*s, 13*s, 53*s)
		},
		"a part comes twice in one stream": func(a, _ *writer) {
			a.Reset()
			a.lease("1", 5, 0, 1*s, 2*s)
			a.Write(bytes.Clone(a.Bytes()))
		},
		"the monotonic clock is below zero": func(a, _ *writer) {
			a.began = 100 * s
			for i, id := range []string{"1", "2"} {
				e := acquired(id, uint64(5+i), 3*s)
				e.Asked = -99 * int64(s)
				a.add(1*s+time.Duration(i)*4*s, e)
			}
			a.add(6*s, audit.Event{Kind: audit.Released, Lease: "2", Left: left(2 * s)})
			a.add(9*s, audit.Event{Kind: audit.Released, Lease: "1", Left: left(0)})
		},
		"a validity without end": func(a, b *writer) {
			a.lease("1", 5, 0, 1*s, 2*s, func(e *audit.Event) { e.Left = left(math.MaxInt64) })
			b.lease("2", 6, 0, 3*s, 4*s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
			write(a, b)
			r := judge(t, a, b)
			require.Empty(t, r.Violations)
			require.Positive(t, r.Leases)
		})
	}
}

// Where nodes lost their data, the tokens may be out of order. Then they do not tell who was in between.
func TestInvertedTokensAreNoOverlap(t *testing.T) {
	a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
	a.lease("1", 5, 0, 1*s, 2*s)
	a.lease("2", 7, 2*s, 3*s, 4*s)
	b.lease("3", 6, 9*s, 10*s, 19*s)
	require.Equal(t, map[audit.ViolationKind]int{audit.FenceInversion: 1}, judge(t, a, b).Counts)
}

// A copy was taken while the lease was held.
func TestACopyGivenBesideTheWholeFileHidesNothing(t *testing.T) {
	a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
	a.add(1*s, acquired("1", 5, 10*s))
	copied := newWriter("a", 0, 0)
	copied.Reset()
	copied.Write(a.Bytes())
	for at := 4 * s; at < 60*s; at += 3 * s {
		a.add(at, audit.Event{Kind: audit.Valid, Lease: "1", Left: left(10 * s)})
	}
	a.add(61*s, audit.Event{Kind: audit.Released, Lease: "1", Left: left(9 * s)})
	b.lease("2", 6, 0, 20*s, 29*s)
	for _, given := range [][]*writer{{a, b}, {a, copied, b}, {copied, a, b}, {b, copied, a, copied}} {
		r := judge(t, given...)
		require.Equal(t, map[audit.ViolationKind]int{audit.Overlap: 1}, r.Counts)
		require.Equal(t, 2, r.Leases)
	}
}

func TestWhatBeganInAFileThatIsMissingMakesTheVerdictUnsure(t *testing.T) {
	a := newWriter("a", 0, 0)
	a.Reset()
	a.add(4*s, audit.Event{Kind: audit.Valid, Lease: "1", Left: left(10 * s)})
	a.lease("2", 6, 20*s, 30*s, 31*s)
	r := judge(t, a)
	require.Equal(t, audit.Unsure, r.Verdict)
	require.Equal(t, []string{"id of a: nobody knows when these leases began, as where a journal lacks its first part: 1"}, r.LeftOut)
}

func TestAClockThatWasSetBetweenTwoFilesIsSeen(t *testing.T) {
	a, later, b := newWriter("a", 0, 0), newWriter("a", 0, 0), newWriter("b", 0, 0)
	later.Reset()
	later.off = -10 * s
	a.lease("1", 5, 0, 1*s, 2*s)
	later.lease("3", 7, 12*s, 13*s, 18*s)
	b.lease("2", 6, 2*s, 3*s, 9*s)
	require.Equal(t, audit.Unsure, judge(t, a, later, b).Verdict)
	require.Equal(t, audit.Unsure, judge(t, later, b, a).Verdict)
}

func TestEventsThatWereMissedCountOnce(t *testing.T) {
	a := newWriter("a", 0, 0)
	a.lease("1", 5, 0, 1*s, 2*s)
	a.add(3*s, audit.Event{Kind: audit.Missed, Count: 7})
	require.Equal(t, []string{"a: events that were not recorded, so that leases may be missing: 7"}, judge(t, a, a).LeftOut)
}

// A lock of as many names as there can be.
func TestALongLineIsRead(t *testing.T) {
	a := newWriter("a", 0, 0)
	e := acquired("1", 5, 10*s)
	e.Names = nil
	for i := range 1000 {
		e.Names = append(e.Names, fmt.Sprintf("%04d", i)+strings.Repeat("\x01", 1020))
	}
	a.add(1*s, e)
	require.Equal(t, 1000, judge(t, a).Names)
}
