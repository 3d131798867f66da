//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// redlock may stand still after it has got the lock and before it starts the command. The command must then not start beside
// the next holder, and --at-least must not keep others from work that nobody did.
func TestNoCommandStartsUnderALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	nodes, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 1})
	require.NoError(t, err)
	defer nodes.Close()
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(nodes.URLs()...), TTL: 300 * time.Millisecond})
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Enroll(t.Context()))
	for _, every := range []bool{false, true} {
		started := filepath.Join(t.TempDir(), "started")
		o := &runOptions{path: "/bin/sh", argv: []string{"sh", "-c", `echo >"$0"`, started}, keys: []string{"k"},
			stderr: &aside{to: io.Discard}, kind: kindOfLock{atLeast: 20 * time.Second}, patience: waiting{once: true}}
		o.json = true
		in := newInbox()
		defer in.close()
		r := &runner{runOptions: o, client: client, lock: o.kind.lock(client, o.keys).WithoutRenewal(), notice: &waitNotice{o: o},
			renewals: &renewalNotice{}, in: in, length: 300 * time.Millisecond, report: &runReport{}}
		code, reason, err := r.once(t.Context(), func(lease *redlock.Lease) (int, string, error) {
			<-lease.Context().Done() // it stands still
			if every {
				return r.lead(lease)
			}
			return r.underLease(lease)
		})
		require.Equal(t, exitLost, code, "%v", err)
		require.Equal(t, "lost", reason)
		require.EqualError(t, err, "the lease was lost before the command started")
		require.Zero(t, r.report.Runs)
		_, err = os.Stat(started)
		require.ErrorIs(t, err, os.ErrNotExist)
		lease, err := client.Mutex("k").TryAcquire(t.Context())
		require.NoError(t, err, "others may do the work")
		require.NoError(t, lease.Release(t.Context()))
	}
}
