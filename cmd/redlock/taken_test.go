//go:build unix

package main_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// The command gets TERM and can clean up. If it ignores TERM, it is killed.
func TestALockThatWasTakenAwayEndsTheCommandByTermFirst(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	ready := filepath.Join(t.TempDir(), "ready")
	for key, c := range map[string]struct{ script, grace, ended string }{
		"tidy": {`trap 'echo tidied; exit 5' TERM; echo >"$0"; while :; do sleep 0.02; done`, "4s",
			`and ended [0-9.]+m?s later \(it ended by itself after TERM, exit code 5\)`},
		"deaf": {`trap '' TERM; echo >"$0"; while :; do sleep 0.02; done`, "500ms",
			`and ended ([5-9][0-9][0-9]ms|[1-9][0-9.]*s) later \(killed, signal 9\)`},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel() // each waits for a renewal
			file := ready + key
			p := start(t, nil, nil, "run", nodes(f), "--ttl=9s", "--kill-after="+c.grace, key, "--", "sh", "-c", c.script, file)
			eventually(t, "the command", func() bool { return size(file) > 0 })
			code, _, errs := run(t, "release", "--force", "--node-timeout=3s", nodes(f), key)
			require.Equal(t, 0, code, errs)
			code, out, errs := p.wait()
			require.Equal(t, 76, code)
			require.Regexp(t, `(?m)^redlock: the lock was taken away: on [23] of 3 nodes it is no longer ours .* `+c.ended+`$`, errs)
			require.NotContains(t, errs, "could not be renewed")
			require.Equal(t, key == "tidy", out == "tidied\n", "%q", out)
		})
	}
}

// Servers that restart without their data take the lock away too, and nobody released or deleted it.
func TestALockOfServersThatLostTheirDataIsTakenAway(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	ready := filepath.Join(t.TempDir(), "ready")
	p := start(t, nil, nil, "run", nodes(f), "--ttl=10s", "k", "--", "sh", "-c", `echo >"$0"; sleep 20`, ready)
	eventually(t, "the command", func() bool { return size(ready) > 0 })
	spread(t, f, "k")
	everyNode(t, f, func(n *fleet.Node) error {
		if err := n.Kill(); err != nil {
			return err
		}
		return n.Start(t.Context(), fleet.Empty)
	})
	code, _, errs := p.wait()
	require.Equal(t, 76, code, errs)
	require.Regexp(t, `on [23] of 3 nodes it is no longer ours \(released by force, or deleted, or its servers lost their data\)`, errs)
}

// The command ends before the next renewal, so the release finds out.
func TestALockThatWasTakenAwayIsNoSuccessThoughTheCommandEnded(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	dir := t.TempDir()
	p := start(t, nil, nil, "run", nodes(f), "--ttl=30s", "--json", "k", "--", "sh", "-c",
		`echo >"$0/ready"; while [ ! -e "$0/go" ]; do sleep 0.02; done`, dir)
	eventually(t, "the command", func() bool { return size(filepath.Join(dir, "ready")) > 0 })
	code, _, errs := run(t, "release", "--force", nodes(f), "k")
	require.Equal(t, 0, code, errs)
	code, _, errs = run(t, "run", nodes(f), "--wait=0", "other", "--", "touch", filepath.Join(dir, "go"))
	require.Equal(t, 0, code, errs)
	code, _, errs = p.wait()
	require.Equal(t, 76, code, errs)
	require.Contains(t, errs, "the lock was taken away")
	require.Contains(t, errs, `"kind":"lost"`)
}
