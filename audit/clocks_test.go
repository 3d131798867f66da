package audit_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/audit"
)

// raw writes a lease by what the two clocks of its process showed at its beginning and at its end.
func (w *writer) raw(id string, fence uint64, fromAt, fromWall, toAt, toWall time.Duration) {
	for _, e := range []audit.Event{
		{Kind: audit.Acquired, At: int64(fromAt), Wall: epoch.Add(fromWall), Names: []string{"order"}, Fence: fence,
			Asked: int64(fromAt), AskedWall: epoch.Add(fromWall), Left: left(100 * s)},
		{Kind: audit.Released, At: int64(toAt), Wall: epoch.Add(toWall), Left: left(s)},
	} {
		e.By, e.Lease = "id of "+w.name, id
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		w.Write(append(line, '\n'))
	}
}

// NTP slews the clocks of a process, both alike, by up to 0.9%, and its wall clock stays right within 100ms. Or its machine is
// suspended, and the monotonic clock stands still.
func TestClocksThatRunWrongMakeNoRightHistoryWrong(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 7))
		suspends := seed%2 == 0
		type clock struct{ off, rate, asleep, last float64 } // seconds
		var writers []*writer
		var clocks []*clock
		for i := range 3 {
			writers = append(writers, newWriter(fmt.Sprint("p", i), 0, 0))
			clocks = append(clocks, &clock{off: (random.Float64() - 0.5) * 0.18, rate: 0.009})
		}
		read := func(c *clock, now float64) (at, wall time.Duration) {
			if by := (now - c.last) * c.rate; !suspends {
				if math.Abs(c.off+by) > 0.095 {
					c.rate, by = -c.rate, 0
				}
				c.off += by
			}
			c.last = now
			return time.Duration((now - c.asleep + c.off) * 1e9), time.Duration((now + c.off) * 1e9)
		}
		now := 1.0
		for k := range 40 {
			i := random.IntN(3)
			if suspends && random.IntN(3) == 0 {
				clocks[(i+1)%3].asleep += 2
			}
			fromAt, fromWall := read(clocks[i], now)
			now += 2 + random.Float64()*3
			toAt, toWall := read(clocks[i], now)
			writers[i].raw(fmt.Sprint(k), uint64(k+1), fromAt, fromWall, toAt, toWall)
			now += 0.002
		}
		require.Empty(t, judge(t, writers...).Violations, "seed %d", seed)
	}
}

// A machine is suspended between two of its leases, and its wall clock is set back meanwhile. Nobody knows how long that was.
func TestAGapWithASuspendSaysNothing(t *testing.T) {
	for _, before := range []time.Duration{90 * time.Millisecond, time.Hour} {
		a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
		a.raw("1", 5, 1*s, 1*s+before, 2*s, 2*s+before)
		b.lease("2", 6, 1500*time.Millisecond, 2005*time.Millisecond, 11995*time.Millisecond)
		a.raw("3", 7, 2110*time.Millisecond, 12*s, 3*s, 12*s+890*time.Millisecond)
		require.Empty(t, judge(t, a, b).Violations)
	}
}

// In a gap of a day, a minute is less than what a bad clock goes wrong. But NTP moves both clocks alike.
func TestAStepInALongGapIsSeen(t *testing.T) {
	a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
	a.lease("1", 5, 0, 1*s, 2*s)
	a.off = -time.Minute
	a.lease("3", 7, 24*time.Hour, 24*time.Hour+30*s, 24*time.Hour+50*s)
	b.lease("2", 6, 24*time.Hour-50*s, 24*time.Hour-40*s, 24*time.Hour-20*s)
	r := judge(t, a, b)
	require.Equal(t, audit.Unsure, r.Verdict, "%+v", r.Violations)
}

// However short a lease is: it began surely after the other began, and before the other ended.
func TestAShortLeaseInTheMiddleOfAnotherIsFound(t *testing.T) {
	for _, long := range []time.Duration{0, time.Millisecond, 150 * time.Millisecond} {
		a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
		a.lease("1", 5, 0, 1*s, 21*s)
		if long == 0 { // it crashed at once
			b.add(10*s, acquired("2", 6, 10*s))
		} else {
			b.lease("2", 6, 0, 10*s, 10*s+long)
		}
		r := judge(t, a, b)
		require.Equal(t, map[audit.ViolationKind]int{audit.Overlap: 1}, r.Counts, long)
		require.Equal(t, "a with fencing token 5 and b with fencing token 6 held it at the same time", r.Violations[0].Text)
	}
}

func TestAClockErrorWithoutEndFindsNothingByClocks(t *testing.T) {
	a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
	a.lease("1", 0, 0, 1*s, 21*s)
	b.lease("2", 0, 0, 10*s, 12*s)
	require.Empty(t, judgeWith(t, math.MaxInt64, a, b).Violations)
}

// Two Recorders wrote of the leases of one client.
func TestALeaseIsOneHoweverOftenItIsRecorded(t *testing.T) {
	a, again, b := newWriter("a", 0, 0), newWriter("a again", 0, 0), newWriter("b", 0, 0)
	for i := range 3 {
		for _, w := range []*writer{a, again} {
			at := time.Duration(1+2*i) * s
			w.lease(fmt.Sprint(i), uint64(5+i), at-s/2, at, at+s)
		}
	}
	b.lease("b", 9, 8*s, 9*s, 10*s)
	require.Empty(t, judge(t, a, again, b).Violations)
}

func TestLeasesWithoutAnEndAreCounted(t *testing.T) {
	a := newWriter("a", 0, 0)
	a.lease("1", 5, 0, 1*s, 2*s)
	a.add(3*s, acquired("2", 6, 10*s))
	require.Equal(t, 1, judge(t, a).NoEnd)
}
