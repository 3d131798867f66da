package check

import (
	"fmt"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
)

// A Verdict is the judgement of a subject.
type Verdict string

// The verdicts.
const (
	Safe   Verdict = "safe"
	Unsafe Verdict = "unsafe"
	// Unsure means that there is no violation, but that a check was not made at all, that a part of the history was not
	// judged, that nobody ever held the lock, or that calls never returned: see Result.LeftOut.
	Unsure Verdict = "unsure"
)

// A ViolationKind is the kind of a violation. See the documentation of the package.
type ViolationKind string

// The kinds of violations.
const (
	Overlap            ViolationKind = "overlap"
	Overtaken          ViolationKind = "overtaken"
	FenceDuplicate     ViolationKind = "fence_duplicate"
	FenceInversion     ViolationKind = "fence_inversion"
	LateLoss           ViolationKind = "late_loss"
	LostUpdate         ViolationKind = "lost_update"
	StaleWriteAccepted ViolationKind = "stale_write_accepted"
	ValidWriteRefused  ViolationKind = "valid_write_refused"
	Register           ViolationKind = "register"
	Orphan             ViolationKind = "orphan"
)

// MaxListed is how many violations of one kind are listed. All are counted.
const MaxListed = 100

// A Violation is one thing that must not happen.
type Violation struct {
	Kind     ViolationKind `json:"kind"`
	At       time.Duration `json:"at_nanos"`       // since the run began
	For      time.Duration `json:"duration_nanos"` // how long it lasted; 0 if it has no length
	Resource string        `json:"resource"`
	Clients  []int         `json:"clients"`
	Ops      []uint64      `json:"ops"`
	Nodes    []string      `json:"nodes"` // nodes with a token of these ops, or with a fault
	Text     string        `json:"text"`  // a sentence for people
	Cause    Cause         `json:"cause"` // the fault that explains it
}

// ByPhase has one T for the time before the first fault, one for the time until the last fault healed, and one for the
// time after that. Without a fault, everything is before. An op belongs to the phase in which it was requested.
type ByPhase[T any] struct {
	Before T `json:"before"`
	During T `json:"during"`
	After  T `json:"after"`
}

// Counts are the outcomes of acquires.
type Counts struct {
	Acquired   int `json:"acquired"`
	Refused    int `json:"refused"`
	Errors     int `json:"errors"`
	Unanswered int `json:"unanswered"` // when the run ended
}

// A Latency is how long granted acquires took. All fields are 0 if there were none.
type Latency struct {
	Count int   `json:"count"`
	P50   int64 `json:"p50_micros"`
	P99   int64 `json:"p99_micros"`
	P999  int64 `json:"p999_micros"`
	Max   int64 `json:"max_micros"`
}

// A FaultResult is one fault and what followed.
type FaultResult struct {
	Fault  string   `json:"fault"`
	Node   string   `json:"node,omitempty"`
	Client int      `json:"client,omitempty"`
	Begin  float64  `json:"begin_millis"`
	Heal   *float64 `json:"heal_millis"` // null: it never healed. An instant fault heals as it begins
	// FirstAcquire and FirstAfterHeal are the times until the next granted event. null: there was none.
	FirstAcquire   *float64 `json:"first_acquire_millis"`
	FirstAfterHeal *float64 `json:"first_acquire_after_heal_millis"`
	// Holder describes the newest lease when the fault began: "none" if it was over, "alive" if it was released later
	// or its loss was noticed later, "dead" if nothing ended it.
	Holder string `json:"holder"`
	// Answers during the fault.
	Acquired int `json:"acquired"`
	Refused  int `json:"refused"`
	Errors   int `json:"errors"`
}

// Confirmation is the result of porcupine. The fencing tokens of a lock are one history for it, who holds the lock is
// another, and so is each of its guarded registers.
type Confirmation struct {
	Agreed  int `json:"agreed"`
	TooLong int `json:"too_long"` // a part could not be cut into windows that are small enough
	Expired int `json:"expired"`  // aborted because it took too long
}

// LeftOut is a check that was not made, or not completed. It qualifies the statement that there is no violation.
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

// A Result is a judged history, as it is in report.json.
type Result struct {
	Scenario string           `json:"scenario"`
	Subject  string           `json:"subject"`
	Lock     history.LockKind `json:"lock,omitempty"`    // its kind; "": a mutex
	Permits  int              `json:"permits,omitempty"` // of a semaphore
	Fleet    string           `json:"fleet"`
	Nodes    int              `json:"nodes"`
	Clients  int              `json:"clients"`
	Seed     uint64           `json:"seed"`
	Seconds  float64          `json:"seconds"`
	Replay   string           `json:"replay,omitempty"`
	Proves   string           `json:"proves,omitempty"`
	Events   int              `json:"events"`

	Faults []FaultResult `json:"faults"`
	Counts
	Phases  ByPhase[Counts]  `json:"phases"`
	Latency ByPhase[Latency] `json:"latency"`
	// FirstAcquireAfterFault is the longest FirstAcquire of all faults. null: there was no fault, or nothing was
	// acquired after one of them.
	FirstAcquireAfterFault *float64 `json:"first_acquire_after_fault_millis"`

	// Overlaps are pairs of ops; of a semaphore, grants beyond its permits.
	Overlaps       int     `json:"overlaps"`
	OverlapTime    float64 `json:"overlap_millis"`         // time in which more than one client believed, for all resources
	OverlapLongest float64 `json:"overlap_longest_millis"` // of one pair
	// Margin is the least time from the end of a lease that ended by itself, or was lost, to the next grant of its lock. It
	// is below 0 if there was an overlap. null: there was no such grant.
	Margin *float64 `json:"margin_millis"`

	Overtakings int `json:"overtakings"` // grants after one that was requested when they already had their place

	FenceDuplicates int `json:"fence_duplicates"` // grants with a fencing token that was granted before
	FenceInversions int `json:"fence_inversions"` // grants with a smaller fencing token than an earlier one

	Losses            int     `json:"losses"`                     // losses that were noticed
	LossNoticeLongest float64 `json:"loss_notice_longest_millis"` // from Until to the lost event
	LateLosses        int     `json:"late_losses"`
	LateLossLongest   float64 `json:"late_loss_longest_millis"` // belief after the lock had another owner

	LostUpdates         int `json:"lost_updates"`          // of both resources
	StaleWritesRefused  int `json:"stale_writes_refused"`  // by the fenced resource
	StaleWritesAccepted int `json:"stale_writes_accepted"` // by both resources
	FencedLostUpdates   int `json:"fenced_lost_updates"`
	FencedStaleAccepted int `json:"fenced_stale_writes_accepted"`
	ValidWritesRefused  int `json:"valid_writes_refused"`

	OwnerEvents   int     `json:"owner_events"`          // without any, orphans and late losses are not judged
	Orphans       int     `json:"orphans"`               // keys that outlived their owner by more than OrphanGrace
	OrphanLongest float64 `json:"orphan_longest_millis"` // of these
	OrphansPast   int     `json:"orphans_past_ttl"`      // those of them that are violations

	Confirmed       Confirmation `json:"confirmed"`
	LeftOut         []LeftOut    `json:"checks_left_out"`
	ViolationsFound int          `json:"violations_found"`
	Violations      []Violation  `json:"violations"` // ordered by time, at most MaxListed per kind
	Verdict         Verdict      `json:"verdict"`
}

func millis(nanos int64) float64 { return float64(nanos) / 1e6 }

func toMillis(nanos int64) *float64 {
	m := millis(nanos)
	return &m
}
