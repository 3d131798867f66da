package audit

import (
	"errors"
	"fmt"
	"time"
)

// Version is the version of the format.
const Version = 1

// MaxLine is the longest line that is read, in bytes. A lock can have a thousand names of a kilobyte.
const MaxLine = 8 << 20

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
// At and Wall: the moment that it is about, and not the one at which it was written. So their order does not matter, and what is
// there twice counts once.
type Event struct {
	Kind Kind      `json:"kind"`
	By   string    `json:"by"`   // whose it is: several processes may write to a file. No other process has it
	At   int64     `json:"at"`   // nanoseconds by a monotonic clock of the process, from any origin
	Wall time.Time `json:"wall"` // the same moment by the wall clock

	Version int    `json:"version,omitempty"` // of the format: 1
	Process string `json:"process,omitempty"` // what people call the process, such as host:pid

	Lease     string    `json:"lease,omitempty"`     // the same in all events of a lease; no other has it
	Held      int64     `json:"held,omitempty"`      // nanoseconds since it was acquired, by a clock that counts a suspend
	Names     []string  `json:"names,omitempty"`     // what it locks
	Fence     uint64    `json:"fence,omitempty"`     // its fencing token; 0: it has none
	Asked     int64     `json:"asked,omitempty"`     // like At: when the process asked for it
	AskedWall time.Time `json:"asked_wall,omitzero"` // the same by the wall clock
	// Left is for how many nanoseconds from At the lease was valid, if nobody renewed it; 0: it was not. A process may stand
	// still, and say late that a lease has ended: then it ended with its validity. nil: that is not known; if no event of a lease
	// has a Left, it was valid until its process says that it ended.
	Left    *int64 `json:"left,omitempty"`
	Reader  bool   `json:"reader,omitempty"`  // others may read too. A writer that becomes a reader says it from then on
	Permits int    `json:"permits,omitempty"` // how many permits of a semaphore it has; 0: the lock is none
	Of      int    `json:"of,omitempty"`      // how many there are
	Error   string `json:"error,omitempty"`   // why it was lost
	Count   uint64 `json:"count,omitempty"`   // of missed events
}

// A moment is a point in time by all clocks of a process, in nanoseconds: At, since 1970, and since the lease was acquired. The
// first may stand still while the machine is suspended, and the second may be set.
type moment struct{ at, wall, held int64 }

func (e *Event) moment() moment { return moment{e.At, e.Wall.UnixNano(), e.Held} }

// after is the moment so many nanoseconds later.
func (m moment) after(d int64) moment { return moment{m.at + d, m.wall + d, m.held + d} }

// sooner is the earlier one, and later the later one, by each clock.
func (m moment) sooner(n moment) moment {
	return moment{min(m.at, n.at), min(m.wall, n.wall), min(m.held, n.held)}
}
func (m moment) later(n moment) moment {
	return moment{max(m.at, n.at), max(m.wall, n.wall), max(m.held, n.held)}
}

// check is what is wrong with an event.
func (e *Event) check() error {
	switch {
	case e.By == "":
		return errors.New(`"by" is missing`)
	case e.Kind == Start && e.Version != Version:
		return fmt.Errorf("the format has version %d; this program reads version %d", e.Version, Version)
	case e.Wall.IsZero():
		return errors.New(`"wall" is missing`)
	case e.Held < 0:
		return errors.New(`"held" is negative`)
	case e.Left != nil && *e.Left < 0:
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
