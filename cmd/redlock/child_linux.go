package main

import "syscall"

// dieWithUs has the kernel kill the command when the thread that started it ends. What the command itself
// starts is not included, nor is a command that is set-user-ID.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
