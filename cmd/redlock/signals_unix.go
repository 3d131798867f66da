//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A pauser hears that redlock shall stop in a way that lets it be continued: TSTP, which Ctrl-Z sends.
type pauser struct{ asked chan os.Signal }

func newPauser() *pauser { return &pauser{asked: make(chan os.Signal, 1)} }

// listen begins to catch TSTP. In the process group of the session leader (ssh -t host redlock top) it leaves TSTP to the
// system, which ignores it there: no shell could continue redlock. One that redlock was started to ignore stays ignored.
func (p *pauser) listen() {
	session, err := unix.Getsid(0)
	if err == nil && session != syscall.Getpgrp() && !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(p.asked, syscall.SIGTSTP)
	}
}

func (p *pauser) close() { signal.Stop(p.asked) }

// pause stops redlock, and returns when it is continued. It uses STOP: a TSTP that was caught once, the Go runtime never
// again leaves to the system.
func (p *pauser) pause() error {
	p.close() // one that comes now is the same
	select {
	case <-p.asked:
	default:
	}
	err := stopProcess()
	p.listen()
	return err
}
