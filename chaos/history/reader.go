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

// A LineError says what is wrong with a history, and where.
type LineError struct {
	Line int // from 1. In what was not read from a file: the event's place, from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("history: line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong.
func (e *LineError) Unwrap() error { return e.Err }

// ReadAll reads a whole history. A part of one would be judged wrongly, so one wrong line gives a
// *LineError and no events. An error of r is returned as that of the line which it cut.
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

// All reads a history one event at a time, as ReadAll does. It ends with the first error. That the history
// was whole is known only when it ended without one.
func All(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := lineReader{r: bufio.NewReaderSize(r, 1<<16)}
		lines.dec = json.NewDecoder(&lines)
		lines.dec.DisallowUnknownFields()
		validate(lines.next, yield)
	}
}

// Validate walks through events that were not read from a file, by the same rules as ReadAll.
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

// validate gives yield what next tells, until io.EOF or until something is wrong.
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

// A lineReader decodes line by line with a single decoder, which is several times as fast as one for each
// line. The decoder reads from it, and is given no more than the line at hand.
type lineReader struct {
	r     *bufio.Reader
	dec   *json.Decoder
	long  []byte // a line that is longer than r's buffer
	line  []byte // what the decoder has not yet read of it
	begun bool
}

func (l *lineReader) Read(p []byte) (int, error) {
	if len(l.line) == 0 {
		return 0, io.EOF // an event ends in its own line
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

// readLine returns the next line with its end. It is valid until the next call.
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

// otherVersion says whether the first line is of a format that this package does not know: what seems wrong
// with it is then of no interest.
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

// plain rewords what the decoder says where that would mislead.
func plain(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the line ends before the event does")
	}
	return err
}
