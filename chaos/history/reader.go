package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
)

// MaxLine is the longest line that is read, in bytes.
const MaxLine = 1 << 20

// A LineError is what is wrong with a history, and where.
type LineError struct {
	Line int // from 1; without a file, the number of the event
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("history: line %d: %v", e.Line, e.Err) }

// Unwrap returns the error in the line.
func (e *LineError) Unwrap() error { return e.Err }

// ReadAll reads a complete history. A part of a history would be judged wrongly, so one wrong line results in a
// *LineError and no events. An error of r is returned as a *LineError of the line that it interrupted.
func ReadAll(r io.Reader) ([]Event, error) {
	var events []Event
	for e, err := range All(r) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// All reads a history like ReadAll, but one event at a time. It ends with the first error. Only if it ends without an
// error was the history complete.
func All(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := lineReader{r: bufio.NewReaderSize(r, 1<<16)}
		lines.dec = json.NewDecoder(&lines)
		lines.dec.DisallowUnknownFields()
		validate(lines.next, yield)
	}
}

// Validate yields events that were not read from a file, and checks them by the same rules as ReadAll.
func Validate(events []Event) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		i := 0
		validate(func() (e Event, err error) {
			if i == len(events) {
				return e, io.EOF
			}
			i++
			return events[i-1], nil
		}, yield)
	}
}

// validate yields the events of next, until io.EOF or an error.
func validate(next func() (Event, error), yield func(Event, error) bool) {
	s := newSequence()
	for line := 1; ; line++ {
		e, err := next()
		if err == io.EOF {
			if err = s.end(); err != nil {
				yield(Event{}, &LineError{line, err})
			}
			return
		}
		if err == nil {
			err = s.add(&e)
		}
		if err != nil {
			yield(Event{}, &LineError{line, err})
			return
		}
		if !yield(e, nil) {
			return
		}
	}
}

// A lineReader decodes line by line with one decoder, which is several times faster than one decoder per line. The
// decoder reads from the lineReader, and gets only the current line.
type lineReader struct {
	r     *bufio.Reader
	dec   *json.Decoder
	long  []byte // a line that is longer than r's buffer
	line  []byte // the part of the line that the decoder has not read
	begun bool
}

func (l *lineReader) Read(p []byte) (int, error) {
	if len(l.line) == 0 {
		return 0, io.EOF // an event must end in its own line
	}
	n := copy(p, l.line)
	l.line = l.line[n:]
	return n, nil
}

func (l *lineReader) next() (e Event, err error) {
	line, err := l.readLine()
	if err != nil {
		return e, err
	}
	first := !l.begun
	l.begun = true
	l.line = line
	if err := l.dec.Decode(&e); err != nil {
		if first {
			if other := otherVersion(line); other != nil {
				return e, other
			}
		}
		return e, fmt.Errorf("not an event: %w", plain(err))
	}
	if rest, _ := io.ReadAll(io.MultiReader(l.dec.Buffered(), l)); len(bytes.TrimSpace(rest)) > 0 {
		return e, fmt.Errorf("not an event: something follows it: %.40q", bytes.TrimSpace(rest))
	}
	return e, nil
}

// readLine returns the next line, including its newline. It is valid until the next call.
func (l *lineReader) readLine() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = append(l.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) && len(l.long) <= MaxLine {
			line, err = l.r.ReadSlice('\n')
			l.long = append(l.long, line...)
		}
		line = l.long
	}
	switch {
	case len(line) > MaxLine:
		return nil, fmt.Errorf("longer than %d bytes", MaxLine)
	case err == io.EOF && len(line) > 0:
		return nil, errors.New("cut off: the line does not end")
	case err != nil:
		return nil, err
	}
	return line, nil
}

// otherVersion returns an error if the first line has an unknown version of the format. Other errors in the line are
// then irrelevant.
func otherVersion(line []byte) error {
	var head struct {
		Kind Kind
		Run  struct{ Version int }
	}
	if json.Unmarshal(line, &head) != nil || head.Kind != Start {
		return nil
	}
	return checkVersion(head.Run.Version)
}

// plain replaces errors of the decoder that would be misleading.
func plain(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the line ends before the event does")
	}
	return err
}
