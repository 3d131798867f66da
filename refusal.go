package redlock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
)

// What the error of a failed call says about its rounds.

// exported is the denial in the form of the public errors.
func (d *denial) exported() *Denial {
	t := &Denial{Owner: d.owner, Left: d.left, Highest: d.highest, Free: slices.Clone(d.free), Permits: d.permits}
	switch d.reason {
	case slotTaken:
	case held:
		if d.isReservation() {
			t.Reason, t.Owner = ReasonReserved, "" // who knows the waiter's id could take what is reserved for it
		}
	case stale:
		t.Reason = ReasonStale
	case missing:
		t.Reason = ReasonMissing
	case inQuarantine:
		t.Reason = ReasonQuarantine
	case behind:
		t.Reason = ReasonBehind
	default:
		t.Reason = ReasonNotOurs
	}
	return t
}

// isReservation reports whether the key in the way is reserved for a waiter.
func (d *denial) isReservation() bool { return d.reason == held && isReserved(d.owner, d.left) }

// isReserved reports whether a key with this value, which lasts for so long, is reserved for a waiter. Another program's
// value may begin like that.
func isReserved(value string, left time.Duration) bool {
	id, found := strings.CutPrefix(value, reservationPrefix)
	return found && left >= 0 && len(id) == tokenDigits && digitsOf(id, "0123456789abcdef")
}

// error describes the round as it is now, as a failure of this kind.
func (r *round) error(kind error, names []string, nodes []*node, note string) *RoundError {
	r.mu.Lock()
	late, asked := r.late, r.asked
	r.mu.Unlock()
	if late == nil {
		late = errNotAwaited
	}
	answers, t := r.snapshot()
	counted, _ := t.counted()
	inStep := counted
	if inStep == 0 {
		inStep = t.said()
	}
	e := &RoundError{Op: r.script.name, Names: slices.Clone(names), Need: t.need, Granted: counted.len(), Denied: t.denied,
		Unknown: len(answers) - counted.len() - t.denied, kind: kind, note: note}
	for i, a := range answers {
		var err error
		switch {
		case a.vote == granted && !counted.has(i):
			err = errClock
		case a.vote == denied && kind == ErrNoQuorum && t.isOutOfStep(i, inStep): // so it is no quorum of denials either
			err = errClock
			e.Denied--
			e.Unknown++
		case a.err != nil:
			err = a.err
		case a.denial != nil:
			err = a.denial.exported()
		case r.distrusted.has(i):
			err = errDistrusted
		case r.only != 0 && !r.only.has(i):
			err = errNeverHad
		case a.vote == pending && asked != 0 && !asked.has(i) && late != errNotAsked:
			err = errNotNeeded
		case a.vote == pending:
			err = nodes[i].whyLate(late)
		default:
			continue
		}
		e.Err = multierror.Append(e.Err, &NodeError{Node: nodes[i].endpoint.name, Err: err})
	}
	return e
}

// whyLate adds to the reason why a node has not answered that it is too far away. The distance itself is left out, so that
// nodes which are too far away have the same reason.
func (n *node) whyLate(late error) error {
	if late != errSilent || time.Duration(n.trip.Load()) < n.cfg.NodeTimeout {
		return late
	}
	return fmt.Errorf("%w, because a round trip takes longer than NodeTimeout, %v; set that to several times the round trip", late,
		n.cfg.NodeTimeout)
}

// refusal describes a failed acquire. If the round asked only one node, this is good enough for Hooks.Refused, but not
// for the error of a call that ends; see failure.
func (r *round) refusal(names []string, nodes []*node) *RoundError {
	r.mu.Lock()
	yielded := r.yielded
	r.mu.Unlock()
	_, t := r.snapshot()
	counted, _ := t.counted()
	switch {
	case yielded:
		return r.error(ErrHeld, names, nodes, "it is a waiter's turn")
	case counted.len() >= t.need && t.denied > 0: // another has some of the nodes: it is contention that took the time
		return r.error(ErrHeld, names, nodes, "granted too late to be of use")
	case counted.len() >= t.need:
		return r.error(ErrNoQuorum, names, nodes, "granted too late to be of use")
	case t.loss() == lossHeld, t.denied > 0 && r.alone():
		return r.error(ErrHeld, names, nodes, "")
	default:
		return r.error(ErrNoQuorum, names, nodes, "")
	}
}

// isWasted reports whether a quorum granted the round that was refused: that came too late to be of use.
func (r *round) isWasted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.verdict() == won && !r.yielded
}

// recent is how old a round may be to explain why a call ended (T1).
const recent = 2 * time.Second

var errCutShort = errors.New("no answer before the wait ended")

// failure is what Acquire returns if err ended it: err, joined with what was in the way (T1). last is the last round
// that asked all nodes and was not cut short. cut is the round that err ended. Both may be nil. ahead: another caller of
// this process was ahead, for most of the time if cut is not nil; last may be its round. denied: some node denied the lock
// during this call.
func (s *spec) failure(err error, last, cut *round, ahead, denied bool) error {
	c := s.client
	now := c.cfg.Clock.Now()
	if cut != nil && cut.askedNodes() == 0 && (last != nil || denied) {
		cut = nil // it was not admitted: what is known is better
	}
	if cut != nil && !cut.alone() {
		if _, t := cut.snapshot(); cut.result() != undecided && t.loss() != lossUnclear {
			last = cut
		}
	}
	switch {
	case errors.Is(err, ErrClosed), cut != nil && cut.result() == won: // nothing was in the way
		return err
	case last != nil && now.Sub(last.t0) > recent:
		last = nil
	case last != nil && (cut != nil || !ahead):
		return join(err, last.refusal(s.res.names, c.nodes))
	}
	if round := s.failureFromNodes(now, last, cut, ahead, denied); round != nil {
		return join(err, round)
	}
	return err
}

// failureFromNodes explains why an acquire ended if no recent round of its own does (T1). It uses what the client knows of
// the nodes: an outage if fewer than a quorum could vote, otherwise what the one ahead was told, or held if a node said
// so. It is nil if nothing is known.
func (s *spec) failureFromNodes(now Instant, last, cut *round, ahead, denied bool) *RoundError {
	c := s.client
	r := c.newRound(plan{call: call{script: c.protocol.acquire}, t0: now})
	r.late = errCutShort
	var asked nodeSet // 0: none, or all
	asOf := now
	if cut != nil {
		asked = cut.askedNodes()
		if asked != 0 && cut.result() == undecided && now.Sub(cut.lastAsked) > c.cfg.NodeTimeout {
			// Its time is over, and nobody has ended it: this process stood still, and answers may be here that nobody has read.
			asOf = cut.lastAsked
		}
	}
	denials, voters := 0, 0
	for i, n := range c.nodes {
		if why := n.absent(asOf); why != nil {
			r.record(i, answer{vote: unknown, err: why})
			continue
		}
		voters++
		if cut == nil {
			continue
		}
		if answers, _ := cut.snapshot(); answers[i].denial != nil {
			r.record(i, answers[i])
			denials++
		} else if asked != 0 && !asked.has(i) { // a waiter asks one node again and again
			r.record(i, answer{vote: unknown, err: errNotAsked})
		}
	}
	switch {
	case voters < c.need:
		return r.error(ErrNoQuorum, s.res.names, c.nodes, "")
	case ahead && last != nil:
		return last.refusal(s.res.names, c.nodes)
	case ahead && denials == 0:
		return &RoundError{Op: r.script.name, Names: slices.Clone(s.res.names), Need: c.need, kind: ErrHeld,
			note: "another caller in this process is ahead"}
	case denials > 0, denied:
		return r.error(ErrHeld, s.res.names, c.nodes, "")
	case cut == nil, asOf.Sub(cut.lastAsked) < c.cfg.NodeTimeout: // the nodes could still have answered in time
		return nil
	default:
		return r.error(ErrNoQuorum, s.res.names, c.nodes, "")
	}
}

// refusedByConfig is the round's error if so many nodes refuse this client's configuration that no quorum is left. Then
// waiting cannot help.
func (c *Client) refusedByConfig(l *spec, r *round) error {
	answers, t := r.snapshot()
	if len(c.nodes)-t.unknown >= c.need {
		return nil
	}
	refusing := 0
	for _, a := range answers {
		if differs := (*ConfigError)(nil); errors.As(a.err, &differs) {
			refusing++
		}
	}
	if len(c.nodes)-refusing >= c.need {
		return nil
	}
	return r.error(ErrNoQuorum, l.res.names, c.nodes, "")
}
