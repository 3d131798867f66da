package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// unread is how many bytes nobody has read from a pipe.
func unread(t *testing.T, pipe *os.File) int {
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	require.NoError(t, err)
	return n
}

// What redlock reads may come from somebody who never ends it: a terminal, or the other end of a pipe.
func TestASignalEndsACommandThatReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for _, line := range []string{
		"release --token=- --nodes a:1 k", "release --force --nodes-file=- k", "doctor --nodes-file=-", "bench --nodes-file=-",
		"run --nodes-file=- k -- true", "run --json --nodes-file=- k -- true", "top --nodes-file=-",
		"doctor --nodes-file=FIFO", "doctor --nodes=a:1 --password-file=FIFO", "run --nodes=rediss://a:1 --ca=FIFO k -- true",
	} {
		for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
			stdin, other, err := os.Pipe()
			require.NoError(t, err)
			_, err = other.WriteString("a:1")
			require.NoError(t, err)
			p := start(t, stdin, nil, strings.Fields(strings.ReplaceAll(line, "FIFO", fifo))...)
			if strings.Contains(line, "FIFO") {
				opened, err := os.OpenFile(fifo, os.O_WRONLY, 0) // once redlock opens it too
				require.NoError(t, err)
				defer opened.Close()
			} else {
				eventually(t, "a read", func() bool { return unread(t, stdin) == 0 })
			}
			began := time.Now()
			require.NoError(t, p.cmd.Process.Signal(sig))
			code, out, errs := p.wait()
			if strings.HasPrefix(line, "top") { // a signal is how one ends it
				require.Equal(t, 0, code, errs)
				require.Empty(t, errs)
			} else {
				require.Equal(t, want, code, "%s: %s", line, errs)
				require.Contains(t, errs, "interrupted by "+signalName(sig), line)
			}
			require.Empty(t, out, line)
			require.Less(t, time.Since(began), 20*time.Second, line)
			stdin.Close()
			other.Close()
		}
	}
}

// The first signal lets redlock clean up, the second does not wait for that. Two that come together are one: a terminal
// that closes sends two.
func TestASecondSignalEndsACommandAtOnce(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	pipe, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(t, err)
	defer pipe.Close()
	args := []string{"-c", `exec "$0" "$@" >` + fifo, binary, "top", "--nodes=embedded", "--json"}
	for range 1000 {
		args = append(args, "k"+strings.Repeat("x", 100)+string(rune('a'+len(args)%26))+time.Duration(len(args)).String())
	}
	p := startProgram(t, nil, nil, "sh", args...)
	eventually(t, "a pipe that is full", func() bool { return unread(t, pipe) > 60000 })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	time.Sleep(time.Second)
	require.NoError(t, p.cmd.Process.Signal(syscall.Signal(0)), "it still tries to write")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan struct{})
	go func() { defer close(ended); p.wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-ended
		t.Fatal("the second signal did nothing")
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, status.Signaled() && status.Signal() == syscall.SIGTERM, p.cmd.ProcessState.String())
}
