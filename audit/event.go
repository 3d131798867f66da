package audit

import (
	"errors"
	"fmt"
	"time"
)

// Version is the version of the format.
const Version = 1

// MaxLine is the longest line that is read, in bytes.
const MaxLine = 1 << 20

// A Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Start    Kind = "start"    // the first line of each process: Process, Version
	Acquired Kind = "acquired" // a process knows that it has a lease: Lease, Names, Fence, Asked, AskedWall, Left
	Valid    Kind = "valid"    // the lease is valid, as after a renewal: Lease, Left
	Released Kind = "released" // a release was called, or the lock goes to another process: Lease, Left
	Lost     Kind = "lost"     // the process knows that the lease is lost: Lease, Error
	Missed   Kind = "missed"   // so many events could not be recorded: Count
)

// An Event is one line of a journal, a JSON object. Its Kind says which fields it has; the others are left out. Every event has
// At and Wall: the moment that it is about, and not the one at which it was written.
//
// A process may stand still, and say late that a lease has ended. So the validity counts, as the events say it (Left). If no
// event of a lease has a Left, it was valid until its process says that it ended.
type Event struct {
	Kind Kind      `json:"kind"`
	By   string    `json:"by"`   // whose it is: several processes may write to a file. No other process has it
	At   int64     `json:"at"`   // nanoseconds since the start line, by a monotonic clock; below 0 before that line
	Wall time.Time `json:"wall"` // the same moment by the wall clock

	Version int    `json:"version,omitempty"` // of the format: 1
	Process string `json:"process,omitempty"` // what people call the process, such as host:pid

	Lease     string    `json:"lease,omitempty"`     // the same in all events of a lease; no other has it
	Names     []string  `json:"names,omitempty"`     // what it locks
	Fence     uint64    `json:"fence,omitempty"`     // its fencing token; 0: it has none
	Asked     int64     `json:"asked,omitempty"`     // like At: when the process asked for it
	AskedWall time.Time `json:"asked_wall,omitzero"` // the same by the wall clock
	Left      int64     `json:"left,omitempty"`      // nanoseconds from At for which it was valid, unless it ended sooner; see below
	Reader    bool      `json:"reader,omitempty"`    // others may read too
	Permits   int       `json:"permits,omitempty"`   // how many permits of a semaphore it has; 0: the lock is none
	Of        int       `json:"of,omitempty"`        // how many there are
	Error     string    `json:"error,omitempty"`     // why it was lost
	Count     uint64    `json:"count,omitempty"`     // of missed events
}

// A moment is a point in time, by both clocks of a process.
type moment struct{ at, wall int64 } // nanoseconds: since the start line, since 1970

func (e *Event) moment() moment { return moment{e.At, e.Wall.UnixNano()} }

// after is the moment so many nanoseconds later.
func (m moment) after(d int64) moment { return moment{m.at + d, m.wall + d} }

// later is the later one, by each clock.
func (m moment) later(n moment) moment { return moment{max(m.at, n.at), max(m.wall, n.wall)} }

// check is what is wrong with an event of the process; nil: it is the first one.
func (e *Event) check(p *process) error {
	switch {
	case e.By == "":
		return errors.New(`"by" is missing`)
	case e.Kind == Start && p != nil:
		return fmt.Errorf(`the process %.40q has two start lines`, e.By)
	case e.Kind == Start && e.Version != Version:
		return fmt.Errorf("the format has version %d; this program reads version %d", e.Version, Version)
	case e.Wall.IsZero():
		return errors.New(`"wall" is missing`)
	case e.Left < 0:
		return errors.New(`"left" is negative`)
	}
	switch e.Kind {
	case Start, Missed:
	case Acquired:
		switch {
		case e.Lease == "":
			return errors.New(`"lease" is missing`)
		case len(e.Names) == 0:
			return errors.New(`"names" are missing`)
		case e.AskedWall.IsZero() || e.Asked > e.At:
			return errors.New(`"asked" and "asked_wall" are missing, or after "at"`)
		case e.Permits < 0 || e.Permits > e.Of:
			return fmt.Errorf(`"permits" is not from 0 to "of": %d of %d`, e.Permits, e.Of)
		}
	case Valid, Released, Lost:
		if e.Lease == "" {
			return errors.New(`"lease" is missing`)
		}
	default:
		return fmt.Errorf("unknown kind %.40q", e.Kind)
	}
	return nil
}
