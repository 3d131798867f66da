package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"
)

// A round is one operation sent to all nodes at once, and their answers. It outlives its verdict: what
// slow nodes answer later still reaches it.
type round struct {
	script *script
	keys   []any // KEYS and ARGV, boxed once and shared by every node's command; not written after the send
	args   []any
	t0     Instant // read before anything was sent
	enter  nodeSet // where the client is entered among those who wait, if it is refused

	// answered, if not nil, is told each first answer of a node, and the verdict with it. It is called
	// without mu, from the node's reader, and must not block.
	answered func(r *round, node int, a answer, v verdict, decides bool)

	done  chan struct{} // closed at the verdict
	first chan struct{} // closed at the first answer, if not nil

	mu      sync.Mutex // guards the rest; nothing is called under it
	tally   tally
	verdict verdict
	answers []answer

	// What the slices above are made of for the usual numbers of nodes: one allocation for all.
	space struct {
		votes   [usualNodes]vote
		clocks  [usualNodes]span
		answers [usualNodes]answer
	}
}

const usualNodes = 5

// newRound makes a round that is won by need nodes whose clocks agree within the tolerance; negative: any.
func newRound(s *script, keys, args []any, nodes, need int, tolerance time.Duration, t0 Instant) *round {
	r := &round{script: s, keys: keys, args: args, t0: t0, done: make(chan struct{})}
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
	vote   vote
	micros int64    // the server's TIME in µs, where it told
	clock  span     // where its clock lies against ours, where it told
	maxTTL int64    // what ready.lua admits, in ms
	kept   bool     // what release.lua released is kept for somebody who waits
	denial *denial  // why it was denied
	found  *finding // what inspect.lua found
	err    error    // why it is unknown
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
	held     reason = iota // another owner has a key
	stale                  // the ballot is not above the highest one granted
	missing                // a key of ours is gone
	gone                   // nothing, or not everything, was there to delete
	confined               // the node is in quarantine
)

func (d *denial) Error() string {
	switch d.reason {
	case held:
		if d.left < 0 {
			return fmt.Sprintf("held by %.8s…, and never expires", d.owner)
		}
		return fmt.Sprintf("held by %.8s… for %v more", d.owner, d.left)
	case stale:
		return fmt.Sprintf("granted ballot %d before, not below ours", d.highest)
	case missing:
		return "the key is gone"
	case confined:
		return fmt.Sprintf("in quarantine for %v more", d.left)
	default:
		return "the key was not ours"
	}
}

var (
	errSilent   = errors.New("no answer in time")
	errUnheeded = errors.New("no answer yet when the others' decided")
	errUnready  = errors.New("it may have forgotten what it granted, and is not ready to grant")
	errClock    = errors.New("it granted, but its clock is out of step with the others' by more than ClockBand allows, so its vote is not counted; set its clock (NTP)")
	errNotAsked = errors.New("not asked, since the node asked first did not grant")
)

// record counts the node's answer. Only the first of a node counts.
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
	r.mu.Unlock()
	if decides {
		close(r.done)
	}
	if r.answered != nil {
		r.answered(r, node, a, v, decides)
	}
}

// expire ends the round's time: if it is undecided, the nodes that have not answered are unknown, for this
// reason (A3). It reports whether that decided the round.
func (r *round) expire(why error) bool {
	r.mu.Lock()
	if r.verdict != undecided {
		r.mu.Unlock()
		return false
	}
	for i, v := range r.tally.votes {
		if v == pending {
			r.tally.cast(i, unknown, span{})
			r.answers[i] = answer{vote: unknown, err: why}
		}
	}
	r.settle()
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

// await waits for the verdict, no longer than timeout. If ctx ends first it returns undecided: the round
// goes on without its caller.
func (r *round) await(ctx context.Context, timers *timers, timeout time.Duration) verdict {
	timer := timers.start(timeout)
	defer timers.stop(timer)
	select {
	case <-r.done:
	case <-timer.C:
		r.expire(errSilent)
	case <-ctx.Done():
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

// error describes the round as it stands, as a failure of this kind.
func (r *round) error(kind error, names []string, nodes []*node, note string) *RoundError {
	answers, t := r.snapshot()
	counted, _ := t.counted()
	e := &RoundError{Op: r.script.name, Names: names, Need: t.need, Granted: counted.len(), Denied: t.denied,
		Unknown: len(answers) - counted.len() - t.denied, kind: kind, note: note}
	for i, a := range answers {
		var err error
		switch {
		case a.vote == granted && !counted.has(i):
			err = errClock
		case a.denial != nil:
			err = a.denial
		case a.err != nil:
			err = a.err
		case a.vote == pending:
			err = errUnheeded
		default:
			continue
		}
		e.Err = multierror.Append(e.Err, &NodeError{Node: nodes[i].endpoint.name, Err: err})
	}
	return e
}

// refusal describes a failed acquire: held where enough nodes answered, or the one that was asked first did;
// an outage where too few could vote.
func (r *round) refusal(names []string, nodes []*node, probed bool) *RoundError {
	_, t := r.snapshot()
	counted, _ := t.counted()
	switch {
	case counted.len() >= t.need:
		return r.error(ErrNoQuorum, names, nodes, "granted too late to be of use")
	case t.answered(), probed && t.denied > 0:
		return r.error(ErrHeld, names, nodes, "")
	default:
		return r.error(ErrNoQuorum, names, nodes, "")
	}
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
