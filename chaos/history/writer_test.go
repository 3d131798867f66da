package history

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func run() Event {
	return Event{Kind: Start, Run: &Run{Version: Version, TTL: 1, Nodes: []string{"n1"}}}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	var now time.Duration
	var out bytes.Buffer
	w := NewWriter(&out, func() time.Duration { now += 7; return now })
	want := []Event{
		run(),
		{Kind: Acquire, Client: 1, Op: 1, Resource: "<r>\n"},
		{Kind: Granted, Client: 1, Op: 1, Resource: "<r>\n", Fence: math.MaxUint64, Token: "\"a\" \u2028"},
		{Kind: Owner, Resource: "<r>\n", Node: "n1", Token: "\"a\" \u2028"},
		{Kind: Write, Client: 1, Op: 1, Resource: "<r>\n", Value: math.MinInt64, Fenced: true},
		{Kind: Lost, Client: 1, Op: 1, Resource: "<r>\n", Until: 9},
		{Kind: Fault, Node: "n1", Fault: "kill", Begin: true},
		{Kind: End},
	}
	for i, e := range want {
		e.At = 1e18 // is ignored
		w.Add(e)
		want[i].At = int64(7 * (i + 1))
	}
	require.NoError(t, w.Close())
	got, err := ReadAll(&out)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestTimeNeverGoesBackInAHistoryOfManyWriters(t *testing.T) {
	var out bytes.Buffer
	var op atomic.Uint64
	begun := time.Now()
	w := NewWriter(&out, func() time.Duration {
		d := time.Since(begun)
		return d - d%3*time.Microsecond // a clock that jumps forward and back
	})
	w.Add(run())
	var all sync.WaitGroup
	for client := 1; client <= 8; client++ {
		all.Go(func() {
			for range 500 {
				n := op.Add(1)
				w.Add(Event{Kind: Acquire, Client: client, Op: n, Resource: "r"})
				w.Add(Event{Kind: Refused, Client: client, Op: n})
			}
			require.NoError(t, w.Flush())
		})
	}
	all.Wait()
	w.Add(Event{Kind: End})
	require.NoError(t, w.Close())
	events, err := ReadAll(&out)
	require.NoError(t, err)
	require.Len(t, events, 2+8*500*2)
}

func TestNothingIsRecordedAfterTheEnd(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, func() time.Duration { return 0 })
	w.Add(run())
	w.Add(Event{Kind: End})
	w.Add(Event{Kind: Note, Text: "late"})
	require.NoError(t, w.Close())
	w.Add(Event{Kind: Note, Text: "later"})
	require.NoError(t, w.Close())
	require.NotContains(t, out.String(), "late")
	require.Equal(t, 2, strings.Count(out.String(), "\n"))
}

func TestAHistoryClosedWithoutAnEndIsAnError(t *testing.T) {
	w := NewWriter(&bytes.Buffer{}, func() time.Duration { return 0 })
	w.Add(run())
	require.NoError(t, w.Flush())
	require.ErrorIs(t, w.Close(), ErrNoEnd)
	require.ErrorIs(t, w.Close(), ErrNoEnd)
}

// A full accepts this many bytes.
type full struct{ left int }

var errFull = errors.New("the disk is full")

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, errFull
	}
	f.left -= len(p)
	return len(p), nil
}

func TestAFullDiskIsToldByFlushAndByClose(t *testing.T) {
	w := NewWriter(&full{left: 1 << 17}, func() time.Duration { return 0 })
	w.Add(run())
	for range 10_000 {
		w.Add(Event{Kind: Note, Text: "something of some length"})
	}
	w.Add(Event{Kind: End})
	require.ErrorIs(t, w.Flush(), errFull)
	require.ErrorIs(t, w.Close(), errFull)
}

func TestAnEventThatCannotBeEncodedIsTold(t *testing.T) {
	w := NewWriter(&bytes.Buffer{}, func() time.Duration { return 0 })
	e := run()
	e.Run.Seconds = math.NaN()
	w.Add(e)
	w.Add(Event{Kind: End})
	require.ErrorContains(t, w.Close(), "NaN")
}
