package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// Windows has no process groups to signal and no TERM, so the command can only be killed.

func notify(c chan<- os.Signal, _ func(syscall.Signal) bool) {
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
}

func listen(c chan<- os.Signal) { notify(c, stops) }

// outliveReaders does nothing: Windows has no SIGPIPE.
func outliveReaders() {}

func stops(syscall.Signal) bool { return true }

func atTerminal() bool { return true }

// forward does nothing: Windows sends a Ctrl-C to every process of the console.
func (c *child) forward(syscall.Signal) error { return nil }

// A pauser does nothing: Windows has no TSTP.
type pauser struct{ asked chan os.Signal }

func newPauser() *pauser                 { return &pauser{} }
func newWriterPauser() *pauser           { return &pauser{} }
func (p *pauser) listen()                {}
func (p *pauser) close()                 {}
func (p *pauser) pause() error           { return nil }
func (c *child) pause(func() bool) error { return nil }

func (c *child) terminate() error { return nil }
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
func (c *child) groupAlive() bool { return false }

// reapOrphans does nothing: Windows has no process 1.
func reapOrphans() {}

func exitOf(state *os.ProcessState) (code int, reason string) { return state.ExitCode(), "exited" }

func describe(state *os.ProcessState) string { return fmt.Sprintf("exit code %d", state.ExitCode()) }

func setAttributes(*exec.Cmd, bool) {}

// hideDescriptors does nothing: Windows has no /dev/fd.
func hideDescriptors(os.FileInfo) {}
