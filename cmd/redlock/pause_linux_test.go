package main_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorumlock/redlock/internal/fleet"
)

func isStopped(pid int) bool {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Contains(string(stat), ") T ")
}

// A worker is a command that writes to a file for as long as it works.
type worker struct{ dir string }

func newWorker(t *testing.T) worker {
	w := worker{t.TempDir()}
	// It starts no other process: until one that is stopped becomes sleep(1), its shell does not stop.
	const script = `trap 'echo got TERM; exit 9' TERM
exec 9<>"$0.fifo"
echo $$ >"$0.pid"
echo $PPID >"$0.redlock"
while :; do echo >>"$0.out"; read -t 0.01 -u 9; done
`
	require.NoError(t, syscall.Mkfifo(w.dir+"/work.fifo", 0o600))
	require.NoError(t, os.WriteFile(w.dir+"/work", []byte(script), 0o600))
	return w
}

// started returns the process ids of redlock and of the command, once it works.
func (w worker) started(t *testing.T) (redlock, command int) {
	redlock, command = pidIn(t, w.dir+"/work.redlock"), pidIn(t, w.dir+"/work.pid")
	w.works(t)
	return redlock, command
}

func (w worker) written() int64 { return size(w.dir + "/work.out") }

func (w worker) works(t *testing.T) {
	before := w.written()
	eventually(t, "the command at work", func() bool { return w.written() > before })
}

// startShell starts a shell that stops and continues jobs.
func startShell(t *testing.T, env ...string) *terminal {
	return startProgramAtTerminal(t, 80, 24, append(env, "BINARY="+binary), "bash", "--norc", "--noprofile", "--noediting", "-i")
}

// startInShell starts a shell, and in it redlock with a worker.
func startInShell(t *testing.T, f *fleet.Fleet, flags, key, end string) (p *terminal, w worker, redlock, command int) {
	w = newWorker(t)
	p = startShell(t, "NODES="+nodes(f), "WORK="+w.dir+"/work")
	p.typed(`"$BINARY" run "$NODES" ` + flags + " " + key + ` -- bash "$WORK"` + end + "\n")
	redlock, command = w.started(t)
	return p, w, redlock, command
}

// printed waits for the exit code of redlock, which the shell was told to print.
func (p *terminal) printed(code string) {
	p.t.Helper()
	eventually(p.t, "the end of redlock", func() bool { return strings.Contains(p.said(), "code=") })
	p.typed("exit\n")
	p.wait()
	require.Contains(p.t, p.said(), "code="+code+"\r\n")
}

// seesTheEnd waits until the shell has been told that its job has ended. Until then it takes it for a stopped one. Of a
// process with threads it is told later than the process looks like a zombie: when the last of the threads is gone.
func (p *terminal) seesTheEnd(job int) {
	p.t.Helper()
	eventually(p.t, "the shell to see the end of its job", func() bool { return syscall.Kill(job, 0) != nil })
}

// leave ends the shell after its job. It would stay beside one that it takes for stopped.
func (p *terminal) leave(job int) {
	p.t.Helper()
	p.seesTheEnd(job)
	p.typed("exit\n")
	p.wait()
}

// Ctrl-Z reaches the process group in the foreground of the terminal. The command has a group of its own where redlock was
// started in the background.
func TestCtrlZStopsTheCommandToo(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for key, background := range map[string]bool{"nightly": true, "hourly": false} {
		end := ""
		if background {
			end = " &"
		}
		p, w, redlock, command := startInShell(t, f, "--ttl=4s --kill-after=300ms --node-timeout=1s", key, end)
		group, err := syscall.Getpgid(redlock)
		require.NoError(t, err)
		commands, err := syscall.Getpgid(command)
		require.NoError(t, err)
		require.Equal(t, background, group != commands)
		if background {
			p.typed("fg\n")
			eventually(t, "redlock in the foreground", func() bool {
				foreground, err := unix.IoctlGetInt(int(p.master.Fd()), unix.TIOCGPGRP)
				return err == nil && foreground == group
			})
		}
		p.typed("\x1a")
		eventually(t, "redlock to stop", func() bool { return isStopped(redlock) })
		eventually(t, "the command to stop", func() bool { return isStopped(command) })
		stopped := w.written()
		lease, err := newClient(t, f).Mutex(key).Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, stopped, w.written(), "it wrote beside the next holder")
		p.typed("fg; echo code=$?\n")
		p.printed("76")
		eventually(t, "the end of the command", func() bool { return isDead(command) })
		if background {
			require.Equal(t, stopped, w.written(), "it was continued without a lease")
			require.Contains(t, p.said(), "lease lost: redlock stood still, and did not renew it")
		}
		require.NoError(t, lease.Release(t.Context()))
	}
}

// A terminal may stop what writes to it in the background. The command has a group of its own there, and must not work while
// redlock cannot renew the lease.
func TestTheCommandStopsWhereTheTerminalStopsRedlock(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	w := newWorker(t)
	p := startShell(t, "NODES="+nodes(f), "WORK="+w.dir+"/work")
	p.typed(`stty tostop; "$BINARY" run "$NODES" --ttl=9s nightly -- bash "$WORK" &` + "\n")
	redlock, command := w.started(t)
	require.NoError(t, f.Nodes()[0].Kill()) // what redlock says of it comes at the next renewal
	eventually(t, "both to stop", func() bool { return isStopped(redlock) && isStopped(command) })
	require.NoError(t, syscall.Kill(redlock, syscall.SIGKILL))
	eventually(t, "the end of the command", func() bool { return isDead(command) })
	p.leave(redlock)
}

func TestAfterAPauseTheCommandGoesOnUnderAValidLease(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	code, _, errs := run(t, "enroll", nodes(f), "--change-config", "--yes", "--max-ttl=10m")
	require.Equal(t, 0, code, errs)
	pause := func(redlock, command int) {
		t.Helper()
		require.NoError(t, syscall.Kill(redlock, syscall.SIGTSTP))
		require.NoError(t, syscall.Kill(redlock, syscall.SIGTSTP)) // two are one
		eventually(t, "both to stop", func() bool { return isStopped(redlock) && isStopped(command) })
	}
	p, w, redlock, command := startInShell(t, f, "--ttl=10m", "nightly", " &")
	for range 3 {
		pause(redlock, command)
		require.NoError(t, syscall.Kill(redlock, syscall.SIGCONT))
		w.works(t)
		require.False(t, isStopped(redlock))
	}
	// What redlock is told meanwhile, it does when it is continued.
	pause(redlock, command)
	require.NoError(t, syscall.Kill(redlock, syscall.SIGTERM))
	require.NoError(t, syscall.Kill(redlock, syscall.SIGCONT))
	p.seesTheEnd(redlock) // wait does not wait for a job that is stopped
	p.typed("wait -f %1; echo code=$?\n")
	p.printed("9")
	require.Contains(t, p.said(), "got TERM")

	p, _, redlock, command = startInShell(t, f, "--ttl=10m", "hourly", " &")
	pause(redlock, command)
	require.NoError(t, syscall.Kill(redlock, syscall.SIGKILL))
	eventually(t, "the end of the command", func() bool { return isDead(command) })
	p.leave(redlock)
}

// STOP reaches redlock alone, as a machine that is suspended does in effect: nodes are not to blame for the loss.
func TestALossWhileItStoodStillIsNotBlamedOnTheNodes(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	w := newWorker(t)
	// It stands still for two thirds of that, or less if a busy machine renewed it late, and it must be more than a third.
	p := start(t, nil, nil, "run", nodes(f), "--ttl=12s", "nightly", "--", "bash", w.dir+"/work")
	redlock, _ := w.started(t)
	require.NoError(t, syscall.Kill(redlock, syscall.SIGSTOP))
	lease, err := newClient(t, f).Mutex("nightly").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(redlock, syscall.SIGCONT))
	code, _, errs := p.wait()
	require.Equal(t, 76, code, errs)
	require.Contains(t, errs, "lease lost: redlock stood still, and did not renew it")
	require.NoError(t, lease.Release(t.Context()))
}

func TestCtrlZGivesTheTerminalOfTopBack(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	const enter, leave = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
	p := startShell(t, "NODES="+nodes(f))
	p.typed(`"$BINARY" top --interval=1h "$NODES" nightly` + "\n")
	for times := 1; times <= 2; times++ {
		eventually(t, "a frame", func() bool {
			screens := strings.Split(p.said(), enter)
			return len(screens) > times && strings.Contains(screens[times], "nightly")
		})
		p.typed("\x1a")
		eventually(t, "the shell to say that it stopped", func() bool { return strings.Count(p.said(), "Stopped") == times })
		screens := strings.Split(p.said(), enter)
		_, rest, left := strings.Cut(screens[times], leave)
		require.True(t, left, "%q", p.said())
		require.Contains(t, rest, "Stopped", "in that order")
		p.typed("fg\n")
	}
	eventually(t, "the last frame", func() bool { return strings.Count(p.said(), enter) == 3 })
	p.typed("\x03")
	eventually(t, "the end", func() bool { return strings.Count(p.said(), leave) == 3 })
	p.typed("exit\n")
	p.wait()
}

// The command of an inner run is in a group of its own, which the signal to the outer run does not reach.
func TestAPauseStopsTheCommandOfARunWithinARun(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	code, _, errs := run(t, "enroll", nodes(f), "--change-config", "--yes", "--max-ttl=10m")
	require.Equal(t, 0, code, errs)
	w := newWorker(t)
	p := startShell(t, "NODES="+nodes(f), "WORK="+w.dir+"/work")
	p.typed(`"$BINARY" run "$NODES" --ttl=10m outer -- "$BINARY" run "$NODES" --ttl=10m inner -- bash "$WORK" &` + "\n")
	inner, command := w.started(t)
	redlocks := childrenOf(t, p.cmd.Process.Pid, "redlock")
	require.Len(t, redlocks, 1)
	outer := redlocks[0]
	for range 2 {
		require.NoError(t, syscall.Kill(outer, syscall.SIGTSTP))
		for what, pid := range map[string]int{"outer": outer, "inner": inner, "command": command} {
			eventually(t, what+" to stop", func() bool { return isStopped(pid) })
		}
		require.NoError(t, syscall.Kill(outer, syscall.SIGCONT))
		w.works(t)
	}
	require.NoError(t, syscall.Kill(outer, syscall.SIGTERM))
	p.seesTheEnd(outer)
	p.typed("wait -f %1; echo code=$?\n")
	p.printed("9")
}
