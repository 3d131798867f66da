package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A round is one operation sent to all nodes at once, and their answers. It outlives its verdict: what
// slow nodes answer later still reaches it.
type round struct {
	plan
	done  chan struct{} // closed at the verdict
	first chan struct{} // closed at the first answer, if not nil

	mu      sync.Mutex // guards the rest; nothing but the questions is called under it
	tally   tally
	verdict verdict
	answers []answer
	late    error // why the nodes that have not answered have no vote; nil: the others' votes decided
	yielded bool  // it was won, and given up for a waiter whose turn it was
	asked   []question

	// What the slices above are made of for the usual numbers of nodes: one allocation for all.
	space struct {
		votes   [usualNodes]vote
		clocks  [usualNodes]span
		answers [usualNodes]answer
	}
}

// A plan is all that a round is made of.
type plan struct {
	call
	t0         Instant // read before anything is sent; 0: now
	queueAt    nodeSet // where the client is entered in the queue of waiters, if it is refused
	queueEntry int64   // as what; see acquire.lua
	probed     bool    // one node is asked first, and the others if it granted
	// ending, if not nil, ends the wait for the verdict when it is closed, as the caller's context does.
	ending <-chan struct{}
	// answered, if not nil, is called with each first answer of a node, and the verdict with it. It is called
	// without mu, by the node's reader, and must not block.
	answered func(r *round, node int, a answer, v verdict, decides bool)
}

const usualNodes = 5

// newRound makes a round that is won by need nodes whose clocks agree within the tolerance; negative: any.
func newRound(p plan, nodes, need int, tolerance time.Duration) *round {
	r := &round{plan: p, done: make(chan struct{})}
	if p.probed {
		r.first = make(chan struct{})
	}
	if nodes > usualNodes {
		r.tally = newTally(nodes, need, tolerance)
		r.answers = make([]answer, nodes)
		return r
	}
	r.tally = tally{votes: r.space.votes[:nodes], need: need, tolerance: tolerance}
	if tolerance >= 0 {
		r.tally.clocks = r.space.clocks[:nodes]
	}
	r.answers = r.space.answers[:nodes]
	return r
}

// An answer is one node's reply to one round.
type answer struct {
	vote     vote
	reserved bool     // what release.lua released is kept for somebody who waits
	micros   int64    // the server's TIME in µs, where it decided
	clock    span     // where its clock lies against ours, where it decided
	denial   *denial  // why it was denied
	found    *finding // what inspect.lua found
	err      error    // why it is unknown; or otherConfig
}

// A denial is a node's no.
type denial struct {
	reason  reason
	left    time.Duration // of the key that is in the way; negative: it never expires
	owner   string        // of that key
	highest uint64        // ballot granted in the slots asked for
}

type reason uint8

const (
	held         reason = iota // another owner has a key
	stale                      // the ballot is not above the highest one granted
	missing                    // a key of ours is gone
	gone                       // nothing, or not everything, was there to delete
	inQuarantine               // the node is in quarantine
)

var (
	errSilent     = errors.New("no answer in time")
	errNotAwaited = errors.New("no answer by the time that the others' decided")
	errUnready    = errors.New("it may have forgotten what it granted, and is not ready to grant")
	errClock      = errors.New("it granted, but its clock is out of step with the others' by more than ClockBand allows, so its vote is not counted; set its clock (NTP)")
	errNotAsked   = errors.New("not asked, since the node asked first did not grant")
)

// alone reports whether only one node was asked, and did not grant: its answer tells whether to ask again, and
// not whether the lock is held or a quorum is away.
func (r *round) alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late == errNotAsked
}

// A question is something that the votes may tell beside the verdict.
type question struct {
	decided func(*tally) bool // it is true once and for ever
	answer  chan struct{}     // closed when it is
}

// until waits until the votes tell, no longer than patience: then the round's time is over. It returns an error if
// ctx or the client ended first; ending may be nil.
func (r *round) until(ctx context.Context, timers *timers, ending <-chan struct{}, patience time.Duration, decided func(*tally) bool) error {
	r.mu.Lock()
	if decided(&r.tally) {
		r.mu.Unlock()
		return nil
	}
	q := question{decided, make(chan struct{})}
	r.asked = append(r.asked, q)
	r.mu.Unlock()
	timer := timers.start(max(patience, 0))
	defer timers.stop(timer)
	select {
	case <-q.answer:
	case <-timer.C:
		r.expire(errSilent)
	case <-ctx.Done():
		return ctx.Err()
	case <-ending:
		return ErrClosed
	}
	return nil
}

// takeDecided removes and returns the questions that the votes now answer. r.mu is held.
func (r *round) takeDecided() (decided []question) {
	r.asked = slices.DeleteFunc(r.asked, func(q question) bool {
		is := q.decided(&r.tally)
		if is {
			decided = append(decided, q)
		}
		return is
	})
	return decided
}

// record counts the node's answer. Only the first answer of a node counts. The callback comes before those who wait for
// the round wake: they find its effect done.
func (r *round) record(node int, a answer) {
	r.mu.Lock()
	if !r.tally.cast(node, a.vote, a.clock) {
		r.mu.Unlock()
		return
	}
	r.answers[node] = a
	if r.first != nil && r.tally.granted+r.tally.denied+r.tally.unknown == 1 {
		close(r.first)
	}
	decides := r.settle()
	v := r.verdict
	var decided []question
	if len(r.asked) > 0 {
		decided = r.takeDecided()
	}
	r.mu.Unlock()
	if r.answered != nil {
		r.answered(r, node, a, v, decides)
	}
	if decides {
		close(r.done)
	}
	for _, q := range decided {
		close(q.answer)
	}
}

// expire ends the round's time: if it is undecided, it is lost (A3). What the nodes that have not answered say
// later is no longer counted for it, and still tells why it was lost. It reports whether that decided the round.
func (r *round) expire(why error) bool {
	r.mu.Lock()
	if r.late == nil {
		r.late = why
	}
	if r.verdict != undecided {
		r.mu.Unlock()
		return false
	}
	r.verdict = lost
	r.mu.Unlock()
	close(r.done)
	return true
}

// settle reports whether the votes have just become a verdict. r.mu is held.
func (r *round) settle() bool {
	if r.verdict != undecided {
		return false
	}
	r.verdict = r.tally.verdict()
	return r.verdict != undecided
}

// await waits for the verdict, no longer than timeout. If ctx or the client ends first it returns undecided: the
// round goes on without its caller.
func (r *round) await(ctx context.Context, timers *timers, timeout time.Duration) verdict {
	timer := timers.start(timeout)
	defer timers.stop(timer)
	select {
	case <-r.done:
	case <-timer.C:
		if !r.expire(errSilent) {
			<-r.done // decided just now: its callback is running
		}
	case <-ctx.Done():
		return undecided
	case <-r.ending:
		return undecided
	}
	return r.result()
}

func (r *round) result() verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict
}

// counted is the nodes whose votes make the quorum, and the slack of their clocks.
func (r *round) counted() (nodeSet, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
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

// deniedBy is the nodes that said no.
func (r *round) deniedBy() (nodes nodeSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, v := range r.tally.votes {
		if v == denied {
			nodes.add(i)
		}
	}
	return nodes
}

// timers keeps stopped timers, because every round needs one and few fire. Each client has its own: a timer
// made in a testing/synctest bubble must not leave it.
type timers struct{ pool sync.Pool }

func (t *timers) start(d time.Duration) *time.Timer {
	if timer, ok := t.pool.Get().(*time.Timer); ok {
		timer.Reset(d)
		return timer
	}
	return time.NewTimer(d)
}

// stop leaves nothing in the channel: since Go 1.23 a stopped timer's is empty.
func (t *timers) stop(timer *time.Timer) {
	timer.Stop()
	t.pool.Put(timer)
}
