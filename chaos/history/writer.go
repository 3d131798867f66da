package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"
)

// A Writer records a history. Its methods may be called concurrently.
type Writer struct {
	clock func() time.Duration

	mu     sync.Mutex // guards all below; held while a full buffer is written
	buf    *bufio.Writer
	last   int64
	digits []byte // buffer for the time
	over   bool   // after End or Close nothing more is recorded
	err    error  // the first one
}

// NewWriter returns a Writer to w. clock returns the time since the run began. It must be monotonic and safe for
// concurrent use, and Until must come from the same clock. The Writer does not close w.
func NewWriter(w io.Writer, clock func() time.Duration) *Writer {
	return &Writer{clock: clock, buf: bufio.NewWriterSize(w, 1<<16)}
}

// unstamped is the beginning of every encoded event before its time is set.
const unstamped = `{"at":0`

// Add records the event with the current time; e.At is ignored. If one Add returns before another is called, its line
// comes first. So use it before a call begins and after a call has returned. Nothing is recorded after an End, so that
// a late event does not invalidate the history. Nothing is recorded after an error either; Flush and Close return it.
func (w *Writer) Add(e Event) {
	e.At = 0
	line, err := json.Marshal(e) // outside the mutex, so that clients under test hardly wait for each other
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.err != nil {
		return
	}
	if err != nil {
		w.err = err
		return
	}
	w.last = max(w.last, int64(w.clock()))
	w.digits = strconv.AppendInt(append(w.digits[:0], unstamped[:len(unstamped)-1]...), w.last, 10)
	w.put(w.digits)
	w.put(line[len(unstamped):])
	w.put([]byte{'\n'})
	w.over = e.Kind == End
}

func (w *Writer) put(b []byte) {
	if w.err == nil {
		_, w.err = w.buf.Write(b)
	}
}

// Flush writes the buffer. It returns the first error so far.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return w.err
}

// ErrNoEnd means that a Writer was closed before an End, so the history is incomplete.
var ErrNoEnd = errors.New("history: closed without an end")

// Close flushes. Later events are not recorded. It returns the first error so far.
func (w *Writer) Close() error {
	err := w.Flush()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && !w.over {
		w.err = ErrNoEnd
		err = w.err
	}
	w.over = true
	return err
}
