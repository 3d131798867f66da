package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A round is one operation that is sent to nodes, and their answers. It goes on after its verdict, because what
// slow nodes answer later still matters (A3).
type round struct {
	plan
	// later and lastAsked belong to the sender: the nodes that are asked now were not asked at once; and when the last
	// ones were asked.
	later     bool
	lastAsked Instant
	relied    nodeSet       // of an acquire: the nodes that its winner relies on, for whose clocks it has waited (C2)
	tooLate   atomic.Bool   // of a renewal: it was won, and the lease cannot rely on it before its validity ends (C2)
	signal    chan struct{} // capacity 1: the verdict is published, or the nodes that were asked so far do not suffice
	closed    atomic.Bool   // the attempt is over: what it left behind has its release, or is about to
	decided   atomic.Bool   // the verdict is published: it is set, and the callback has seen it

	mu        sync.Mutex // guards the rest; only question.decided is called under it
	tally     tally
	verdict   verdict
	answers   []answer
	asked     nodeSet    // the nodes that it was sent to so far
	unvouched nodeSet    // the nodes that granted so late that another INFO has to vouch for it (vouchLate)
	refused   nodeSet    // the nodes that refused the light form (light.go)
	showed    nodeSet    // of these, where it wrote the key: that gets the release (A5), and others may have seen it
	late      error      // why nodes that have not answered have no vote; nil: the round's time is not over
	byTime    bool       // its time decided it, so no answer has told answered
	isOver    bool       // over was called, or is about to be
	yielded   bool       // it was won and given up, because the lock is reserved for another client (T3)
	questions []question // that the votes have not decided

	// With up to usualNodes nodes, the slices above are parts of space, so that a round is one allocation. The
	// allocations of BenchmarkCycle show it.
	space struct {
		votes   [usualNodes]vote
		clocks  [usualNodes]span
		answers [usualNodes]answer
	}
}

// A plan is what a round is made of.
type plan struct {
	call
	t0         Instant // read before anything is sent (A1); 0: now
	ballot     uint64  // that it proposes (F1); 0: none
	queueAt    nodeSet // the nodes that enter the client in their queue if they refuse (W2)
	queueEntry int64   // how they enter it; see acquire.lua
	takeAt     nodeSet // of a renewal: the nodes that may take the keys, because they never had them (R2)
	given      []int64 // of a renewal, by node: how long the keys were to live by the last write that may have given them, ms; nil: the TTL
	proven     nodeSet // of a renewal: the nodes that count also while they may not grant (R1)
	plants     int32   // of a renewal: how many plants came before it
	full       bool    // the acquire has no light form: tries are decided by who has which node at the same moment (T2)
	renewed    renewed // what a renewal renews; nil: nothing, for a trial
	only       nodeSet // the nodes that are concerned; the others have no vote. 0: all are
	distrusted nodeSet // of a swap: the nodes that must not have the ticket (D3)
	silentAt   nodeSet // of a release that hands the lock over: the nodes that do not reserve it, and tell nobody (W1)
	pays       *debt   // of a release that is sent again: what was owed
	// ending, if not nil, ends the wait for the verdict when it is closed, as the caller's context does.
	ending <-chan struct{}
	// sent, if not nil, is called by the sender when the round has been sent for the first time.
	sent func()
	// over, if not nil, is called once, when the votes have decided the round or all nodes that were asked so far have answered,
	// whether or not anybody still waits for it. trips is how many round trips a vote took: two if the script followed a light
	// form that was refused; 0 if no node granted or denied. It must not block.
	over func(r *round, trips int)
	// granting, if not nil, is called when a node has granted and the vote still waits for an INFO (vouchLate).
	granting func(node int)
	// answered, if not nil, is called with the first answer of each node and the verdict after it. decides says that
	// this answer made the verdict. It is called without mu, by a goroutine of the node or, if the node is not
	// connected, by the sender. It must not block.
	answered func(r *round, node int, a answer, v verdict, decides bool)
}

// A renewed knows whether a renewal of it may still be sent, and which nodes are proven (proven.go).
type renewed interface {
	whileHeld(r *round, send func()) bool
	took(node int)
	lapses(node int)
	provenAt() nodeSet
}

const usualNodes = 5

// newRound makes a round that is won if need nodes grant whose clocks agree within the tolerance (C1). With a negative
// tolerance clocks are not compared.
func newRound(p plan, nodes, need int, tolerance time.Duration) *round {
	r := &round{plan: p, lastAsked: p.t0, signal: make(chan struct{}, 1)}
	if nodes > usualNodes {
		r.tally = newTally(nodes, need, tolerance)
		r.answers = make([]answer, nodes)
	} else {
		r.tally = tally{votes: r.space.votes[:nodes], need: need, tolerance: tolerance}
		if tolerance >= 0 {
			r.tally.clocks = r.space.clocks[:nodes]
		}
		r.answers = r.space.answers[:nodes]
	}
	if p.only != 0 {
		r.tally.exclude(p.only)
	}
	return r
}

// An answer is one node's reply to one round.
type answer struct {
	vote     vote
	reserved bool     // release.lua reserved a key for a waiter (W2)
	taken    bool     // extend.lua took keys that were missing (R2)
	unready  bool     // extend.lua extended the keys on a node that may not grant now (R1)
	setBack  bool     // extend.lua extended keys, and the server's clock was set back since it wrote them (R1)
	micros   int64    // the server's TIME in µs; 0: the script did not reply with it
	clock    span     // the difference of the server's clock and ours; set if micros is
	denial   *denial  // why the vote is denied
	found    *finding // what inspect.lua found
	err      error    // why the vote is unknown; or an otherConfig or errUsed, by which ready.lua denied
}

// A denial is why a node denied.
type denial struct {
	reason  reason
	left    time.Duration // how much longer the key in the way, or the quarantine, lasts; negative: for ever
	owner   string        // the value of that key; of one that several share, ownedByReaders or ownedByPermits
	mute    bool          // several share that key, and one of them may not publish
	highest uint64        // the highest ballot granted in the slots asked for; 0: none, or not said
	free    []int         // of a semaphore: the slots that are free; none: not enough are
	permits int           // of a semaphore: the largest number of permits that a holder knows
	ticket  int64         // fair.lua: the largest ticket in the queues; 0: none, or not said
	ahead   int           // fair.lua: how many waiters are ahead
}

type reason uint8

const (
	held         reason = iota // another owner has a key, or it is reserved
	slotTaken                  // another owner has the slot of a semaphore that was asked for; others are free
	stale                      // the ballot is not above the highest that was granted (F2)
	missing                    // extend.lua: a key of ours is missing, and was not taken
	gone                       // release.lua: not all keys were ours
	inQuarantine               // the node is in quarantine
	behind                     // fair.lua: the keys are free, and waiters are ahead
)

var (
	errSilent     = errors.New("no answer in time")
	errNotAwaited = errors.New("no answer before the others decided the round")
	errUnready    = errors.New("it may have forgotten what it granted, and is not ready to grant")
	errClockSet   = errors.New("its clock was set back since it has the lock, so its vote is not counted for as long: another lease may have ended there too early")
	errClock      = errors.New("its clock is out of step with the others' by more than ClockBand allows, so its vote is not counted; set its clock (NTP)")
	errNotNeeded  = errors.New("not asked, since the others' answers were enough")
	errNeverHad   = errors.New("not asked, since it never had the lock")
	errDistrusted = errors.New("not asked, since it may have forgotten locks, or its clock may be wrong")
	errNotAsked   = errors.New("not asked, since the node asked first did not grant")
)

// alone reports whether only one node was asked, and did not grant. Its answer decides only whether to ask again, and
// not whether the lock is held or there is an outage (T1).
func (r *round) alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late == errNotAsked
}

// A question is something that the votes decide beside the verdict.
type question struct {
	decided func(*tally) bool // it is not asked again once it was true
	answer  chan struct{}     // closed when it is true
}

// until waits until decided is true, no longer than patience. After that time the round's time is over. It returns an
// error if ctx or the client ended first; ending may be nil.
func (r *round) until(ctx context.Context, timers *timers, ending <-chan struct{}, patience time.Duration, decided func(*tally) bool) error {
	r.mu.Lock()
	if decided(&r.tally) {
		r.mu.Unlock()
		return nil
	}
	if patience <= 0 {
		r.mu.Unlock()
		r.expire(errSilent)
		return nil
	}
	q := question{decided, make(chan struct{})}
	r.questions = append(r.questions, q)
	r.mu.Unlock()
	timer := timers.start(patience)
	defer timers.stop(timer)
	for {
		select {
		case <-q.answer:
			return nil
		case due := <-timer.C:
			if timer.isOver(due) {
				r.expire(errSilent)
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-ending:
			return ErrClosed
		}
	}
}

// takeDecided removes and returns the questions that are now decided. r.mu is held.
func (r *round) takeDecided() (decided []question) {
	r.questions = slices.DeleteFunc(r.questions, func(q question) bool {
		is := q.decided(&r.tally)
		if is {
			decided = append(decided, q)
		}
		return is
	})
	return decided
}

// record counts the first answer of a node. The callback runs before the goroutines that wait for the round wake up, so
// that they see its effect.
func (r *round) record(node int, a answer) {
	r.mu.Lock()
	if !r.tally.cast(node, a.vote, a.clock) {
		r.mu.Unlock()
		return
	}
	r.answers[node] = a
	decides := r.settle()
	v := r.verdict
	falls := v == undecided && !r.mayStillSuffice()
	isOver := r.over != nil && !r.isOver && (decides || r.tally.votedBy(pending)&r.asked == 0)
	r.isOver = r.isOver || isOver
	trips := 0
	if r.tally.granted+r.tally.denied > 0 {
		trips = 1
		if r.refused != 0 {
			trips = 2
		}
	}
	var decided []question
	if len(r.questions) > 0 {
		decided = r.takeDecided()
	}
	r.mu.Unlock()
	if r.answered != nil {
		r.answered(r, node, a, v, decides)
	}
	if decides {
		r.decided.Store(true)
	}
	if decides || falls {
		r.wakeUp()
	}
	if isOver {
		r.over(r, trips)
	}
	for _, q := range decided {
		close(q.answer)
	}
}

// mayStillSuffice reports whether the nodes that were asked so far may decide the round: all that answered granted or
// denied, and some have not answered. r.mu is held.
func (r *round) mayStillSuffice() bool {
	waiting := 0
	for i, v := range r.tally.votes {
		if !r.asked.has(i) {
			continue
		}
		switch v {
		case unknown:
			return false
		case pending:
			waiting++
		}
	}
	return waiting > 0
}

// suffices reports whether it is decided without further nodes that the round is won, or lost and why.
func (r *round) suffices() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict == won || r.verdict == lost && r.tally.loss() != lossUnclear
}

// vouching notes that the node granted, what its clock showed then, and that the grant waits for an INFO.
func (r *round) vouching(node int, clock span) {
	r.mu.Lock()
	r.unvouched.add(node)
	if r.tally.clocks != nil && r.tally.votes[node] == pending {
		r.tally.clocks[node] = clock
	}
	r.mu.Unlock()
	if r.granting != nil {
		r.granting(node)
	}
}

// vouchingNow is the nodes that granted, and whose grants wait for an INFO.
func (r *round) vouchingNow() nodeSet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unvouched & r.tally.votedBy(pending)
}

func (r *round) isUnvouched(node int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unvouched.has(node)
}

// awaitsVouching reports whether a grant waits for an INFO.
func (r *round) awaitsVouching() bool { return r.vouchingNow() != 0 }

// askMore notes that the round is about to be sent to these nodes.
func (r *round) askMore(nodes nodeSet) {
	r.mu.Lock()
	r.asked |= nodes
	r.mu.Unlock()
}

// askedNodes is the nodes that the round was sent to.
func (r *round) askedNodes() nodeSet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// awaited is the nodes that were asked, and have not answered.
func (r *round) awaited() nodeSet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.votedBy(pending) & r.asked
}

func (r *round) wakeUp() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// An unsentTo is a node that did not accept a round.
type unsentTo struct {
	node int
	why  error
}

// recordUnsent counts these nodes' votes as unknown.
func (r *round) recordUnsent(unsent []unsentTo) {
	for _, u := range unsent {
		r.record(u.node, answer{vote: unknown, err: u.why})
	}
}

// expire ends the round's time: if it is undecided, it is lost (A3). Later answers do not change the verdict, but they
// still show why it was lost. expire reports whether it decided the round.
func (r *round) expire(why error) bool {
	r.mu.Lock()
	if r.late == nil {
		r.late = why
	}
	if r.verdict != undecided {
		r.mu.Unlock()
		return false
	}
	r.verdict, r.byTime = lost, true
	r.mu.Unlock()
	r.decided.Store(true)
	r.wakeUp()
	return true
}

// isByTime reports whether the round's time decided it, so that no answer has told anybody.
func (r *round) isByTime() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byTime
}

// lateVotes reports whether a quorum of these nodes has granted, though the round's time had decided it before; or whether
// that may still come, and no quorum can without a node that has not answered.
func (r *round) lateVotes(nodes nodeSet) (wonLate, mayBe bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.byTime {
		return false, false
	}
	t := &r.tally
	open := t.votedBy(pending)
	if set, _ := t.agreeing(t.votedBy(granted) & nodes); set.len() >= t.need {
		return true, false
	}
	return false, len(t.votes)-open.len() < t.need && ((t.votedBy(granted)|open)&nodes).len() >= t.need
}

// settle sets the verdict, and reports whether the votes have just decided it. r.mu is held.
func (r *round) settle() bool {
	if r.verdict != undecided {
		return false
	}
	r.verdict = r.tally.verdict()
	return r.verdict != undecided
}

// await waits for the verdict, no longer than timeout. If ctx ends first, or the channel ending is closed, it returns
// undecided, and the round goes on without its caller.
func (r *round) await(ctx context.Context, timers *timers, timeout time.Duration) verdict {
	if r.decided.Load() {
		return r.result()
	}
	timer := timers.start(timeout)
	defer timers.stop(timer)
	for !r.decided.Load() {
		select {
		case <-r.signal:
		case due := <-timer.C:
			if timer.isOver(due) {
				r.expire(errSilent) // if the votes decided just now, their callback is still running: a signal follows
			}
		case <-ctx.Done():
			return undecided
		case <-r.ending:
			return undecided
		}
	}
	r.wakeUp() // others may wait for the same round
	return r.result()
}

// awaitAsked waits for the verdict, or until the nodes that were asked so far do not suffice, no longer than patience.
func (r *round) awaitAsked(ctx context.Context, timers *timers, patience time.Duration) {
	timer := timers.start(patience)
	defer timers.stop(timer)
	for !r.decided.Load() && r.mayWait() {
		select {
		case <-r.signal:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-r.ending:
			return
		}
	}
}

func (r *round) mayWait() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict != undecided || r.mayStillSuffice() // decided, but not published: a signal follows
}

func (r *round) result() verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict
}

// voteOf is the node's vote so far.
func (r *round) voteOf(node int) vote {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.votes[node]
}

// counted is the nodes whose grants count, and how far apart their clocks may be (C1, C2).
func (r *round) counted() (nodeSet, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.counted()
}

// reliesOn is counted, but these nodes alone if they suffice.
func (r *round) reliesOn(nodes nodeSet) (set nodeSet, apart time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if set, apart = r.tally.agreeing(r.tally.votedBy(granted) & nodes); set.len() >= r.tally.need {
		return set, apart
	}
	return r.tally.counted()
}

// snapshot copies the answers as they are now.
func (r *round) snapshot() ([]answer, tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally
	t.votes, t.clocks = slices.Clone(t.votes), slices.Clone(t.clocks)
	return slices.Clone(r.answers), t
}

// forgetful is the nodes whose servers answered that they no longer have the script, as after SCRIPT FLUSH.
func (r *round) forgetful() (nodes nodeSet) {
	answers, _ := r.snapshot()
	for i, a := range answers {
		if isForgotten(a.err) {
			nodes.add(i)
		}
	}
	return nodes
}

// deniedBy is the nodes that denied.
func (r *round) deniedBy() nodeSet { return r.votedBy(denied) }

// heldBy is the nodes that denied because somebody else has a key.
func (r *round) heldBy() (nodes nodeSet) {
	answers, _ := r.snapshot()
	for i, a := range answers {
		if a.denial != nil && a.denial.reason == held {
			nodes.add(i)
		}
	}
	return nodes
}

// leftNothing is the nodes that denied and wrote nothing.
func (r *round) leftNothing() nodeSet { return r.deniedBy() &^ r.shown() }

// shown is the nodes that refused the acquire, although its light form wrote the key there.
func (r *round) shown() nodeSet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.showed
}

// lightRefused notes that the node refused the light form. Its vote is that of the script, which follows.
func (r *round) lightRefused(node int, wrote bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused.add(node)
	if wrote {
		r.showed.add(node)
	}
}

// concede counts as denied those of the nodes that refused the light form, and whose script is not awaited any longer. The
// light form does not read the server's clock.
func (r *round) concede(nodes nodeSet) {
	r.mu.Lock()
	refused, showed := r.refused&nodes, r.showed
	r.mu.Unlock()
	for i := range r.answers {
		if refused.has(i) {
			why := held
			if showed.has(i) {
				why = stale
			}
			r.record(i, answer{vote: denied, clock: anywhere, denial: &denial{reason: why}})
		}
	}
}

// grantedBy is the nodes that granted.
func (r *round) grantedBy() nodeSet { return r.votedBy(granted) }

func (r *round) votedBy(which vote) nodeSet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.votedBy(which)
}

// A finding is what inspect.lua found on a node: how the node would refuse an acquire, if the key is taken.
type finding struct {
	denial
	taken     bool     // the key exists
	notString bool     // it has no string
	sharers   []Sharer // if several share it
}
