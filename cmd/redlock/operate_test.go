package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// What a newcomer does: five fresh servers, doctor says why nothing is granted, enroll ends it.
func TestDoctorSaysWhatIsWrongAndEnrollEndsAQuarantine(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	code, out, _ := run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	require.Equal(t, 5, strings.Count(out, "in quarantine for"), out)
	require.Contains(t, out, "redlock enroll")
	require.Contains(t, out, "✗ 0 of 5 nodes vote")

	code, _, errs := run(t, "run", "--wait", "0", nodes(f), "k", "--", "true")
	require.Equal(t, 69, code)
	require.Contains(t, errs, "redlock enroll")

	code, out, errs = run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "5 nodes enrolled")

	code, out, _ = run(t, "doctor", nodes(f))
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "✓ 5 of 5 nodes vote")
	code, _, errs = run(t, "run", "--wait", "0", nodes(f), "k", "--", "true")
	require.Equal(t, 0, code, errs)

	require.NoError(t, f.Nodes()[3].Kill())
	code, out, _ = run(t, "doctor", "--json", nodes(f))
	require.Equal(t, 1, code)
	var d struct {
		Votes int
		Nodes []struct {
			Votes   bool
			Problem string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Equal(t, 4, d.Votes)
	require.False(t, d.Nodes[3].Votes)
	require.NotEmpty(t, d.Nodes[3].Problem)
	code, _, errs = run(t, "enroll", nodes(f))
	require.Equal(t, 69, code)
	require.Contains(t, errs, f.Nodes()[3].URL()[len("redis://"):])
}
