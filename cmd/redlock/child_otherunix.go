//go:build unix && !linux

package main

import "syscall"

// dieWithUs does nothing: only Linux can do this.
func dieWithUs(*syscall.SysProcAttr) {}

// stopProcess stops this process until it gets CONT.
func stopProcess() error { return syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) }

// allStopped is not known here.
func (c *child) allStopped() bool { return false }

// allDead is for systems on which redlock can be process 1 of a container.
func (c *child) allDead() bool { return false }
