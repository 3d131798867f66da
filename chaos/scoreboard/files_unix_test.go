//go:build unix

package scoreboard

import (
	"bytes"
	"io"
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

func TestTwoScoreboardsDoNotKeepTheirRunsInOneFile(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "board.json"), filepath.Join(dir, "link.json")
	require.NoError(t, os.Symlink(file, link))
	var inner error
	log := writerFunc(func(p []byte) (int, error) {
		if bytes.HasPrefix(p, []byte("[1/1]")) { // while the first runs
			_, inner = command(t, "--scenario control --seeds 1 --resume "+file, planted{name: "one"}).Run(t.Context(), io.Discard, io.Discard)
		}
		return len(p), nil
	})
	flags := "--scenario control --seeds 1 --resume " + file
	_, err := command(t, flags, planted{name: "one"}).Run(t.Context(), io.Discard, log)
	require.NoError(t, err)
	require.ErrorAs(t, inner, new(UsageError))
	require.ErrorIs(t, inner, errInUse)
	require.NoFileExists(t, file+".lock")

	unlock, err := lockAt(link)
	require.NoError(t, err)
	_, err = lockAt(file)
	require.ErrorIs(t, err, errInUse, "a link leads to the same file")
	unlock()
}
