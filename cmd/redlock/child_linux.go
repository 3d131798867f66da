package main

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithUs makes the kernel kill the command when the thread that started it ends. This does not cover processes that
// the command starts, nor a set-user-ID command.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// stopProcess stops this process until it gets CONT. The signal goes to this thread: sent to the process, another thread may
// take it, and this one would go on for a moment.
func stopProcess() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(syscall.Getpid(), unix.Gettid(), syscall.SIGSTOP)
}

// allDead reports whether all processes of the group that can be seen have ended, and there is one. It remembers one that has
// not, to look at it first the next time: a machine may have thousands.
func (c *child) allDead() bool {
	group := strconv.Itoa(c.cmd.Process.Pid)
	if c.member != "" {
		if member, dead := stateOf(c.member, group); member && !dead {
			return false
		}
	}
	anyDead := false
	for _, pid := range processes() {
		member, dead := stateOf(pid, group)
		if member && !dead {
			c.member = pid
			return false
		}
		anyDead = anyDead || dead
	}
	return anyDead
}

// allStopped reports whether no process of the group that can be seen runs.
func (c *child) allStopped() bool {
	group := strconv.Itoa(c.cmd.Process.Pid)
	for _, pid := range processes() {
		if state, _ := groupState(pid, group); state != "" && !strings.Contains("TtZX", state) {
			return false
		}
	}
	return true
}

// processes are the ids of all that can be seen.
func processes() []string {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	pids, _ := dir.Readdirnames(-1)
	return pids
}

// stateOf reports whether a process belongs to a group, and whether it has ended.
func stateOf(pid, group string) (member, dead bool) {
	state, threads := groupState(pid, group)
	// One whose first thread has ended looks dead too, but has other threads.
	return state != "", (state == "Z" || state == "X") && threads == "1"
}

// groupState is the state of a process of a group, and how many threads it has; "": it belongs to another. See
// proc_pid_stat(5).
func groupState(pid, group string) (state, threads string) {
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // before that is a name, in which anything may be
	const stateAt, groupAt, threadsAt = 0, 2, 17
	if len(fields) <= threadsAt || fields[groupAt] != group {
		return "", ""
	}
	return fields[stateAt], fields[threadsAt]
}
