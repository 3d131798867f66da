package main_test

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorumlock/redlock/internal/fleet"
)

// startStuck runs redlock with a standard error that is full and that nobody reads, as that of a pager, or of a terminal after
// Ctrl-S. drain reads it from then on, and returns all that redlock writes there until it ends.
func startStuck(t *testing.T, args ...string) (p *process, drain func() string) {
	t.Helper()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	ours, err := os.OpenFile(pipe, os.O_RDWR, 0) // for both directions: opening it waits for nobody
	require.NoError(t, err)
	t.Cleanup(func() { ours.Close() })
	_, err = unix.FcntlInt(ours.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize())
	require.NoError(t, err)
	filler := make([]byte, os.Getpagesize())
	n, err := syscall.Write(int(ours.Fd()), filler)
	require.NoError(t, err)
	require.Len(t, filler, n)

	stdErr := `exec "$0" "$@" 2>"$STUCK"`
	p = startProgram(t, nil, []string{"STUCK=" + pipe}, "sh", append([]string{"-c", stdErr, binary}, args...)...)
	return p, func() string {
		t.Helper()
		reads, err := os.Open(pipe)
		require.NoError(t, err)
		require.NoError(t, ours.Close()) // redlock has the only other end
		text, err := io.ReadAll(reads)
		require.NoError(t, err)
		require.NoError(t, reads.Close())
		return string(text[n:])
	}
}

// What redlock has to say first, that the lease cannot be renewed, must not keep it from ending the command in time.
func TestACommandIsEndedAlthoughNobodyReadsWhatRedlockSays(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p, drain := startStuck(t, "run", nodes(f), "--ttl=3s", "k", "--", "sh", "-c", `echo $$ >>"$0"; exec sleep 100`, string(log))
	log.await(t, "", 1)
	works := pidIn(t, string(log))
	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Kill())
	}
	eventually(t, "the end of the command", func() bool { return syscall.Kill(works, 0) == syscall.ESRCH })
	said := drain()
	code, _, _ := p.wait()
	require.Equal(t, 76, code, said)
	require.Regexp(t, `\Aredlock: the lease cannot be renewed [^\n]+\nredlock: lease lost: [^\n]+: the command was told to end, [^\n]+\n\z`,
		said)
}

func TestRunsGoOnAlthoughNobodyReadsThatTheyFail(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p, drain := startStuck(t, "run", nodes(f), "--node-timeout=1s", "--every=20ms", "k", "--",
		"sh", "-c", `echo run >>"$0"; exit 1`, string(log))
	log.await(t, "run", 4)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	said := drain()
	p.wait()
	require.Regexp(t, `\A(redlock: the command failed \(exit code 1\); it runs again in [^\n]+\n){3}`, said)
}
