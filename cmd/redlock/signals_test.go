//go:build unix

package main_test

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorumlock/redlock/internal/fleet"
)

// endings are the signals that end a command, with the exit code.
var endings = map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129, syscall.SIGQUIT: 131}

func signalName(sig syscall.Signal) string { return unix.SignalName(sig) }

// Each command that is interrupted says so, in JSON too.
func TestASignalEndsEveryCommandThatTalksToNodes(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	for _, line := range []string{"doctor", "inspect k", "release --force k", "enroll", "bench", "run k -- true"} {
		for sig, code := range endings {
			command, rest, _ := strings.Cut(line, " ")
			flags := []string{command, "--nodes", silent.Addr().String(), "--node-timeout=4s"}
			p := start(t, nil, nil, append(flags, strings.Fields(rest)...)...)
			conn, err := silent.Accept() // and so it waits for the answer
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, p.cmd.Process.Signal(sig))
			got, out, errs := p.wait()
			require.Equal(t, code, got, "%s: %s", line, errs)
			require.Empty(t, out)
			require.Regexp(t, `^redlock: interrupted by `+signalName(sig)+`( before the lock was acquired)?\n$`, errs, line)
		}
	}
	p := start(t, nil, nil, "doctor", "--nodes", silent.Addr().String(), "--node-timeout=4s", "--json")
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	code, out, errs := p.wait()
	require.Equal(t, 129, code, errs)
	require.JSONEq(t, `{"error":"interrupted by SIGHUP","kind":"interrupted"}`, out)
}

func TestANohupIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	p := startProgram(t, nil, nil, "nohup", binary, "top", "--json", "--interval=100ms", nodes(f), "k")
	eventually(t, "a line", func() bool { return strings.Contains(p.stdout.String(), "\n") })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	before := strings.Count(p.stdout.String(), "\n")
	eventually(t, "more lines", func() bool { return strings.Count(p.stdout.String(), "\n") > before+2 })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, _, errs := p.wait()
	require.Equal(t, 0, code, errs)
}
