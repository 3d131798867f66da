//go:build unix

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// --at-least keeps others from work that was done. Where it was not, another host must do it.
func TestACommandThatCannotBeExecutedHoldsNothing(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	script := filepath.Join(t.TempDir(), "script") // it is found, and executable
	require.NoError(t, os.WriteFile(script, []byte("#!/no/such\n"), 0o755))
	for _, keys := range []string{"k", "l m"} {
		for _, flag := range []string{"--fair", "--json"} {
			line := append(append([]string{"run", nodes(f), "--wait=0", "--at-least=20s", flag}, strings.Fields(keys)...), "--", script)
			code, _, errs := run(t, line...)
			require.Equal(t, 126, code, errs)
			require.Contains(t, errs, "cannot be executed")
			line = append(append([]string{"run", nodes(f), "--wait=0"}, strings.Fields(keys)...), "--", "true")
			code, _, errs = run(t, line...)
			require.Equal(t, 0, code, errs)
		}
	}
	code, _, errs := run(t, "run", nodes(f), "--wait=0", "--at-least=20s", "k", "--", "sh", "-c", "exit 126")
	require.Equal(t, 126, code, errs)
	code, _, errs = run(t, "run", nodes(f), "--wait=0", "k", "--", "true")
	require.Equal(t, 75, code, "a command that says 126 itself has run: %s", errs)
}
