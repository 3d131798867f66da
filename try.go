package redlock

import (
	"context"
	"time"
)

// TryAcquire: asking without waiting for anybody's turn. Two rules make its answer true. Of several who try a free
// lock at the same moment, one wins (leads). And a lock that was released to a waiter is not free (yields).

const (
	// maxBallots is how often a try raises a ballot that some node refused: others may raise it too.
	maxBallots = 8
	// minTries is how many rounds a try makes before it leaves a lock that nobody has. A leader loses a round only
	// to others who came after it, so that one of them was then the leader.
	minTries = 8
)

// TryAcquire takes the lock if it is free, and does not wait for whoever has it. The error is a [*RoundError] that is
// [ErrHeld] or [ErrNoQuorum], or else ctx.Err(), [ErrInvalid] or [ErrClosed].
//
// ErrHeld means that another has the lock or is about to get it. If several try a free lock at the same moment, exactly
// one gets it. A lock that was released a moment ago and is reserved for a waiter counts as held, and so does one that
// ctx itself holds, unless it is [Lock.Reentrant].
//
// It mostly takes one round. To tell a lock that is held from an outage it may wait up to NodeTimeout for nodes that are
// up and slow. If several try at once it makes further rounds, within another NodeTimeout or so. The first use of a client
// waits for its nodes to connect.
func (l Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	if lease, err := l.check(ctx, true); lease != nil || err != nil {
		return lease, err
	}
	s := l.spec
	c := s.client
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.finish()
	t := try{spec: s, begun: c.cfg.Clock.Now(), how: approach{reservation: "", try: true}}
	if c.waiters.isContended(s.res) {
		// Many may be trying. Asking one node first leaves the others to whoever it granted, and to the waiter for
		// whom it is reserved.
		t.how.probe = c.probeFor(s.res)
	}
	for {
		lease, r, err := c.attempt(ctx, s, t.how)
		t.rounds++
		if lease != nil {
			if r.deniedBy() != 0 {
				c.waiters.contend(s.res)
			}
			c.acquired(lease, t.begun, t.rounds)
			return lease, nil
		}
		if err != nil {
			return nil, err
		}
		c.learn(r)
		refusal, err := t.next(ctx, r)
		switch {
		case err != nil:
			return nil, err
		case refusal != nil:
			if hook := c.cfg.Hooks.Refused; hook != nil {
				hook(s.res.names, refusal)
			}
			return nil, refusal
		}
	}
}

// A try is one TryAcquire, from round to round.
type try struct {
	spec   *spec
	how    approach
	begun  Instant
	rounds int
	waited bool // for all nodes to have tried to connect

	askedAlone int // rounds in which the node that was asked first said no, and the others seemed to be away
}

// next says how a try ends after a lost round, or returns nothing when it is time for the next one.
func (t *try) next(ctx context.Context, r *round) (*RoundError, error) {
	s := t.spec
	c := s.client
	if r.alone() {
		return t.refusedAlone(ctx, r)
	}
	t.how.probe = nil
	if r.onlyStale() && t.rounds < maxBallots {
		return nil, nil // nothing but a ballot was in the way: again above it
	}
	refusal := r.refusal(s.res.names, c.nodes)
	if refusal.kind != ErrHeld {
		if t.waited || c.hasTried() || refusal.Granted >= c.need {
			return refusal, nil
		}
		t.waited = true // some node has not had its first chance: it may make the quorum
		return nil, c.awaitAll(ctx)
	}
	c.waiters.contend(s.res)
	if r.hasYielded() {
		return refusal, nil
	}
	leads, err := t.leads(ctx, r)
	leads = leads && !c.protocol.omits(triesDecided)
	switch {
	case err != nil:
		return nil, err
	case !leads || t.isOver():
		return r.refusal(s.res.names, c.nodes), nil
	}
	// The others let go meanwhile: a round trip, and more if newcomers go on to disturb it.
	c.pause(ctx, c.protocol.random(min(c.roundTrip()<<min(t.rounds-1, 10), c.cfg.NodeTimeout/minTries)+1))
	return nil, nil
}

// isOver reports whether the try has had its rounds and its time.
func (t *try) isOver() bool {
	c := t.spec.client
	return t.rounds >= minTries && c.cfg.Clock.Now().Sub(t.begun) >= c.cfg.NodeTimeout
}

// refusedAlone goes on after the node that was asked first said no. That it has an owner does not tell whether a
// quorum of nodes answers, so the others are asked to tell, which takes nothing from anybody.
func (t *try) refusedAlone(ctx context.Context, r *round) (*RoundError, error) {
	s := t.spec
	c := s.client
	answers, _ := r.snapshot()
	for _, a := range answers {
		if a.denial != nil && a.denial.reason == stale && t.rounds < maxBallots {
			return nil, nil
		}
	}
	c.waiters.contend(s.res)
	look := c.newRound(plan{call: c.protocol.inspectCall(s.res)})
	for _, n := range c.nodes {
		if why := n.absent(look.t0); why != nil { // it could tell, and not vote
			look.record(n.index, answer{vote: unknown, err: why})
			continue
		}
		n.send(look, false)
	}
	if err := c.awaitVotes(ctx, look, look.t0.Add(c.cfg.NodeTimeout), func(t *tally) bool { return t.verdict() != undecided }); err != nil {
		return nil, err
	}
	seen, votes := look.snapshot()
	for i, a := range seen {
		switch {
		case a.err != nil:
			r.record(i, answer{vote: unknown, err: a.err})
		case a.found != nil && a.found.taken:
			owner := a.found.denial
			r.record(i, answer{vote: denied, denial: &owner})
		}
	}
	kind := ErrHeld
	if votes.verdict() != won {
		if t.askedAlone++; t.askedAlone == 1 { // what is known of the nodes may be old: let them say it themselves
			t.how.probe = nil
			return nil, nil
		}
		kind = ErrNoQuorum
	}
	return r.error(kind, s.res.names, c.nodes, ""), nil
}

// leads reports whether this try goes on after a round that it lost to a split vote, and nobody has the lock.
//
// All clients rank the nodes of a name alike. In each client's answers the owner of the first node that has one
// is the leader. It goes on, and all others end, because they see somebody who does: whoever owns a node goes on
// unless a node before it has another owner, who in turn goes on by the same rule; the owner of the foremost one
// sees nobody before it. So there is always one left, until somebody has a quorum. It may be more than one, where
// answers differ, and then the next round decides between them.
//
// A node that is silent for NodeTimeout has no owner that anybody sees, and is left out. If it is silent to its owner
// alone, nobody may go on.
func (t *try) leads(ctx context.Context, r *round) (bool, error) {
	c := t.spec.client
	for _, node := range c.ranking(t.spec.res) {
		answers, votes := r.snapshot()
		if holderOf(answers, votes.need) != "" {
			return false, nil // one other has a quorum
		}
		if votes.votes[node] == pending {
			if err := c.awaitVotes(ctx, r, r.t0.Add(c.cfg.NodeTimeout), func(t *tally) bool { return t.votes[node] != pending }); err != nil {
				return false, err
			}
			answers, votes = r.snapshot()
			if holderOf(answers, votes.need) != "" {
				return false, nil
			}
		}
		switch a := answers[node]; {
		case a.vote == granted:
			return true, nil
		case a.denial != nil && a.denial.reason == held:
			return false, nil
		}
	}
	return true, nil // nobody owns a node: ballots were in the way
}

// holderOf is who has a quorum of the nodes, or "".
func holderOf(answers []answer, need int) string {
	for _, a := range answers {
		if a.denial == nil || a.denial.reason != held {
			continue
		}
		nodes := 0
		for _, b := range answers {
			if b.denial != nil && b.denial.reason == held && b.denial.owner == a.denial.owner {
				nodes++
			}
		}
		if nodes >= need {
			return a.denial.owner
		}
	}
	return ""
}

// yields reports whether the winner of this round must leave the lock to a waiter: the name's first node has
// reserved it. A reservation is on one node alone, so that a quorum can be had without that node, and is still the
// waiter's turn. One who tries waits for that node's word. One who is about to wait takes it if it is there: it
// would otherwise be slower where nobody waits. Whoever was refused before waits for its own turn.
func (c *Client) yields(ctx context.Context, res *resource, r *round, how approach) bool {
	if how.reservation != "" || !how.try && r.deniedBy() == 0 {
		return false
	}
	first := c.probeFor(res)
	if first == nil {
		return false
	}
	if how.try {
		hasVoted := func(t *tally) bool { return t.votes[first.index] != pending }
		if c.awaitVotes(ctx, r, c.cfg.Clock.Now().Add(c.patience(first)), hasVoted) != nil {
			return false // ctx ended, which ends the attempt
		}
	}
	return r.yield(first.index, c.waiters.me)
}

// yield gives the round up if the node has reserved the key for another than me.
func (r *round) yield(node int, me string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.answers[node].denial
	r.yielded = d != nil && d.isReservation() && d.owner != me
	return r.yielded
}

func (r *round) hasYielded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.yielded
}

// patience is how long the node's answer is worth waiting for: several times what it usually takes.
func (c *Client) patience(n *node) time.Duration {
	usual := 2 * time.Millisecond
	if n.clock.Load() != nil {
		usual += 4 * time.Duration(n.trip.Load())
	}
	return min(usual, c.cfg.NodeTimeout)
}

// hasTried reports whether every node has connected, or failed to, once.
func (c *Client) hasTried() bool {
	select {
	case <-c.tried:
		return true
	default:
		return false
	}
}
