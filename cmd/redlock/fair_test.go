//go:build unix

package main_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// Twelve processes wait in order for a lock, and every third is killed while it waits: one at the head and three
// behind. The others run in the order in which they arrived.
func TestProcessesRunInOrderOfArrivalWhileOthersAreKilled(t *testing.T) {
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	held, err := newClient(t, f).Mutex("job").Acquire(t.Context())
	require.NoError(t, err)
	log := filepath.Join(t.TempDir(), "log")
	var all []*process
	for i := range 12 {
		all = append(all, start(t, nil, nil, "run", nodes(f), "--fair", "job", "--", "sh", "-c", fmt.Sprintf("echo %d >> %s", i, log)))
		eventually(t, fmt.Sprintf("process %d waits", i), func() bool {
			arrived := 0
			for _, n := range f.Nodes() {
				if waiters(t, n) == i+1 {
					arrived++
				}
			}
			return arrived >= 2
		})
	}
	var want strings.Builder
	for i, p := range all {
		if i%3 == 0 {
			require.NoError(t, p.cmd.Process.Kill())
			p.wait()
		} else {
			fmt.Fprintln(&want, i)
		}
	}
	began := time.Now()
	require.NoError(t, held.Release(context.Background()))
	for i, p := range all {
		if i%3 != 0 {
			code, _, stderr := p.wait()
			require.Equal(t, 0, code, stderr)
		}
	}
	t.Logf("eight processes ran within %v", time.Since(began))
	got, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(got))
}

// waiters is how many waiters the node has in the queue of the fair lock.
func waiters(t *testing.T, n *fleet.Node) int {
	conn, err := n.DialDirect(t.Context(), 5*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	count, err := redis.Int(conn.Do("ZCARD", "redlock:fair:ticket:job"))
	require.NoError(t, err)
	return count
}
