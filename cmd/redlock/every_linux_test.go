package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// childrenOf are the processes of this name that a process has started.
func childrenOf(t *testing.T, pid int, name string) (children []int) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range stats {
		stat, _ := os.ReadFile(path) // it may have ended
		id, rest, _ := strings.Cut(string(stat), " ("+name+") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(id)
			require.NoError(t, err)
			children = append(children, child)
		}
	}
	return children
}

// What holds for one run holds for each.
func TestALaterRunDiesWithRedlockToo(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p := lead(t, f, log, "job", `echo $$ >>"$0"; [ $(wc -l <"$0") -lt 3 ] || exec sleep 60 >/dev/null`, "--every=50ms")
	log.await(t, "", 3)
	pid, err := strconv.Atoi(log.lines()[2])
	require.NoError(t, err)
	eventually(t, "the command", func() bool { return len(childrenOf(t, p.cmd.Process.Pid, "sleep")) == 1 })
	require.NoError(t, p.cmd.Process.Kill())
	p.wait()
	eventually(t, "the end of the command", func() bool { return isDead(pid) })
}

// Ctrl-Z stops it while a later run is under way, between two runs, and while it waits for the lock.
func TestALeaderIsStoppedAndGoesOn(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "enroll", nodes(f), "--change-config", "--yes", "--max-ttl=10m")
	require.Equal(t, 0, code, errs)
	log := newRunLog(t)
	p := startShell(t, "NODES="+nodes(f), "LOG="+string(log))
	p.typed(`"$BINARY" run "$NODES" --ttl=10m --every=200ms job -- bash -c 'echo $$ $PPID >>"$LOG"; [ ! -e "$LOG.long" ] || exec sleep 60' &` + "\n")
	log.await(t, "", 2)
	leader, err := strconv.Atoi(strings.Fields(log.lines()[0])[1])
	require.NoError(t, err)
	for range 5 { // at any moment
		require.NoError(t, syscall.Kill(leader, syscall.SIGTSTP))
		eventually(t, "redlock to stop", func() bool { return isStopped(leader) })
		ran := len(log.lines())
		require.NoError(t, syscall.Kill(leader, syscall.SIGCONT))
		log.await(t, "", ran+2)
	}
	require.NoError(t, os.WriteFile(string(log)+".long", nil, 0o600))
	var command []int
	eventually(t, "the long run", func() bool { command = childrenOf(t, leader, "sleep"); return len(command) == 1 })
	require.NoError(t, syscall.Kill(leader, syscall.SIGTSTP))
	eventually(t, "both to stop", func() bool { return isStopped(leader) && isStopped(command[0]) })
	require.NoError(t, syscall.Kill(leader, syscall.SIGCONT))
	eventually(t, "both to go on", func() bool { return !isStopped(leader) && !isStopped(command[0]) })

	require.NoError(t, syscall.Kill(leader, syscall.SIGTERM))
	eventually(t, "the end of both", func() bool { return isDead(leader) && isDead(command[0]) })

	// No command runs, and none will for long.
	log = newRunLog(t)
	p.typed(`"$BINARY" run "$NODES" --ttl=10m --every=10m idle -- bash -c 'echo $PPID >>"$0"' ` + string(log) + " &\n")
	log.await(t, "", 1)
	leader, err = strconv.Atoi(log.lines()[0])
	require.NoError(t, err)
	eventually(t, "the end of the command", func() bool { return len(childrenOf(t, leader, "bash")) == 0 })
	require.NoError(t, syscall.Kill(leader, syscall.SIGTSTP))
	eventually(t, "redlock to stop", func() bool { return isStopped(leader) })
	require.NoError(t, syscall.Kill(leader, syscall.SIGCONT))
	require.NoError(t, syscall.Kill(leader, syscall.SIGTERM))
	eventually(t, "the end", func() bool { return isDead(leader) })

	// It is stopped for longer than its lease, and finds that another has the lock.
	log = newRunLog(t)
	p.typed(`"$BINARY" run "$NODES" --ttl=3s --node-timeout=1s --every=50ms other -- bash -c 'echo $PPID >>"$0"' ` + string(log) + " &\n")
	log.await(t, "", 2)
	leader, err = strconv.Atoi(log.lines()[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(leader, syscall.SIGTSTP))
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), MaxTTL: 10 * time.Minute, NodeTimeout: 3 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	lease, err := client.Mutex("other").Acquire(t.Context())
	require.NoError(t, err)
	ran := len(log.lines())
	require.NoError(t, syscall.Kill(leader, syscall.SIGCONT))
	eventually(t, "it to wait", func() bool { return strings.Contains(p.said(), "other is held by ") })
	require.NoError(t, syscall.Kill(leader, syscall.SIGTSTP))
	eventually(t, "redlock to stop", func() bool { return isStopped(leader) })
	require.NoError(t, syscall.Kill(leader, syscall.SIGCONT))
	require.Equal(t, ran, len(log.lines()), "it ran beside the holder")
	require.NoError(t, lease.Release(t.Context()))
	log.await(t, "", ran+2)
	require.NoError(t, syscall.Kill(leader, syscall.SIGINT))
	p.leave(leader)
}
