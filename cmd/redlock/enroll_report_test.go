//go:build unix

package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// Whoever reads the line of a script or a person learns of each node whether it is enrolled, and of which one it changed.
func TestEnrollSaysOfEachNodeWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	enroll := func(code int, flags ...string) (enrolled, why []string, kind string) {
		t.Helper()
		// On a busy machine nodes answer late.
		got, out, errs := run(t, append([]string{"enroll", "--json", "--node-timeout=2s", nodes(f)}, flags...)...)
		require.Equal(t, code, got, out)
		require.Empty(t, errs)
		require.Equal(t, 1, strings.Count(out, "\n"))
		var r struct {
			Nodes []struct {
				Enrolled    string
				NotEnrolled string `json:"not_enrolled"`
			}
			Kind, Error string
		}
		require.NoError(t, json.Unmarshal([]byte(out), &r), out)
		require.Equal(t, code == 0, r.Error == "", out)
		for _, n := range r.Nodes {
			enrolled, why = append(enrolled, n.Enrolled), append(why, n.NotEnrolled)
			require.Equal(t, n.Enrolled == "no", n.NotEnrolled != "", out)
		}
		return enrolled, why, r.Kind
	}
	enrolled, _, _ := enroll(0)
	require.Equal(t, []string{"now", "now", "now"}, enrolled)
	enrolled, _, _ = enroll(0)
	require.Equal(t, []string{"already", "already", "already"}, enrolled)

	do(t, f.Nodes()[1], "FLUSHALL")
	require.NoError(t, f.Nodes()[2].Kill())
	enrolled, why, kind := enroll(64)
	require.Equal(t, []string{"already", "no", "no"}, enrolled, "nobody confirmed it")
	require.Equal(t, "usage", kind)
	require.Contains(t, why[1], "it is new, or it restarted")
	require.Contains(t, why[2], "connection refused; is redis-server running there")
	enrolled, why, kind = enroll(69, "--yes")
	require.Equal(t, []string{"already", "now", "no"}, enrolled)
	require.Equal(t, "no-quorum", kind)
	require.Contains(t, why[2], "connection refused; is redis-server running there")

	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 69, code)
	require.Contains(t, errs, "2 nodes enrolled already: "+namesOf(f.Nodes()[:2])+"; nothing was changed; not enrolled: "+namesOf(f.Nodes()[2:])+": ")
	enrolled, _, _ = enroll(69)
	require.Equal(t, []string{"already", "already", "no"}, enrolled)

	do(t, f.Nodes()[1], "FLUSHALL")
	code, _, errs = run(t, "enroll", "--yes", nodes(f))
	require.Equal(t, 69, code)
	require.Contains(t, errs, "1 node enrolled: "+namesOf(f.Nodes()[1:2])+"; 1 was already: "+namesOf(f.Nodes()[:1])+"; not enrolled: "+namesOf(f.Nodes()[2:])+": ")

	require.NoError(t, f.Nodes()[2].Start(t.Context(), fleet.Empty))
	enrolled, _, _ = enroll(64, "--change-config", "--max-ttl=20s")
	require.Equal(t, []string{"already", "already", "no"}, enrolled, "not confirmed")
	enrolled, _, _ = enroll(0, "--change-config", "--max-ttl=20s", "--yes")
	require.Equal(t, []string{"now", "now", "now"}, enrolled)
	enrolled, why, _ = enroll(64, "--max-ttl=25s")
	require.Equal(t, []string{"no", "no", "no"}, enrolled)
	require.Contains(t, why[0], "MaxTTL is 25s here and 20s there; give --max-ttl 20s")
	enrolled, _, _ = enroll(0)
	require.Equal(t, []string{"already", "already", "already"}, enrolled)
}
