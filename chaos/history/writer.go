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
	digits []byte // scratch for the time
	over   bool   // by End or Close: what comes now is not recorded
	err    error  // the first one
}

// NewWriter returns a Writer to w. clock tells the time since the run began; it must be monotonic and safe
// for concurrent use, and is the one that Until is told by. The Writer does not close w.
func NewWriter(w io.Writer, clock func() time.Duration) *Writer {
	return &Writer{clock: clock, buf: bufio.NewWriterSize(w, 1<<16)}
}

// unstamped is how every encoded event begins before it has its time.
const unstamped = `{"at":0`

// Add records the event with the time of now; e.At is ignored. The line of an event whose Add returned
// before another's was called comes before that other's: so call it before a call begins, and after a call
// has returned. Nothing is recorded after an End, so that a straggler does not spoil the history, nor after
// an error, which Flush and Close tell.
func (w *Writer) Add(e Event) {
	e.At = 0
	line, err := json.Marshal(e) // outside of the mutex: clients under test should wait for each other as little as can be
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

// Flush hands over what is buffered. It returns the first error that there was.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return w.err
}

// ErrNoEnd says that a Writer was closed before an End: the history will not be read as a whole one.
var ErrNoEnd = errors.New("history: closed without an end")

// Close flushes. What is added later is not recorded. It returns the first error that there was.
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
