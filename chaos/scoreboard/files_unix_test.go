//go:build unix

package scoreboard

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsNoRegularFileStays(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that nobody waits for another
	require.NoError(t, err)
	defer reader.Close()
	require.NoError(t, replace(pipe, []byte("text")))
	info, err := os.Lstat(pipe)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
	text := make([]byte, 10)
	n, err := reader.Read(text)
	require.NoError(t, err)
	require.Equal(t, "text", string(text[:n]))
}
