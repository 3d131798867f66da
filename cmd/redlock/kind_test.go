//go:build unix

package main_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestRunSharesALockWithOthersThatReadOrWithSoMany(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	for _, kind := range [][]string{{"--read", "r"}, {"--semaphore=2", "s"}} {
		first := start(t, nil, nil, append(append([]string{"run", nodes(f)}, kind...), "--", "sleep", "20")...)
		key := kind[1]
		var state struct {
			Held    bool
			Sharers []struct {
				Token   string
				Label   string
				Slots   []int
				Permits int
			}
		}
		eventually(t, "the first to have the lock", func() bool {
			_, out, _ := run(t, "inspect", "--json", nodes(f), key)
			return json.Unmarshal([]byte(out), &state) == nil && len(state.Sharers) == 1
		})
		require.True(t, state.Held)
		_, out, _ := run(t, "inspect", nodes(f), key)
		require.Contains(t, out, key+" is shared by 1")
		require.Equal(t, "sleep", state.Sharers[0].Label)
		require.Regexp(t, `(?m)^  [^ :]+/[0-9]+ \(sleep\) (reads|has 1 permit \(slot [01] of 2\)), for `, out)
		require.NotContains(t, out, state.Sharers[0].Token, "whoever has a token can release the lock")
		code, _, errs := run(t, append(append([]string{"run", nodes(f), "--wait=0"}, kind...), "--", "true")...)
		require.Equal(t, 0, code, errs)
		code, _, _ = run(t, "run", nodes(f), "--wait=0", key, "--", "true")
		require.Equal(t, 75, code, "alone")
		require.NoError(t, first.cmd.Process.Kill())
		first.wait()
	}
}

// A lock that is shared is one of this library, and its key is no string.
func TestReleaseEndsALockThatIsShared(t *testing.T) {
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	for key, lock := range map[string]redlock.Lock{"r": client.RWMutex("r").Reader(), "s": client.Semaphore("s", 2)} {
		_, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		code, out, errs := run(t, "release", "--force", nodes(f), key)
		require.Equal(t, 0, code, errs)
		require.Contains(t, out, key+" was released")
	}
	do(t, f.Nodes()[0], "SET", "data", "readers", "PX", 60000)
	code, _, errs := run(t, "release", "--force", nodes(f), "data")
	require.Equal(t, 64, code)
	require.Contains(t, errs, "add --foreign")
}
