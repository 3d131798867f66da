//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A pauser hears that redlock shall stop in a way that lets it be continued.
type pauser struct {
	asked   chan os.Signal
	signals []os.Signal
}

// newPauser hears of TSTP, which Ctrl-Z sends.
func newPauser() *pauser { return &pauser{make(chan os.Signal, 1), []os.Signal{syscall.SIGTSTP}} }

// newWriterPauser also hears of TTOU, which a terminal sends to those in the background that write to it (stty tostop). It
// sends it again and again until they stop. So it is not for what writes to the terminal in order to stop, as top does.
func newWriterPauser() *pauser {
	p := newPauser()
	p.signals = append(p.signals, syscall.SIGTTOU)
	return p
}

// listen begins to catch them. In the process group of the session leader (ssh -t host redlock top) it leaves them to the
// system, which ignores them there: no shell could continue redlock. One that redlock was started to ignore stays ignored.
func (p *pauser) listen() {
	if session, err := unix.Getsid(0); err != nil || session == syscall.Getpgrp() {
		return
	}
	for _, sig := range p.signals {
		if !signal.Ignored(sig) {
			signal.Notify(p.asked, sig)
		}
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
