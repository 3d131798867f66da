package audit

import "time"

// DefaultClockError is how far a wall clock may be from the true time, if [Options.ClockError] is 0. With NTP, a server in a
// data centre is mostly within 10 ms.
const DefaultClockError = 100 * time.Millisecond

// MaxListed is how many violations of each kind a [Result] lists. It counts all.
const MaxListed = 100

// Options are what the journals do not say. The zero value is usable.
type Options struct {
	// ClockError is how far the wall clock of any of the processes may have been from the true time. 0 or less:
	// [DefaultClockError]. More than 30 years are 30 years. A process whose clock was seen to be set by more than that is left out of what depends on wall
	// clocks, and named.
	ClockError time.Duration
}

// A Verdict is what the journals show.
type Verdict string

// The verdicts.
const (
	Consistent Verdict = "consistent" // no violation
	Violated   Verdict = "violated"   // there is a violation
	Unsure     Verdict = "unsure"     // no violation, but a part was not judged ([Result.LeftOut])
)

// A ViolationKind is the kind of a violation. See the documentation of the package.
type ViolationKind string

// The kinds of violations.
const (
	Overlap        ViolationKind = "overlap"
	FenceDuplicate ViolationKind = "fence_duplicate"
	FenceInversion ViolationKind = "fence_inversion"
)

// A Basis is what shows a violation.
type Basis string

// What a violation can rest on, from the most certain one on.
const (
	ByProcess Basis = "one process" // the monotonic clock of the process that had both
	ByFence   Basis = "fencing tokens"
	ByClocks  Basis = "wall clocks"
)

// A Violation is one thing that must not be.
type Violation struct {
	Kind   ViolationKind `json:"kind"`
	Name   string        `json:"name"`
	Basis  Basis         `json:"basis"`
	Leases []Lease       `json:"leases"`                   // that it is about, the one with the smaller fencing token first
	Millis float64       `json:"overlap_millis,omitempty"` // how long an overlap was at least
	Text   string        `json:"text"`                     // for people, in one line
}

// A Lease is one lease in a [Violation].
type Lease struct {
	Process string    `json:"process"`
	Lease   string    `json:"lease"`
	Fence   uint64    `json:"fence,omitempty"`
	From    time.Time `json:"from"` // it was certainly valid from then on, by its process's wall clock
	To      time.Time `json:"to"`   // and until then
	End     string    `json:"end"`  // how it ended, such as "released"; "": that is not in the journal
}

// A Result is what [Judge] found.
type Result struct {
	Verdict           Verdict               `json:"verdict"`
	Processes         int                   `json:"processes"`
	Names             int                   `json:"names"`
	Leases            int                   `json:"leases"`
	From              time.Time             `json:"from,omitzero"`       // of the first lease, by the wall clocks
	To                time.Time             `json:"to,omitzero"`         // of the last one
	ClockErrorSeconds float64               `json:"clock_error_seconds"` // [Options.ClockError]
	Counts            map[ViolationKind]int `json:"counts"`              // of all violations
	Violations        []Violation           `json:"violations"`          // the first [MaxListed] of each kind
	// Close is how many leases seem to overlap with one of another process by less than the clocks are known. They are no
	// violations: their fencing tokens, if they have some, were compared all the same.
	Close int `json:"close"`
	// NoEnd is how many leases have no end in the journals, as those of a process that crashed, and those that Client.Close
	// ended. They count until their last renewal, so an overlap after that is not found.
	NoEnd   int      `json:"no_end"`
	LeftOut []string `json:"left_out"` // what was not judged, and why
}
