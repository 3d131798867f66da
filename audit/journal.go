package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Journal is what one or several processes have recorded in a file, or a part of it, as where the file was rotated.
type Journal struct {
	name      string
	processes []*process // in the order of their first lines
	cut       int        // lines that are not whole, as where a process crashed
}

// A process is what a journal has of one process.
type process struct {
	id, name string
	leases   []*lease
	open     map[string]*lease // that have not ended, as far as it was said
	rest     []Event           // of leases that began in another file, or of which that was missed
	missed   uint64
	first    int64         // At of the first event
	last     moment        // of the last event
	jump     time.Duration // the most by which the two clocks moved apart from one event to the next
	drift    time.Duration // that may come from how they run
}

// A lease is what a journal has of it.
type lease struct {
	of       *process
	id       string
	names    []string
	fence    uint64
	reader   bool
	permits  int
	all      int // permits that there are
	asked    moment
	from, to moment // when it was certainly valid
	until    moment // when its validity ended, if nobody ended it sooner; 0: the journal does not say
	end      string // how it ended; "": that is not in the journal
}

// Read reads a journal. The name is for people: in errors, and of processes that have none. A line that is not whole, as of a
// process that crashed, is left out, and makes the verdict unsure at best. Any other line that is wrong is an error.
func Read(name string, r io.Reader) (*Journal, error) {
	j := &Journal{name: name}
	by := map[string]*process{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxLine)
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if len(by) > 0 && !json.Valid(line) {
			j.cut++
			continue
		}
		var e Event
		err := json.Unmarshal(line, &e)
		if err == nil {
			err = e.check(by[e.By])
		}
		switch {
		case err != nil && len(by) == 0 && e.Kind != Start:
			return nil, fmt.Errorf("%s: line %d: it is no journal: %w", name, number, err)
		case err != nil:
			return nil, fmt.Errorf("%s: line %d: %w", name, number, err)
		}
		p := by[e.By]
		if p == nil {
			p = &process{id: e.By, name: cmp.Or(e.Process, name), open: map[string]*lease{}, first: e.At, last: e.moment()}
			by[e.By] = p
			j.processes = append(j.processes, p)
		}
		p.add(&e)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line is longer than %d bytes", MaxLine)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return j, nil
}

// add takes an event.
func (p *process) add(e *Event) {
	now := e.moment()
	p.look(now)
	l := p.open[e.Lease]
	switch {
	case e.Kind == Start:
	case e.Kind == Missed:
		p.missed += e.Count
	case e.Kind == Acquired:
		l = &lease{of: p, id: e.Lease, names: e.Names, fence: e.Fence, reader: e.Reader, permits: e.Permits, all: e.Of,
			asked: moment{e.Asked, e.AskedWall.UnixNano()}, from: now, to: now}
		l.validFor(now, e.Left)
		p.leases = append(p.leases, l)
		p.open[e.Lease] = l
	case l == nil:
		p.rest = append(p.rest, *e)
	case e.Kind == Valid && e.Reader && !l.reader: // a writer became a reader, since it was last seen as a writer
		l.end = "became a reader"
		reader := *l
		reader.from, reader.to, reader.until, reader.reader, reader.end = now, now, moment{}, true, ""
		reader.validFor(now, e.Left)
		p.leases = append(p.leases, &reader)
		p.open[e.Lease] = &reader
	case e.Kind == Valid:
		l.to = l.to.later(now)
		l.validFor(now, e.Left)
	default: // it ended, and its validity may have been over long before its process could say so
		if l.validFor(now, e.Left); l.until != (moment{}) {
			// The clock that shows more is right: the other one stood still while the machine was suspended.
			now = now.after(-max(0, now.at-l.until.at, now.wall-l.until.wall))
		}
		l.to = l.to.later(now)
		l.end = string(e.Kind)
		if e.Error != "" {
			l.end += ": " + e.Error
		}
		delete(p.open, e.Lease)
	}
}

// validFor notes that the lease was valid for so many nanoseconds from now on.
func (l *lease) validFor(now moment, left int64) {
	if left > 0 {
		l.until = l.until.later(now.after(left))
	}
}

// look notes how far the two clocks have moved apart from one event to the next. Events come a little out of order.
func (p *process) look(now moment) {
	passed := time.Duration(now.at - p.last.at)
	apart := (time.Duration(now.wall-p.last.wall) - passed).Abs()
	if drift := time.Duration(float64(passed.Abs()) * maxDrift); apart-drift > p.jump-p.drift {
		p.jump, p.drift = apart, drift
	}
	p.last = now
}

// maxDrift is how far a monotonic clock goes wrong in a second, at the most.
const maxDrift = 0.001
