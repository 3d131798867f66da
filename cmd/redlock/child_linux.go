package main

import (
	"runtime"
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
