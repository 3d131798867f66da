package main

import "syscall"

// dieWithUs makes the kernel kill the command when the thread that started it ends. This does not cover processes that
// the command starts, nor a set-user-ID command.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
