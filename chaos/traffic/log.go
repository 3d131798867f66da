// Package traffic is the load during the faults. Clients acquire the lock, work on a resource that only the lock
// protects, and release it. Observers look on each node which token holds the lock. Everything is recorded.
package traffic

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
)

// A Log records what happens, with the time since the run began.
type Log struct {
	writer *history.Writer
	began  time.Time
	ops    atomic.Uint64

	mu      sync.Mutex // guards the rest; nothing waits under it
	granted int
	changed chan struct{} // closed at the next grant
	panics  []string
}

// NewLog begins the run: it writes the first line and starts the clock.
func NewLog(w io.Writer, run history.Run) *Log {
	l := &Log{began: time.Now(), changed: make(chan struct{})}
	l.writer = history.NewWriter(w, l.Since)
	run.Version = history.Version
	l.Add(history.Event{Kind: history.Start, Run: &run})
	return l
}

// Since returns how long the run has lasted.
func (l *Log) Since() time.Duration { return time.Since(l.began) }

// at returns the current time for the history. It is never 0, which would mean no time.
func (l *Log) at() int64 { return max(1, int64(l.Since())) }

// Add records an event.
func (l *Log) Add(e history.Event) {
	l.writer.Add(e)
	if e.Kind != history.Granted {
		return
	}
	l.mu.Lock()
	l.granted++
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
}

// Note records a text for people.
func (l *Log) Note(format string, args ...any) {
	l.Add(history.Event{Kind: history.Note, Text: fmt.Sprintf(format, args...)})
}

// Aborted records why the scenario ended early.
func (l *Log) Aborted(why error) {
	l.Add(history.Event{Kind: history.Note, Text: "the scenario was aborted: " + why.Error(), Error: why.Error()})
}

// Granted returns the number of grants so far, and a channel that is closed at the next grant.
func (l *Log) Granted() (count int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted, l.changed
}

// Close records the end of the run.
func (l *Log) Close() error {
	l.Add(history.Event{Kind: history.End})
	return l.writer.Close()
}

// panicked records that the subject panicked. It is called by the function that recovers, so that the stack is that of
// the panic.
func (l *Log) panicked(client int, doing string, value any) error {
	err := fmt.Errorf("the subject panicked in %s: %v", doing, value)
	whole := err.Error() + "\n" + panicStack(debug.Stack())
	l.Add(history.Event{Kind: history.Note, Client: client, Text: err.Error(), Error: whole})
	l.mu.Lock()
	l.panics = append(l.panics, whole)
	l.mu.Unlock()
	return err
}

// panicStack leaves out of a stack what is above the call that panicked: the recovery.
func panicStack(stack []byte) string {
	_, below, found := strings.Cut(string(stack), "\npanic(")
	if _, rest, more := strings.Cut(below, "\n"); found && more { // the line of the place in package runtime
		if _, calls, more := strings.Cut(rest, "\n"); more {
			return strings.TrimSpace(calls)
		}
	}
	return strings.TrimSpace(string(stack))
}

// Panics returns the panics of the subject, each with its stack on the lines below.
func (l *Log) Panics() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.panics...)
}
