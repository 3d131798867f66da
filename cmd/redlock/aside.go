package main

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// An aside writes for somebody who may not read it for hours: a pager, a log that is stuck, a terminal after Ctrl-S.
// Whoever holds a lock must not wait for that, because a command has to be ended in time. So a write that takes long goes
// on by itself, and later ones behind it.
type aside struct {
	to io.Writer

	mu      sync.Mutex    // guards the rest; nothing is written under it
	pending int           // writes that are not done
	last    chan struct{} // closed when the last of them is done; nil: there was none
}

const (
	asidePatience = 10 * time.Millisecond // a line mostly comes before what is done next; less than the margin of any lease
	mostAside     = 100                   // a run --every may have a line to say at each run: further ones are dropped
)

func (a *aside) Write(text []byte) (int, error) {
	a.mu.Lock()
	if a.pending == mostAside {
		a.mu.Unlock()
		return len(text), nil
	}
	line, before, done := bytes.Clone(text), a.last, make(chan struct{})
	a.pending, a.last = a.pending+1, done
	a.mu.Unlock()
	go func() { // flush waits for it
		defer close(done)
		if before != nil {
			<-before
		}
		_, _ = a.to.Write(line) // nobody could be told
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pending--
	}()
	timer := time.NewTimer(asidePatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return len(text), nil
}

// flush waits until everything is written.
func (a *aside) flush() {
	a.mu.Lock()
	last := a.last
	a.mu.Unlock()
	if last != nil {
		<-last
	}
}
