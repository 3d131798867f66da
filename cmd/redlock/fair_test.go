//go:build unix

package main_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

const (
	// placeLife is how long a place in the queue of a fair lock lasts, with the defaults of Config (O3).
	placeLife = 2750 * time.Millisecond
	// fairLook is after how long a waiter looks that hears nothing (O3). With all messages lost, a turn begins one look
	// late. Here, it may begin ten looks late: a hand-over takes some ten milliseconds, and only a machine that gives a
	// process no time for ten seconds makes so much of it. On such a machine places end, and no order is promised.
	fairLook = time.Second
	looks    = 10
)

// O1 to O4: Fifty processes wait in order for a lock on five servers. Ten are killed while they wait: the first two, the
// last, pairs and single ones between. The others run in the order in which they arrived, and nobody waits for longer
// than it takes the former to end, the places of the dead to end, and one look. The places of the dead end together: no
// later than one life of a place after the last of them was killed. So they cost the others that once, and not one by one.
func TestFiftyProcessesRunInOrderOfArrivalWhileTenAreKilled(t *testing.T) {
	t.Parallel()
	const count = 50
	killed := []int{0, 1, 8, 15, 16, 24, 33, 34, 41, count - 1}
	f := startEnrolled(t, fleet.Process, fleet.Options{})
	held, err := newClient(t, f).Mutex("job").Acquire(t.Context())
	require.NoError(t, err)
	q := newFairQueues(t, f)
	log := filepath.Join(t.TempDir(), "log")
	all, places := make([]*process, count), make([]string, count)
	for i := range all {
		// The command says when its turn began, and ends at once.
		all[i] = start(t, nil, nil, "run", q.nodes, "--fair", "job", "--",
			"sh", "-c", fmt.Sprintf("exec date '+%%s%%N %d' >> %s", i, log))
		eventually(t, fmt.Sprintf("process %d waits", i), func() (waits bool) {
			places[i], waits = q.last(i + 1)
			return waits
		})
	}
	for _, i := range killed {
		require.NoError(t, all[i].cmd.Process.Kill())
		all[i].wait()
	}
	var over time.Time // when no place of the dead is left
	for _, i := range killed {
		over = later(over, q.ends(places[i]))
	}
	ended := time.Now() // the former's turn
	require.NoError(t, held.Release(context.Background()))
	var living []int
	for i, p := range all {
		if !slices.Contains(killed, i) {
			living = append(living, i)
			code, _, stderr := p.wait()
			require.Equal(t, 0, code, stderr)
		}
	}

	var order []int
	longest := map[bool]time.Duration{} // by whether the one before was killed
	for _, turn := range turnsOf(t, log) {
		afterDead := slices.Contains(killed, turn.process-1)
		longest[afterDead] = max(longest[afterDead], turn.began.Sub(ended))
		require.LessOrEqual(t, turn.began.Sub(later(ended, over)), looks*fairLook, "process %d", turn.process)
		order, ended = append(order, turn.process), turn.began
	}
	require.Equal(t, living, order)
	t.Logf("the longest wait for a turn: %v behind one that was killed, %v behind another", longest[true], longest[false])
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A turn is when a process ran under the lock.
type turn struct {
	process int
	began   time.Time
}

func turnsOf(t *testing.T, log string) (turns []turn) {
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var nanos int64
		var process int
		_, err := fmt.Sscan(line, &nanos, &process)
		require.NoError(t, err, line)
		turns = append(turns, turn{process, time.Unix(0, nanos)})
	}
	return turns
}

// A fairQueues is the queues of the fair lock "job" on all nodes. It does not use their links: these are in this process,
// and fifty clients would slow it down.
type fairQueues struct {
	t     *testing.T
	conns []redis.Conn
	nodes string // the flag
}

func newFairQueues(t *testing.T, f *fleet.Fleet) *fairQueues {
	q := &fairQueues{t: t}
	var urls []string
	for _, n := range f.Nodes() {
		conn, err := n.DialDirect(t.Context(), 5*time.Second)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		q.conns, urls = append(q.conns, conn), append(urls, n.DirectURL())
	}
	q.nodes = "--nodes=" + strings.Join(urls, ",")
	return q
}

// last is the waiter that came last, if a majority of the nodes have that many waiters and agree on it.
func (q *fairQueues) last(waiters int) (waiter string, agreed bool) {
	votes := map[string]int{}
	for _, conn := range q.conns {
		queue, err := redis.Strings(conn.Do("ZRANGE", "redlock:fair:ticket:job", 0, -1))
		require.NoError(q.t, err)
		if len(queue) != waiters {
			continue
		}
		waiter = queue[waiters-1]
		if votes[waiter]++; 2*votes[waiter] > len(q.conns) {
			return waiter, true
		}
	}
	return "", false
}

// ends is when the last place of a dead waiter ends, by the servers' clocks, which are this machine's. That is at most
// one life of a place after the moment at which it asked for the last time, whatever this machine does meanwhile.
func (q *fairQueues) ends(waiter string) (last time.Time) {
	for _, conn := range q.conns {
		require.NoError(q.t, conn.Send("ZSCORE", "redlock:fair:until:job", waiter))
		require.NoError(q.t, conn.Send("TIME"))
		require.NoError(q.t, conn.Flush())
		until, err := redis.Float64(conn.Receive())
		if err != redis.ErrNil { // nil: its place is over
			require.NoError(q.t, err)
		}
		clock, err := redis.Int64s(conn.Receive())
		require.NoError(q.t, err)
		end := time.UnixMicro(int64(until))
		require.LessOrEqual(q.t, end.Sub(time.UnixMicro(clock[0]*1e6+clock[1])), placeLife)
		last = later(last, end)
	}
	return last
}
