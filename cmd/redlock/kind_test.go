//go:build unix

package main_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

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
		code, _, errs := run(t, append(append([]string{"run", nodes(f), "--wait=0"}, kind...), "--", "true")...)
		require.Equal(t, 0, code, errs)
		code, _, _ = run(t, "run", nodes(f), "--wait=0", key, "--", "true")
		require.Equal(t, 75, code, "alone")
		require.NoError(t, first.cmd.Process.Kill())
		first.wait()
	}
}
