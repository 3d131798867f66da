package check

import (
	"fmt"
	"time"
)

// A Verdict is what becomes of a subject.
type Verdict string

// The verdicts there are.
const (
	Safe   Verdict = "safe"
	Unsafe Verdict = "unsafe"
	// Unsure is for a history without a violation which could not be judged to its end: see Result.LeftOut.
	Unsure Verdict = "unsure"
)

// A ViolationKind is what a violation breaks. See the package's documentation.
type ViolationKind string

// The kinds of violations there are.
const (
	Overlap            ViolationKind = "overlap"
	FenceDuplicate     ViolationKind = "fence_duplicate"
	FenceInversion     ViolationKind = "fence_inversion"
	LateLoss           ViolationKind = "late_loss"
	LostUpdate         ViolationKind = "lost_update"
	StaleWriteAccepted ViolationKind = "stale_write_accepted"
	ValidWriteRefused  ViolationKind = "valid_write_refused"
	Register           ViolationKind = "register"
	Orphan             ViolationKind = "orphan"
)

// MaxListed is how many violations of one kind are listed. The counts are of all.
const MaxListed = 100

// A Violation is one thing that must not have happened.
type Violation struct {
	Kind     ViolationKind `json:"kind"`
	At       time.Duration `json:"at_nanos"`       // since the run began
	For      time.Duration `json:"duration_nanos"` // how long it lasted; 0 for what has no length
	Resource string        `json:"resource"`
	Clients  []int         `json:"clients"`
	Ops      []uint64      `json:"ops"`
	Nodes    []string      `json:"nodes"` // that had a token of these ops, or were under a fault
	Text     string        `json:"text"`  // a sentence for people
}

// ByPhase has a T for the time before the first fault, from there to the last one's heal, and after it.
// Without a fault all is before. An op belongs to the phase in which it was asked for.
type ByPhase[T any] struct {
	Before T `json:"before"`
	During T `json:"during"`
	After  T `json:"after"`
}

// Counts are how acquires ended.
type Counts struct {
	Acquired   int `json:"acquired"`
	Refused    int `json:"refused"`
	Errors     int `json:"errors"`
	Unanswered int `json:"unanswered"` // when the run was over
}

// A Latency is how long granted acquires took. All are 0 if there was none.
type Latency struct {
	Count int   `json:"count"`
	P50   int64 `json:"p50_micros"`
	P99   int64 `json:"p99_micros"`
	P999  int64 `json:"p999_micros"`
	Max   int64 `json:"max_micros"`
}

// A FaultResult is one fault, and what came after it.
type FaultResult struct {
	Fault  string   `json:"fault"`
	Node   string   `json:"node,omitempty"`
	Client int      `json:"client,omitempty"`
	Begin  float64  `json:"begin_millis"`
	Heal   *float64 `json:"heal_millis"` // null: it never healed. What is over at once heals as it begins
	// FirstAcquire and FirstAfterHeal are how long it took to the next granted event. null: there was none.
	FirstAcquire   *float64 `json:"first_acquire_millis"`
	FirstAfterHeal *float64 `json:"first_acquire_after_heal_millis"`
	// Holder tells of the newest lease when the fault began: "none" if it was over, "alive" if it was
	// released or its loss noticed later, "dead" if nothing ended it.
	Holder string `json:"holder"`
	// What was answered while the fault lasted.
	Acquired int `json:"acquired"`
	Refused  int `json:"refused"`
	Errors   int `json:"errors"`
}

// Confirmation is what porcupine had to say. The fences of a lock, and each of its guarded registers, are one
// history to it.
type Confirmation struct {
	Agreed  int `json:"agreed"`
	TooLong int `json:"too_long"` // a part of it could not be cut into windows that are small enough
	Expired int `json:"expired"`  // given up for the time it took
}

// LeftOut is a check that was not made, or not to its end, so that "no violation" is not said without a word.
type LeftOut struct {
	Check    string `json:"check"`
	Resource string `json:"resource,omitempty"`
	Reason   string `json:"reason"`
}

func (l LeftOut) String() string {
	of := ""
	if l.Resource != "" {
		of = fmt.Sprintf(" of %q", l.Resource)
	}
	return fmt.Sprintf("%s%s: %s", l.Check, of, l.Reason)
}

// A Result is a judged history: what report.json says of it.
type Result struct {
	Scenario string  `json:"scenario"`
	Subject  string  `json:"subject"`
	Fleet    string  `json:"fleet"`
	Nodes    int     `json:"nodes"`
	Clients  int     `json:"clients"`
	Seed     uint64  `json:"seed"`
	Seconds  float64 `json:"seconds"`
	Replay   string  `json:"replay,omitempty"`
	Proves   string  `json:"proves,omitempty"`
	Events   int     `json:"events"`

	Faults []FaultResult `json:"faults"`
	Counts
	Phases  ByPhase[Counts]  `json:"phases"`
	Latency ByPhase[Latency] `json:"latency"`
	// FirstAcquireAfterFault is the longest of the faults' FirstAcquire. null: there was no fault, or
	// after one of them nothing was acquired any more.
	FirstAcquireAfterFault *float64 `json:"first_acquire_after_fault_millis"`

	Overlaps       int     `json:"overlaps"`               // pairs of ops
	OverlapTime    float64 `json:"overlap_millis"`         // in which more than one believed, of all resources
	OverlapLongest float64 `json:"overlap_longest_millis"` // of one pair

	FenceDuplicates int `json:"fence_duplicates"` // grants with a fence that was out already
	FenceInversions int `json:"fence_inversions"` // grants with a smaller fence than an earlier one

	Losses            int     `json:"losses"`                     // that were noticed
	LossNoticeLongest float64 `json:"loss_notice_longest_millis"` // from Until to the lost event
	LateLosses        int     `json:"late_losses"`
	LateLossLongest   float64 `json:"late_loss_longest_millis"` // belief past the moment when ownership passed on

	LostUpdates         int `json:"lost_updates"`          // of both resources
	StaleWritesRefused  int `json:"stale_writes_refused"`  // by the fenced resource
	StaleWritesAccepted int `json:"stale_writes_accepted"` // by both resources
	FencedLostUpdates   int `json:"fenced_lost_updates"`
	FencedStaleAccepted int `json:"fenced_stale_writes_accepted"`
	ValidWritesRefused  int `json:"valid_writes_refused"`

	OwnerEvents   int     `json:"owner_events"`          // without any, nothing can be said of orphans and late losses
	Orphans       int     `json:"orphans"`               // keys that outlived their owner by more than OrphanGrace
	OrphanLongest float64 `json:"orphan_longest_millis"` // of these
	OrphansPast   int     `json:"orphans_past_ttl"`      // of these, violations

	Confirmed       Confirmation `json:"confirmed"`
	LeftOut         []LeftOut    `json:"checks_left_out"`
	ViolationsFound int          `json:"violations_found"`
	Violations      []Violation  `json:"violations"` // in the order of time, at most MaxListed of a kind
	Verdict         Verdict      `json:"verdict"`
}

func millis(nanos int64) float64 { return float64(nanos) / 1e6 }

func toMillis(nanos int64) *float64 {
	m := millis(nanos)
	return &m
}
