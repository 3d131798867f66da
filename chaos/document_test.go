//go:build unix

package chaos_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lock in the program of docs/failover.md is on one node, so it does not survive that the node loses it. Its process can
// be killed.
func TestTheProgramInTheDocumentTestsItsLock(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("NOT TESTED: clients are killed on Linux only")
	}
	text, err := os.ReadFile("../docs/failover.md")
	require.NoError(t, err)
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(text)
	require.NotNil(t, program)
	dir, err := os.MkdirTemp(".", "_document") // inside the module, and no part of ./...
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), program[1], 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "run", "./"+dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "flush unsafe\ndead-holder safe\n", string(out))
}
