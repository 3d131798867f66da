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

// A clocked is a writer of a history whose clock the test sets.
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

// writeLong writes a history of about so many events, in which leases follow each other and nothing is wrong
// but that one of them, in the middle, is believed in for a millisecond too long.
func writeLong(w io.Writer, events int) (planted [2]uint64, err error) {
	c := newClocked(w)
	nodes := []string{"n1", "n2", "n3"}
	c.add(0, history.Event{Kind: history.Start, Run: &history.Run{Version: 1, Nodes: nodes, TTL: int64(time.Second)}})
	const perLease = 13
	leases := events / perLease
	var late int64 // how much longer the last lease was believed in
	for i := range leases {
		op, client, token := uint64(i+1), 1+i%8, fmt.Sprintf("token-%d", i)
		c.add(time.Microsecond, history.Event{Kind: history.Acquire, Client: client, Op: op, Resource: "stock"})
		if late == 0 { // else the observer saw nothing, and the overlap is all there is
			for _, node := range nodes {
				c.add(time.Microsecond, history.Event{Kind: history.Owner, Resource: "stock", Node: node, Token: token})
			}
		}
		c.add(time.Microsecond, history.Event{Kind: history.Granted, Client: client, Op: op, Fence: op, Token: token})
		if late > 0 { // it is over for the last holder too, who says when it was for him
			until := int64(c.now) + late
			late = 0
			c.add(2*time.Millisecond, history.Event{Kind: history.Lost, Client: 1 + (i-1)%8, Op: op - 1, Until: until})
			planted = [2]uint64{op - 1, op}
		}
		c.add(time.Microsecond, history.Event{Kind: history.Read, Client: client, Op: op, Resource: "stock", Value: int64(i), Fenced: true})
		c.add(time.Microsecond, history.Event{Kind: history.Write, Client: client, Op: op, Resource: "stock", Value: int64(i + 1), Fenced: true})
		c.add(time.Microsecond, history.Event{Kind: history.Written, Client: client, Op: op, Resource: "stock", OK: true, Fenced: true})
		if i == leases/2 {
			late = int64(time.Millisecond)
			continue
		}
		c.add(time.Microsecond, history.Event{Kind: history.Release, Client: client, Op: op, Until: int64(c.now)})
		for _, node := range nodes {
			c.add(time.Microsecond, history.Event{Kind: history.Owner, Resource: "stock", Node: node})
		}
		c.add(time.Microsecond, history.Event{Kind: history.Freed, Client: client, Op: op})
	}
	c.add(time.Microsecond, history.Event{Kind: history.End})
	return planted, c.w.Close()
}

// peak is the most heap that there was while it was looked at, which it is until stopped.
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

// The overlap is found, and alone, in a million events; a history is read and judged well within a minute
// and a gigabyte, whether its events are kept or not.
func TestOneMillisecondInAMillionEvents(t *testing.T) {
	events := 1_000_000
	if testing.Short() || raceEnabled { // it takes ten times as long with the race detector
		events = 200_000
	}
	file := filepath.Join(t.TempDir(), "history.jsonl")
	f, err := os.Create(file)
	require.NoError(t, err)
	defer f.Close()
	begun := time.Now()
	planted, err := writeLong(f, events)
	require.NoError(t, err)
	size, err := f.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	t.Logf("written: %.0f MiB in %v", float64(size)/(1<<20), time.Since(begun).Round(time.Millisecond))

	for name, judge := range map[string]func(io.Reader) (Result, error){
		"streamed": JudgeReader,
		"kept": func(r io.Reader) (Result, error) {
			all, err := history.ReadAll(r)
			if err != nil {
				return Result{}, err
			}
			return Judge(all)
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Seek(0, io.SeekStart)
			require.NoError(t, err)
			runtime.GC()
			heap := watchHeap()
			begun := time.Now()
			res, err := judge(bufio.NewReader(f))
			took := time.Since(begun)
			bytes := heap.end()
			require.NoError(t, err)
			t.Logf("%d events judged in %v; heap at most %d MiB", res.Events, took.Round(time.Millisecond), bytes>>20)

			require.InDelta(t, events, res.Events, 20)
			require.Equal(t, 1, res.Overlaps)
			require.Equal(t, 1, res.ViolationsFound, "%v", res.Violations)
			v := res.Violations[0]
			require.Equal(t, Overlap, v.Kind)
			require.Equal(t, planted[:], v.Ops)
			require.Equal(t, time.Millisecond, v.For)
			require.Equal(t, 1.0, res.OverlapTime)
			require.Zero(t, res.LostUpdates+res.StaleWritesAccepted+res.Orphans)
			require.Less(t, bytes, uint64(1<<30))
			require.Less(t, took, time.Minute)
		})
	}
}
