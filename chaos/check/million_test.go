package check

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/stretchr/testify/require"
)

// A clocked is a history writer whose clock is set by the test.
type clocked struct {
	now time.Duration
	w   *history.Writer
}

func newClocked(w io.Writer) *clocked {
	c := &clocked{}
	c.w = history.NewWriter(w, func() time.Duration { return c.now })
	return c
}

func (c *clocked) add(after time.Duration, e history.Event) {
	c.now += after
	c.w.Add(e)
}

// A lie is the one thing that is wrong in a long history.
type lie string

const (
	believesTooLong lie = "an overlap of 50 µs"
	fenceTwice      lie = "a fencing token used twice"
	fenceReversed   lie = "an order reversed"
	staleRead       lie = "a stale read"
	keyStays        lie = "a key that stays"
)

const tooLong = 50 * time.Microsecond

// lies has what must be found for each lie.
var lies = map[lie]ViolationKind{
	believesTooLong: Overlap, fenceTwice: FenceDuplicate, fenceReversed: FenceInversion, staleRead: Register, keyStays: Orphan,
}

// writeLong writes a history of about this many events. Leases follow each other, and nothing is wrong except the lie
// in the middle. It returns the ops that are involved in the lie.
func writeLong(w io.Writer, events int, what lie) (planted []uint64, err error) {
	c := newClocked(w)
	nodes := []string{"n1", "n2", "n3"}
	c.add(0, history.Event{Kind: history.Start, Run: &history.Run{Version: 1, Nodes: nodes, TTL: int64(time.Second)}})
	const perLease = 13
	leases := events / perLease
	fenced := what != fenceReversed // otherwise accepting the write would be a second lie, by the resource
	var late int64                  // how much longer the last holder believed
	for i := range leases {
		op, client, token := uint64(i+1), 1+i%8, fmt.Sprintf("token-%d", i)
		fence, value := 2*op, int64(i)
		lies := i == leases/2
		switch {
		case lies && what == fenceTwice:
			fence -= 2
		case lies && what == fenceReversed:
			fence -= 3
		case lies && what == staleRead:
			value--
		}
		if lies && (what == fenceTwice || what == fenceReversed) {
			planted = append(planted, op-1)
		}
		if lies && what != believesTooLong {
			planted = append(planted, op)
		}
		access := func(kind history.Kind, value int64) {
			c.add(time.Microsecond, history.Event{
				Kind: kind, Client: client, Op: op, Resource: "stock", Value: value, Fenced: fenced, OK: kind == history.Written,
			})
		}
		c.add(time.Microsecond, history.Event{Kind: history.Acquire, Client: client, Op: op, Resource: "stock"})
		if late == 0 { // otherwise the observer saw nothing, and the overlap is the only violation
			for _, node := range nodes {
				c.add(time.Microsecond, history.Event{Kind: history.Owner, Resource: "stock", Node: node, Token: token})
			}
		}
		c.add(time.Microsecond, history.Event{Kind: history.Granted, Client: client, Op: op, Fence: fence, Token: token})
		if late > 0 { // the last holder stops believing too, and reports when it did
			until := int64(c.now) + late
			late = 0
			c.add(2*time.Millisecond, history.Event{Kind: history.Lost, Client: 1 + (i-1)%8, Op: op - 1, Until: until})
			planted = []uint64{op - 1, op}
		}
		access(history.Read, value)
		access(history.Write, int64(i+1))
		access(history.Written, 0)
		if lies && what == believesTooLong {
			late = int64(tooLong)
			continue
		}
		c.add(time.Microsecond, history.Event{Kind: history.Release, Client: client, Op: op, Until: int64(c.now)})
		c.add(time.Microsecond, history.Event{Kind: history.Freed, Client: client, Op: op})
		for i, node := range nodes {
			if lies && what == keyStays && i == 2 {
				c.add(time.Second+OrphanMargin, history.Event{Kind: history.Note, Text: "all is quiet"})
			}
			c.add(time.Microsecond, history.Event{Kind: history.Owner, Resource: "stock", Node: node})
		}
	}
	c.add(time.Microsecond, history.Event{Kind: history.End})
	return planted, c.w.Close()
}

// peak measures the largest heap until it is stopped.
type peak struct {
	stop, done chan struct{}
	bytes      uint64
}

func watchHeap() *peak {
	p := &peak{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			p.bytes = max(p.bytes, m.HeapInuse)
			select {
			case <-p.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return p
}

func (p *peak) end() uint64 {
	close(p.stop)
	<-p.done
	return p.bytes
}

// long is the number of events of a long history.
func long() int {
	if testing.Short() || raceEnabled { // the race detector makes it ten times slower
		return 50_000
	}
	return 1_000_000
}

// requireTheLie requires that the lie was found, and nothing else.
func requireTheLie(t *testing.T, what lie, planted []uint64, res Result) {
	t.Helper()
	require.InDelta(t, long(), res.Events, 30)
	require.Equal(t, 1, res.ViolationsFound, "%v", res.Violations)
	v := res.Violations[0]
	require.Equal(t, lies[what], v.Kind)
	require.Equal(t, planted, v.Ops)
	require.Equal(t, Unsafe, res.Verdict)
	require.Zero(t, res.LostUpdates+res.StaleWritesAccepted)
	require.Zero(t, res.Confirmed.TooLong, "no part is too long: %v", res.LeftOut)
	if what == believesTooLong {
		require.Equal(t, tooLong, v.For)
		require.Equal(t, 1, res.Overlaps)
		require.Equal(t, 0.05, res.OverlapTime)
	}
}

// enoughTime and enoughSpace are many times what an idle machine needs.
const (
	enoughTime  = 3 * time.Minute
	enoughSpace = 1 << 30
)

// In a million events each lie is found, and nothing else, while the events are read.
func TestOneLieInAMillionEventsIsFound(t *testing.T) {
	for what := range lies {
		t.Run(string(what), func(t *testing.T) {
			r, w := io.Pipe()
			defer r.Close()
			var planted []uint64
			go func() { // ends with the history, or when the reader stops
				var err error
				planted, err = writeLong(w, long(), what)
				w.CloseWithError(err)
			}()
			runtime.GC()
			heap := watchHeap()
			begun := time.Now()
			res, err := JudgeReader(bufio.NewReader(r))
			took, bytes := time.Since(begun), heap.end()
			require.NoError(t, err)
			t.Logf("%d events in %v; heap at most %d MiB", res.Events, took.Round(time.Millisecond), bytes>>20)
			requireTheLie(t, what, planted, res)
			require.Less(t, bytes, uint64(enoughSpace))
			require.Less(t, took, enoughTime)
		})
	}
}

// A history is judged the same from a file and from a slice of events.
func TestAMillionEventsThatAreKeptAreJudgedAsThoseThatAreRead(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "history.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	planted, err := writeLong(f, long(), believesTooLong)
	require.NoError(t, err)
	_, err = f.Seek(0, io.SeekStart)
	require.NoError(t, err)
	all, err := history.ReadAll(bufio.NewReader(f))
	require.NoError(t, err)
	res, err := Judge(all)
	require.NoError(t, err)
	requireTheLie(t, believesTooLong, planted, res)
}
