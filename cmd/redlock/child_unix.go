//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that redlock passes on to the command.
var forwarded = []syscall.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// notify sends to c those of the forwarded signals that are meant. Signals that redlock was started to ignore (nohup)
// stay ignored.
func notify(c chan<- os.Signal, meant func(syscall.Signal) bool) {
	for _, sig := range forwarded {
		if meant(sig) && !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// listen sends the forwarded signals to c. Those that stay ignored are ignored in the command too.
func listen(c chan<- os.Signal) {
	notify(c, func(syscall.Signal) bool { return true })
	outliveReaders() // a closed standard error would leave the command behind
}

// outliveReaders makes writing to an output that nobody reads an error, which otherwise ends the process. SIGPIPE is not
// ignored, because a command would inherit that.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// stops reports whether the signal ends the wait for the lock, and every other command.
func stops(sig syscall.Signal) bool { return sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2 }

// atTerminal reports whether redlock is in the foreground of a terminal. The command must then stay in redlock's
// process group. The terminal stops a background group that reads from it, and moving the command's group to the
// foreground would stop the rest of a pipeline that redlock is part of.
func atTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == syscall.Getpgrp()
}

// forward passes a signal on, except an INT or QUIT at a terminal: one that was typed there the command already got, and Go
// does not say which was not.
func (c *child) forward(sig syscall.Signal) error {
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT:
		if !c.group {
			return nil
		}
		return c.tellAll(sig)
	case syscall.SIGTERM, syscall.SIGHUP:
		return c.tellAll(sig)
	}
	return refusal(c.cmd.Process.Signal(sig))
}

const (
	stopPatience = time.Second // how long processes may take to stop by themselves
	stopPoll     = 5 * time.Millisecond
)

// pause stops the command's group, then redlock. When redlock is continued, so is the group, if it may go on. A group that
// cannot be stopped needs redlock to renew its lease: then neither stops.
//
// TSTP comes first: STOP would stop a redlock run in the group, and leave its command, in another group, at work.
func (c *child) pause(mayGoOn func() bool) error {
	if err := c.signalAll(syscall.SIGTSTP); err != nil {
		return err
	}
	for asked := time.Now(); mayGoOn() && !c.allStopped() && time.Since(asked) < stopPatience; { // until the lease is nearly over
		time.Sleep(stopPoll)
	}
	if err := c.signalAll(syscall.SIGSTOP); err != nil {
		return err
	}
	err := c.pauser.pause()
	if mayGoOn() {
		err = errors.Join(err, c.signalAll(syscall.SIGCONT))
	}
	return err
}

// tellAll passes on a signal that tells processes to end, and continues those that are stopped: they get it only then.
func (c *child) tellAll(sig syscall.Signal) error {
	if err := c.signalAll(sig); err != nil {
		return err
	}
	return c.signalAll(syscall.SIGCONT)
}

func (c *child) terminate() error { return c.tellAll(syscall.SIGTERM) }
func (c *child) kill() error      { return c.signalAll(syscall.SIGKILL) }

// killProcess is replaced in a test.
var killProcess = syscall.Kill

// signalAll signals the command's group, or only the command if it has no group. Process.Signal never signals a process
// that has already been waited for, whose id may be reused. The error is why no process got the signal, though there is
// one: it runs as another user, as under sudo.
func (c *child) signalAll(sig syscall.Signal) error {
	if !c.group {
		return refusal(c.cmd.Process.Signal(sig))
	}
	if c.groupOver() {
		return nil
	}
	return refusal(killProcess(-c.cmd.Process.Pid, sig))
}

// groupOver reports whether the id of the group belongs to others. No process gets it while the group has members. So if there
// is a process with that id after the command has been waited for, the group has ended.
func (c *child) groupOver() bool {
	return c.hasEnded() && !errors.Is(killProcess(c.cmd.Process.Pid, 0), syscall.ESRCH)
}

// refusal is the error if there was a process to signal.
func refusal(err error) error {
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// groupAlive reports whether a process of the group has not ended. kill(2) finds those too that have, for as long as their
// parent does not wait for them. In a container that may be for ever: few programs that are process 1 wait for orphans.
func (c *child) groupAlive() bool {
	if c.hasEnded() {
		reapOrphans() // of a group without its first process, all that are dead may be ours as process 1
	}
	if !c.group || c.groupOver() || errors.Is(killProcess(-c.cmd.Process.Pid, 0), syscall.ESRCH) {
		return false
	}
	for range 2 { // one that is just started may be missing in the first look
		if !c.allDead() {
			return true
		}
	}
	return false
}

// reapOrphans waits for processes that have ended and whose parent had ended before. If redlock is process 1, as in a
// container, the system makes them its children. It must not have others, whose results this would take.
func reapOrphans() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
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

// hideDescriptors keeps each descriptor of this file from the processes that redlock starts.
func hideDescriptors(file os.FileInfo) {
	const dir = "/dev/fd"
	open, _ := os.ReadDir(dir)
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if about, err := os.Stat(filepath.Join(dir, entry.Name())); err == nil && os.SameFile(about, file) {
			syscall.CloseOnExec(fd)
		}
	}
}
