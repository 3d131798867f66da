package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// pidIn waits for a process id in a file.
func pidIn(t *testing.T, file string) (pid int) {
	t.Helper()
	eventually(t, "the process id in "+filepath.Base(file), func() bool {
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

// isDead is true for a zombie too.
func isDead(pid int) bool {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ")
}

func TestTheCommandDiesWithRedlock(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	p := start(t, nil, nil, "run", "--nodes=embedded", "k", "--", "sh", "-c", `echo $$ >"$0"; exec sleep 20 >/dev/null`, file)
	pid := pidIn(t, file)
	require.NoError(t, p.cmd.Process.Kill())
	p.wait()
	eventually(t, "the end of the command", func() bool { return isDead(pid) })
}

// The kernel kills the command itself. The guard kills the processes that the command started.
func TestWhatTheCommandStartedDiesWithRedlock(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 3})
	const script = `trap '' TERM HUP; sh -c 'trap "" TERM HUP; echo $$ >"$0"; exec sleep 60 >/dev/null' "$0" & wait`
	for tries := 1; ; tries++ {
		file := filepath.Join(t.TempDir(), "pid")
		p := start(t, nil, nil, "run", nodes(f), fmt.Sprint("k", tries), "--", "sh", "-c", script, file)
		pid := pidIn(t, file)
		require.False(t, isDead(pid))
		require.NoError(t, p.cmd.Process.Kill())
		p.wait()
		end := time.Now().Add(5 * time.Second)
		for !isDead(pid) && time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond)
		}
		if isDead(pid) {
			return
		}
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		// On a busy machine, redlock may still have been starting the command. The help says that it is not guarded then.
		require.Less(t, tries, 5, "what the command started goes on")
	}
}

// If the command ends normally, the guard does not kill what it leaves behind. It counts the guards of all tests, so it is not
// parallel.
func TestTheGuardEndsWithTheCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	code, _, errs := run(t, "run", "--nodes=embedded", "k", "--", "sh", "-c", `sleep 30 >/dev/null 2>&1 </dev/null & echo $! >"$0"`, file)
	require.Equal(t, 0, code, errs)
	pid := pidIn(t, file)
	require.False(t, isDead(pid), "it was left running by the command, which had ended")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	guards := 0
	eventually(t, "the end of every guard", func() bool {
		guards = 0
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			text, _ := os.ReadFile(f)
			if strings.Contains(string(text), filepath.Dir(binary)) && strings.Contains(string(text), "guard-run") {
				guards++
			}
		}
		return guards == 0
	})
}
