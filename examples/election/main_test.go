package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLeaderIsKilledAndAnotherFollows(t *testing.T) {
	program := filepath.Join(t.TempDir(), "election")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `observer: web-\d leads, number \d+: it follows web-\d`, string(out))
}
