package check

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
)

// Judge judges a history. An error means that it is not a valid history (see [history.Validate]), or that the checks
// contradict each other, which is a bug of this package.
func Judge(events []history.Event) (Result, error) { return judgeAll(history.Validate(events)) }

// JudgeReader judges the history in r, without keeping its events in memory.
func JudgeReader(r io.Reader) (Result, error) { return judgeAll(history.All(r)) }

// A judge has processed a history up to a line.
type judge struct {
	run   history.Run
	line  int   // of the current event. Lines order events that have the same time
	at    int64 // of the current event
	ops   []op
	byID  map[uint64]int32 // op id to index in ops
	locks table[string, lock]
	regs  table[registerKey, register]

	faults  []*fault
	waiting []*fault            // for the first acquire
	healed  []*fault            // for the first acquire after they healed
	answers [failed + 1][]int64 // by outcome: when acquires were answered

	res    Result
	listed map[ViolationKind]int
	unsure bool // a check was not made; see leaveOut

	leftAcquires, leftReleases int            // calls that never returned while the run waited for them
	untold                     map[string]int // leases of which the subject did not say this

	withoutFence int // ops that have no fencing token, in the time before any other had one

	anyQueued  bool // some op has its place in an order of arrival
	queuedOps  int  // those of these that were granted the lock
	queuedHurt int  // and of these, those whose order is not judged
	// queuedUntold are those that came late in the order of their requests, and have no place that is known.
	queuedUntold int
}

func newJudge() *judge {
	j := &judge{byID: map[uint64]int32{}, listed: map[ViolationKind]int{}, untold: map[string]int{}}
	j.res.Violations, j.res.Faults, j.res.LeftOut = []Violation{}, []FaultResult{}, []LeftOut{} // empty lists in JSON, not null
	return j
}

func judgeAll(events iter.Seq2[history.Event, error]) (Result, error) {
	j := newJudge()
	for e, err := range events {
		if err != nil {
			return Result{}, err
		}
		j.line++
		j.at = e.At
		j.step(&e)
	}
	err := j.finish()
	return j.res, err
}

// step processes the next event. What needs the whole history is left to finish.
func (j *judge) step(e *history.Event) {
	switch e.Kind {
	case history.Start:
		j.run = *e.Run
	case history.Acquire:
		j.acquire(e)
	case history.Granted:
		j.granted(e)
	case history.Queued:
		j.queued(e)
	case history.Refused:
		j.denied(e, refused)
	case history.Failed:
		j.denied(e, failed)
	case history.Lost, history.Release, history.Freed:
		j.ended(e)
	case history.Read, history.Write, history.Written:
		j.access(e)
	case history.Owner:
		j.owner(e)
	case history.Fault:
		j.fault(e)
	}
}

func (j *judge) finish() error {
	j.header()
	j.endOps()
	for _, l := range j.locks.all {
		l.endSpans(j.at)
		j.checkOverlap(l)
		j.checkArrival(l)
		j.checkFences(l)
		j.checkLateLoss(l)
		j.checkOrphans(l)
	}
	deadline := time.Now().Add(confirmTime)
	var errs []error
	for _, l := range j.locks.all {
		errs = append(errs, j.confirmFences(l, deadline), j.confirmHolders(l, deadline))
	}
	for _, r := range j.regs.all {
		errs = append(errs, j.checkRegister(r, deadline))
	}
	j.endCalls()
	j.endOwners()
	j.endFences()
	j.endUntold()
	j.endArrival()
	j.endGrants()
	j.phases()
	slices.SortStableFunc(j.res.Violations, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	switch {
	case j.res.ViolationsFound > 0:
		j.res.Verdict = Unsafe
	case j.unsure:
		j.res.Verdict = Unsure
	default:
		j.res.Verdict = Safe
	}
	return errors.Join(errs...)
}

// leaveOut records a check that was not made, or not completed. What had to be judged and was not makes the verdict
// unsure: that is up to the caller.
func (j *judge) leaveOut(check, resource, reason string) {
	j.res.LeftOut = append(j.res.LeftOut, LeftOut{Check: check, Resource: resource, Reason: reason})
}

func (j *judge) header() {
	r := j.run
	j.res.Lock, j.res.Permits = r.Lock, r.Permits
	j.res.Scenario, j.res.Subject, j.res.Fleet = r.Scenario, r.Subject, r.Fleet
	j.res.Nodes, j.res.Clients, j.res.Seed, j.res.Seconds = len(r.Nodes), r.Clients, r.Seed, r.Seconds
	j.res.Replay, j.res.Proves = r.Replay, r.Proves
	j.res.Events = j.line
}

// violate counts a violation. If it is to be listed, violate calls describe and returns it; it is valid until the next
// call.
func (j *judge) violate(kind ViolationKind, l *lock, ops []int32, at, length int64, describe func() string) *Violation {
	j.res.ViolationsFound++
	j.listed[kind]++
	if j.listed[kind] > MaxListed {
		return nil
	}
	v := Violation{
		Kind: kind, At: time.Duration(at), For: time.Duration(length), Resource: l.name,
		Clients: []int{}, Ops: []uint64{}, Nodes: []string{}, Text: describe(), Cause: j.cause(kind, l, ops, at),
	}
	for _, i := range ops {
		v.Ops = append(v.Ops, j.ops[i].id)
		if c := j.ops[i].client; !slices.Contains(v.Clients, c) {
			v.Clients = append(v.Clients, c)
		}
	}
	v.Nodes = append(v.Nodes, j.involved(ops, v.Cause, at)...)
	j.res.Violations = append(j.res.Violations, v)
	return &j.res.Violations[len(j.res.Violations)-1]
}

// name describes an op for people.
func (j *judge) name(i int32) string {
	return fmt.Sprintf("client %d (op %d)", j.ops[i].client, j.ops[i].id)
}

// A table keeps its values in the order of their first use, so that results do not depend on the order of a map.
type table[K comparable, V any] struct {
	all   []*V
	byKey map[K]*V
}

func (t *table[K, V]) get(key K, make func() *V) *V {
	v, ok := t.byKey[key]
	if !ok {
		v = make()
		if t.byKey == nil {
			t.byKey = map[K]*V{}
		}
		t.byKey[key] = v
		t.all = append(t.all, v)
	}
	return v
}
