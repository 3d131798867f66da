//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that are the command's, not ours.
var forwarded = []syscall.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// listen has the forwarded signals sent to c, but for those that we were started to ignore (nohup): the
// command inherits that.
func listen(c chan<- os.Signal) {
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	// To die of a closed standard error would be to leave the command behind. It is not ignored, as the
	// command would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// stops says whether the signal ends a wait for the lock.
func stops(sig syscall.Signal) bool { return sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2 }

// atTerminal says whether we are in the foreground of a terminal. The command must then stay in our group:
// the terminal stops a background group that reads from it, and to put the command's group into the
// foreground would stop the rest of a pipeline that we are part of.
func atTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == syscall.Getpgrp()
}

// forward passes a signal on. INT and QUIT at a terminal were typed there, and the command has them already.
func (c *child) forward(sig syscall.Signal) {
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT:
		if c.group {
			c.signalAll(sig)
		}
	case syscall.SIGTERM, syscall.SIGHUP:
		c.signalAll(sig)
	default:
		_ = c.cmd.Process.Signal(sig)
	}
}

func (c *child) terminate() { c.signalAll(syscall.SIGTERM) }
func (c *child) kill()      { c.signalAll(syscall.SIGKILL) }

// signalAll signals the command's group. Process.Signal knows that the process was waited for and its id may
// be another's; a group's id is not given away while the group has members.
func (c *child) signalAll(sig syscall.Signal) {
	if !c.group {
		_ = c.cmd.Process.Signal(sig)
		return
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, sig)
}

func (c *child) groupAlive() bool {
	return c.group && !errors.Is(syscall.Kill(-c.cmd.Process.Pid, 0), syscall.ESRCH)
}

func exitOf(state *os.ProcessState) (code int, reason string) {
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return exitSignal + int(status.Signal()), "signal"
	}
	return status.ExitStatus(), "exited"
}

func describe(state *os.ProcessState) string {
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return fmt.Sprintf("signal %d", int(status.Signal()))
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}

func setAttributes(cmd *exec.Cmd, group bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group}
	dieWithUs(cmd.SysProcAttr)
}
