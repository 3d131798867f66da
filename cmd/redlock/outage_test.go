//go:build unix

package main_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// All nodes vote, and each refuses what the lock takes. Or so many that no quorum is left.
func TestAWaitForARightThatIsMissingSaysSo(t *testing.T) {
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "default", "-set")
	}
	for _, away := range []int{0, 1} {
		for _, n := range f.Nodes()[:away] {
			require.NoError(t, n.Kill())
		}
		p := start(t, nil, nil, "run", nodes(f), "k", "--", "true")
		eventually(t, "a line", func() bool { return p.said() != "" })
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		code, _, errs := p.wait()
		require.Equal(t, 143, code)
		require.Contains(t, errs, "waiting (--wait forever): no quorum of nodes: acquire")
		require.Contains(t, errs, "; docs/operations.md has the rights that the user needs")
	}
}

// The nodes may hold a quorum that is larger than a majority.
func TestTheQuorumIsTheOneThatTheNodesHold(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), Quorum: 3})
	require.NoError(t, err)
	require.NoError(t, client.Enroll(t.Context()))
	require.NoError(t, client.Close())
	code, out, _ := run(t, "doctor", nodes(f))
	require.Equal(t, 0, code)
	require.Contains(t, out, "✓ 3 of 3 nodes vote, and it takes 3: a quorum")
	require.NoError(t, f.Nodes()[0].Kill())
	code, out, _ = run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	require.Contains(t, out, "✗ 2 of 3 nodes vote, and it takes 3: no quorum")
	code, _, errs := run(t, "run", nodes(f), "--wait=1500ms", "k", "--", "true")
	require.Equal(t, 69, code)
	require.Contains(t, errs, "2 of 3 nodes vote, and it takes 3; ")
}
