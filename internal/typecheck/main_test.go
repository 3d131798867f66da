package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// module writes a module whose file for the system has a mistake, if any.
func module(t *testing.T, file, text string) (dir string) {
	dir = t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.25\n", "m.go": "package m\n", file: text} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	return dir
}

func TestAMistakeOnOneSystemIsFound(t *testing.T) {
	dir := module(t, "m_windows_test.go", "package m\n\nvar one int = \"1\"\n")
	require.NoError(t, check(dir, "linux/amd64"))
	require.EqualError(t, check(dir, "windows/amd64"), "1 errors")

	dir = module(t, "m_386.go", "package m\n\nvar large int = 1 << 40\n")
	require.NoError(t, check(dir, "linux/amd64"))
	require.EqualError(t, check(dir, "linux/386"), "1 errors")
}

func TestWhatCannotBeCheckedIsAnError(t *testing.T) {
	require.Error(t, check(t.TempDir(), "linux/amd64"))
	require.ErrorContains(t, check(module(t, "m.txt", ""), "linux"), "GOOS/GOARCH")
	require.Error(t, check(module(t, "m.txt", ""), "linux/none"))
}
