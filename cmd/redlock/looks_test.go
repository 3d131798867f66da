//go:build unix

package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// After all servers have forgotten, the first client that begins the quarantines decides the configuration, and with it
// how long they last. A command that looks must not be that client: it knows no MaxTTL but the default.
func TestACommandThatLooksBeginsNoQuarantine(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	none := func() {
		t.Helper()
		everyNode(t, f, func(n *fleet.Node) error {
			require.Nil(t, do(t, n, "GET", "redlock:node"))
			require.Nil(t, do(t, n, "GET", "redlock:config"))
			return nil
		})
	}
	code, out, errs := run(t, "doctor", nodes(f))
	require.Equal(t, 1, code, errs)
	require.Contains(t, out, "no client has begun its quarantine")
	require.Equal(t, 3, strings.Count(out, "  not begun\n"), out)
	none()
	code, _, _ = run(t, "inspect", nodes(f), "x")
	require.Equal(t, 69, code)
	code, _, _ = run(t, "top", nodes(f), "--count=1")
	require.Equal(t, 69, code)
	run(t, "release", "--force", nodes(f), "x")
	none()
	code, out, _ = run(t, "doctor", nodes(f), "--max-ttl=2m")
	require.Equal(t, 1, code)
	require.Contains(t, out, "in quarantine for up to 2m0", "whoever gives it, decides it")
	code, out, _ = run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	require.Regexp(t, `in quarantine for up to (2m0|1m5)`, out, "what is held on nodes in quarantine counts too")
	_, out, _ = run(t, "doctor", "--json", nodes(f))
	require.Equal(t, len(f.Nodes()), strings.Count(out, "nobody has used yet, `redlock enroll --only-new` ends this now)"), "a command, and no function of Go: %s", out)
	everyNode(t, f, func(n *fleet.Node) error {
		require.Contains(t, string(do(t, n, "GET", "redlock:config").([]byte)), "MaxTTL 120000ms")
		return nil
	})
}

// However few nodes remember the configuration: it is better than the default.
func TestACommandTakesTheConfigurationThatAMinorityRemembers(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	code, _, errs := run(t, "enroll", "--only-new", "--max-ttl=2m", nodes(f))
	require.Equal(t, 0, code, errs)
	for _, n := range f.Nodes()[:3] {
		do(t, n, "FLUSHALL")
	}
	code, out, errs := run(t, "doctor", nodes(f))
	require.Equal(t, 1, code, errs)
	require.Contains(t, out, "2 of 5 nodes vote")
	require.NotContains(t, out, "MaxTTL", "it is configured as they are")
	code, _, errs = run(t, "enroll", "--yes", nodes(f))
	require.Equal(t, 0, code, errs)
	everyNode(t, f, func(n *fleet.Node) error {
		require.Contains(t, string(do(t, n, "GET", "redlock:config").([]byte)), "MaxTTL 120000ms")
		return nil
	})
}
