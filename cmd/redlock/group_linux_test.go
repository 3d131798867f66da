package main_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/required"
)

// finisher is a script that starts a process in its group. On TERM the script dies, and that process finishes a step, until
// the test lets it end.
const finisher = `bash -c '
trap "echo told >>\"\$0\"; until [ -e \"\$0.go\" ]; do sleep 0.02; done; echo done >>\"\$0\"; exit" TERM
echo $$ >>"$0.pid"; echo ready >>"$0"
while :; do sleep 0.02; done' "$0" >/dev/null 2>&1; true`

const waitsForGroup = "; waiting for the rest of its process group\n"

// startFinisher runs it under the lock "job", and waits until it is at work.
func startFinisher(t *testing.T, f *fleet.Fleet, flags ...string) (p *process, log runLog, finishes int) {
	log = newRunLog(t)
	args := append([]string{"run", nodes(f), "--node-timeout=1s"}, flags...)
	p = start(t, nil, nil, append(args, "job", "--", "bash", "-c", finisher, string(log))...)
	log.await(t, "ready", 1)
	return p, log, pidIn(t, string(log)+".pid")
}

func letEnd(t *testing.T, log runLog) {
	require.NoError(t, os.WriteFile(string(log)+".go", nil, 0o600))
}

func requireHeld(t *testing.T, f *fleet.Fleet, held bool) {
	t.Helper()
	lease, err := newClient(t, f).Mutex("job").TryAcquire(t.Context())
	if held {
		require.ErrorIs(t, err, redlock.ErrHeld)
		return
	}
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

// It is told by way of redlock, or directly, as systemd tells every process of a unit.
func TestTheLockIsHeldUntilAllThatWereToldToEndHaveEnded(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, direct := range []bool{false, true} {
		p, log, finishes := startFinisher(t, f)
		told := p.cmd.Process.Pid
		if direct {
			group, err := syscall.Getpgid(finishes)
			require.NoError(t, err)
			told = -group
		}
		require.NoError(t, syscall.Kill(told, syscall.SIGTERM))
		log.await(t, "told", 1)
		eventually(t, "the end of the command", func() bool {
			return strings.Contains(p.said(), "redlock: the command has ended (signal 15)"+waitsForGroup)
		})
		requireHeld(t, f, true)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM)) // another one changes nothing
		letEnd(t, log)
		code, _, errs := p.wait()
		require.Equal(t, 143, code, errs)
		require.Equal(t, 1, log.count("done"))
		requireHeld(t, f, false)
	}
}

// Meanwhile it is guarded as before: against the loss of the lease, and the death of redlock.
func TestWhatWasToldToEndIsKilledIfTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	p, log, finishes := startFinisher(t, f, "--ttl=3s", "--kill-after=100ms")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	log.await(t, "told", 1)
	eventually(t, "the end of the command", func() bool { return strings.Contains(p.said(), waitsForGroup) })
	code, _, errs := run(t, "release", "--force", "--node-timeout=3s", nodes(f), "job")
	require.Equal(t, 0, code, errs)
	code, _, errs = p.wait()
	require.Equal(t, 76, code, errs)
	require.Regexp(t, `(?m)^redlock: the lock was taken away: [^\n]*: the command had ended \(signal 15\), and the rest of its process group was told to end$`, errs)
	eventually(t, "the end of the process", func() bool { return isDead(finishes) })

	p, log, finishes = startFinisher(t, f)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	log.await(t, "told", 1)
	eventually(t, "the end of the command", func() bool { return strings.Contains(p.said(), waitsForGroup) })
	require.NoError(t, p.cmd.Process.Kill())
	p.wait()
	eventually(t, "the end of the process", func() bool { return isDead(finishes) })
}

// A process that is stopped gets TERM when it is continued.
func TestACommandThatIsStoppedIsToldToEndToo(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p := start(t, nil, nil, "run", nodes(f), "job", "--", "bash", "-c", `trap 'exit 9' TERM; echo $$ >>"$0"; kill -STOP $$; sleep 60`, string(log))
	command := pidIn(t, string(log))
	eventually(t, "the command to stop", func() bool { return isStopped(command) })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, _, errs := p.wait()
	require.Equal(t, 9, code, errs)
}

// timeout ends before what it ended, and so may every script.
func TestTheNextRunBeginsWhenAllOfTheLastOneHasEnded(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p := lead(t, f, log, "job", `(sleep 0.1; echo ended >>"$0") & echo began >>"$0"`, "--every=20ms")
	log.await(t, "ended", 4)
	require.NoError(t, p.cmd.Process.Kill())
	p.wait()
	for i, line := range log.lines() {
		require.Equal(t, []string{"began", "ended"}[i%2], line, "%v", log.lines())
	}
}

func TestWhatARunHasLeftEndsWithTheLease(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p := lead(t, f, log, "job", `echo $$ >>"$0"; [ -e "$0.pid" ] || { sleep 600 >/dev/null 2>&1 & echo $! >>"$0.pid"; }`, "--every=20ms", "--ttl=3s")
	left := pidIn(t, string(log)+".pid")
	eventually(t, "the line about it", func() bool {
		return strings.Contains(p.said(), "redlock: the command has ended (exit code 0)"+waitsForGroup)
	})
	require.Len(t, log.lines(), 1)
	code, _, errs := run(t, "release", "--force", "--node-timeout=3s", nodes(f), "job")
	require.Equal(t, 0, code, errs)
	log.await(t, "", 2)
	require.True(t, isDead(left))
	require.Contains(t, p.said(), "and the rest of its process group was told to end; waiting for the lock again\n")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.wait()
}

// In a container, process 1 may be a program that waits for no orphan.
func TestADeadProcessThatNobodyWaitsForHoldsUpNothing(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	// The parent of the dead process is in another group, and becomes sleep(1).
	const script = `bash -c 'sleep 0.01 & echo $$ >>"$0.pids"; exec setsid sleep 60 >/dev/null 2>&1' "$0" & echo run >>"$0"`
	p := lead(t, f, log, "job", script, "--every=20ms")
	log.await(t, "run", 4)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.wait()
	for _, line := range runLog(string(log) + ".pids").lines() {
		pid, err := strconv.Atoi(line)
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// As process 1 of a container, redlock becomes the parent of all orphans. Here it is told to become that.
func TestALeaderThatGetsOrphansWaitsForThem(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	const adopt = `import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])` // PR_SET_CHILD_SUBREAPER
	p := startProgram(t, nil, nil, required.Python(t), "-c", adopt, binary, "run", nodes(f), "--every=50ms", "job", "--",
		"bash", "-c", `(sleep 0.01 &); (setsid sleep 0.01 >/dev/null 2>&1 &); echo run >>"$0"`, string(log))
	log.await(t, "run", 10)
	eventually(t, "no orphan", func() bool { return len(childrenOf(t, p.cmd.Process.Pid, "sleep")) == 0 })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.wait()
}

// One that comes from the keyboard reaches the command directly, and redlock cannot tell it from another.
func TestAtATerminalIntIsNotPassedOnAndTermIs(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	p, _, redlock, _ := startInShell(t, f, "", "nightly", "; echo code=$?")
	require.NoError(t, syscall.Kill(redlock, syscall.SIGINT))
	require.NoError(t, syscall.Kill(redlock, syscall.SIGTERM))
	p.printed("9")
	require.Contains(t, p.said(), "got TERM")
}

// redlock waits for the rest of a group and is stopped. Meanwhile the group ends, and the system gives its id to another one.
// What other tests start could get that id, so it is not parallel.
func TestAGroupThatGotTheSameIDLives(t *testing.T) {
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	p, log, _ := startFinisher(t, f, "--ttl=3s", "--kill-after=100ms")
	group, err := syscall.Getpgid(pidIn(t, string(log)+".pid"))
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	log.await(t, "told", 1)
	eventually(t, "the end of the command", func() bool { return strings.Contains(p.said(), waitsForGroup) })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	letEnd(t, log)
	eventually(t, "the end of the group", func() bool { return syscall.Kill(-group, 0) == syscall.ESRCH })
	var innocent *exec.Cmd
	for range 200 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(group-1)), 0); err != nil {
			required.Missing(t, "root", err)
		}
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, cmd.Start())
		if cmd.Process.Pid == group {
			innocent = cmd
			break
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if innocent == nil {
		required.Missing(t, "root", errors.New("the id was not given again"))
	}
	ended := make(chan error, 1)
	go func() { ended <- innocent.Wait() }()
	for _, n := range f.Nodes() {
		eventually(t, "the end of the key on "+n.Name(), func() bool { return do(t, n, "GET", "job") == nil })
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	_, _, errs := p.wait()
	select {
	case err := <-ended:
		t.Errorf("another process was ended: %v; redlock says: %s", err, errs)
	case <-time.After(time.Second):
		_ = innocent.Process.Kill()
	}
}

// redlock is process 1 of a PID namespace that has no /proc of its own. What it waits for is dead, and its own child.
func TestAsProcess1ItNeedsNoProcOfItsOwn(t *testing.T) {
	t.Parallel()
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Getuid() != 0 {
		required.Missing(t, "root", errors.New("it takes unshare and root"))
	}
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	start := func(args ...string) *process {
		args = append([]string{"--pid", "--fork", "--kill-child", binary, "run", nodes(f), "--node-timeout=1s"}, args...)
		return startProgram(t, nil, nil, unshare, args...)
	}
	t.Run("every", func(t *testing.T) {
		log := newRunLog(t)
		p := start("--every=100ms", "job", "--", "bash", "-c", `(sleep 0.01 &); echo run >>"$0"`, string(log))
		defer func() { _ = p.cmd.Process.Kill(); p.wait() }()
		eventually(t, "a second run", func() bool { return log.count("run") >= 2 })
	})
	t.Run("TERM", func(t *testing.T) {
		log := newRunLog(t)
		p := start("job2", "--", "bash", "-c", `(sleep 100 &); echo ready >>"$0"; sleep 100`, string(log))
		log.await(t, "ready", 1)
		redlocks := childrenOf(t, p.cmd.Process.Pid, "redlock")
		require.Len(t, redlocks, 1)
		require.NoError(t, syscall.Kill(redlocks[0], syscall.SIGTERM))
		ended := make(chan struct{})
		go func() { p.wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("everything that it started is dead, and it still holds the lock: ", p.said())
			_ = p.cmd.Process.Kill()
			<-ended
		}
	})
}
