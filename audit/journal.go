package audit

import (
	"bufio"
	"bytes"
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
	leases   map[string]*lease
	missed   map[moment]uint64
	first    moment        // of the first event
	last     moment        // of the last one
	jump     time.Duration // the most by which the two clocks moved apart from one event to the next
}

// A lease is what is known of one. All of it can be learned in any order, and more than once.
type lease struct {
	id    string
	grant        // without names: nobody said yet that it was acquired
	valid known  // the last time at which it was seen valid
	wrote known  // and as no reader
	reads known  // the first time at which it was seen as a reader
	until known  // when its validity ended, if nobody ended it sooner
	end   known  // when its process ended it, or knew that it had ended
	how   string // that was; "": it is not known
}

// A grant is what was acquired, and when.
type grant struct {
	names   []string
	fence   uint64
	reader  bool
	permits int
	all     int // permits that there are
	asked   moment
	from    moment
	late    bool // it was over when its process knew that it had it
}

// known is a moment that may be known.
type known struct {
	moment
	ok bool
}

// latest learns of another such moment, and keeps the later one.
func (k *known) latest(other known) {
	if k.ok && other.ok {
		other.moment = k.later(other.moment)
	}
	if other.ok {
		*k = other
	}
}

// soonest does the same, and keeps the earlier one.
func (k *known) soonest(other known) {
	if k.ok && other.ok {
		other.moment = k.sooner(other.moment)
	}
	if other.ok {
		*k = other
	}
}

// ended learns how the lease ended. Of several answers, the longest says why.
func (l *lease) ended(how string) {
	if len(how) > len(l.how) {
		l.how = how
	}
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
		if line[0] != '{' || !json.Valid(line) {
			j.cut++
			continue
		}
		var e Event
		err := json.Unmarshal(line, &e)
		if err == nil {
			err = e.check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, number, err)
		}
		p := by[e.By]
		if p == nil {
			p = &process{id: e.By, leases: map[string]*lease{}, missed: map[moment]uint64{}, first: e.moment(), last: e.moment()}
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
	if j.cut > 0 && len(j.processes) == 0 {
		return nil, fmt.Errorf("%s: it is no journal: no line of it is a JSON object", name)
	}
	return j, nil
}

// add takes an event.
func (p *process) add(e *Event) {
	now := e.moment()
	p.look(now)
	switch e.Kind {
	case Start:
		p.name = e.Process
		return
	case Missed:
		p.missed[now] = e.Count
		return
	}
	l := p.leases[e.Lease]
	if l == nil {
		l = &lease{id: e.Lease}
		p.leases[e.Lease] = l
	}
	seen := known{now, true}
	over := e.Left != nil && *e.Left == 0
	if e.Left != nil && (!over || e.Kind == Acquired) { // else it was over before
		l.until.latest(known{now.after(*e.Left), true})
	}
	if e.Reader {
		l.reads.soonest(seen)
	}
	switch e.Kind {
	case Acquired:
		l.grant = grant{e.Names, e.Fence, e.Reader, e.Permits, e.Of, moment{at: e.Asked, wall: e.AskedWall.UnixNano()}, now, over}
	case Valid:
		if over { // the answer came late
			break
		}
		l.valid.latest(seen)
		if !e.Reader {
			l.wrote.latest(seen)
		}
	case Released, Lost:
		l.end.soonest(seen)
		how := string(e.Kind)
		if e.Error != "" {
			how += ": " + e.Error
		}
		l.ended(how)
	}
}

// to is until when the lease was valid for certain.
func (l *lease) to() moment {
	valid := l.from
	if l.valid.ok {
		valid = valid.later(l.bounded(l.valid.moment))
	}
	if !l.end.ok {
		return valid
	}
	valid = valid.sooner(l.end.moment) // a renewal may have been answered after that
	return l.from.later(valid).later(l.bounded(l.end.moment))
}

// bounded is the moment, or the end of the validity if that was before: its process may have said late that the lease ended.
// The clock that shows most is right: others stood still while the machine was suspended.
func (l *lease) bounded(m moment) moment {
	if !l.until.ok {
		return m
	}
	return m.after(-max(0, m.at-l.until.at, m.wall-l.until.wall, m.held-l.until.held))
}

// A hold is a time in which a lease was certainly valid, as a reader's or not. A writer that became a reader had two.
type hold struct {
	*lease
	of       *process
	reader   bool
	never    bool // its process never believed that it had it
	from, to moment
	end      string // how it ended; "": that is not in the journals
}

func (l *lease) holds(of *process) []*hold {
	to := l.to()
	if !l.reads.ok || l.reader {
		// Of a process that crashed at once, the moment at which it knew of a valid lease counts.
		never := l.late && !l.valid.ok || to.at == l.from.at && (l.end.ok || !l.until.ok)
		return []*hold{{l, of, l.reader, never, l.from, to, l.how}}
	}
	wrote := l.from
	if l.wrote.ok {
		wrote = wrote.later(l.bounded(l.wrote.moment))
	}
	return []*hold{
		{l, of, false, false, l.from, l.from.later(wrote.sooner(l.reads.moment).sooner(to)), "became a reader"},
		{l, of, true, false, l.reads.moment, l.reads.later(to), l.how},
	}
}

// look notes how far the two clocks have moved apart since the last event. NTP that slews moves both alike.
func (p *process) look(now moment) {
	apart := time.Duration(now.wall - p.last.wall - (now.at - p.last.at)).Abs()
	p.jump, p.last = max(p.jump, apart), now
}
