package redlock

import (
	"context"
	"time"
)

// TryAcquire: acquire without waiting. Two rules make its answer true. If several clients try a free lock at the same
// moment, one of them wins (leads). And a lock that is reserved for a waiter is not free (yields).

const (
	// maxBallots is how many rounds a try makes at most that fail only because of the ballot: others may raise it too.
	maxBallots = 8
	// minTries is how many rounds a try makes at least before it gives up a lock that nobody holds. A leader loses a
	// round only to clients that came later, and one of them is then the leader.
	minTries = 8
)

// TryAcquire takes the lock if it is free, and does not wait for whoever has it. The error is a [*RoundError] that is
// [ErrHeld] or [ErrNoQuorum], or else ctx.Err(), [ErrInvalid] or [ErrClosed].
//
// ErrHeld means that another has the lock or is about to get it. If several try a free lock at the same moment, exactly
// one gets it. A lock that was released a moment ago and is reserved for a waiter counts as held, and so does one that
// ctx itself holds, unless it is [Lock.Reentrant]. A lock that is [Lock.Fair] counts as held while somebody waits for it.
//
// It mostly takes one round. To tell a lock that is held from an outage it may wait up to NodeTimeout for nodes that
// are up and slow. If several try at once it makes further rounds, within another NodeTimeout or so. The first use of a
// client waits until its nodes have connected and have said whether they may grant.
func (l Lock) TryAcquire(ctx context.Context) (lease *Lease, err error) {
	if lease, err := l.check(ctx, true); lease != nil || err != nil {
		return lease, err
	}
	s := l.spec
	c := s.client
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.finish()
	traced := c.traceAcquire(ctx, "acquire", s)
	defer func() { traced.acquired(lease, err) }()
	t := try{spec: s, begun: c.cfg.Clock.Now(), how: approach{reservation: "", try: true, all: true,
		slots: s.res.share.anySlots(c.protocol.random)}}
	if s.fair {
		t.how.fair = newPlace(c, s.res) // without a ticket: it enters no queue
	} else if c.waiters.isContended(s.res) {
		// Many may be trying. If all ask one node first, the other nodes are left to the client that it granted, or to
		// the waiter that it reserved the key for.
		t.how.probe = c.probeFor(s.res)
	}
	for {
		t.settled = t.settled || c.hasTried()
		lease, r, err := traced.attempt(ctx, c, s, t.how)
		t.rounds++
		if lease != nil {
			if r.deniedBy() != 0 {
				c.waiters.contend(s.res)
				c.waiters.meet(s.res, r)
			}
			c.acquired(lease, t.begun, t.rounds)
			return lease, nil
		}
		if err != nil {
			return nil, err
		}
		if c.learn(r) && t.rounds < maxBallots {
			continue
		}
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
	spec    *spec
	how     approach
	begun   Instant
	rounds  int
	settled bool           // before the last round, every node had tried to connect, or this try had waited for that
	loaded  bool           // it has asked again because servers had forgotten the script
	stayed  map[int]string // by node, an owner that stays there and does not go on (goesOn)
}

// next is called after a lost round. It returns how the try ends, or nothing if another round is to follow; then it has
// waited until that round's time has come.
func (t *try) next(ctx context.Context, r *round) (*RoundError, error) {
	s := t.spec
	c := s.client
	if slots, ok := t.otherSlots(ctx, r); ok && t.rounds < maxBallots {
		t.how.slots = slots
		return nil, nil
	}
	if r.alone() && !s.res.isShared() {
		return t.refusedAlone(ctx, r)
	}
	if r.alone() { // what keeps a mutex out may let this in: have them all vote
		c.waiters.contend(s.res)
		t.how.probe = nil
		return nil, nil
	}
	t.how.probe = nil
	if r.onlyStale() && t.rounds < maxBallots {
		return nil, nil // only the ballot was too low: try again at once, above it
	}
	refusal := r.refusal(s.res.names, c.nodes)
	if refusal.kind != ErrHeld {
		if !t.loaded && r.scriptForgotten() {
			t.loaded = true
			return nil, nil // the script is loaded again, ahead of the next round
		}
		if t.settled || refusal.Granted >= c.need {
			return refusal, nil
		}
		t.settled = true // some node was connecting for the first time: it may complete the quorum
		return nil, c.awaitAll(ctx)
	}
	c.waiters.contend(s.res)
	if r.hasYielded() || c.isBehind(r) {
		return refusal, nil
	}
	leads, err := t.leads(ctx, r)
	leads = leads && !c.protocol.omits(triesDecided)
	switch {
	case err != nil:
		return nil, err
	case !leads || c.triedEnough(t.rounds, t.begun):
		return r.refusal(s.res.names, c.nodes), nil
	}
	// The others release their nodes meanwhile. That takes a round trip. If newcomers keep disturbing, pause longer.
	c.giveWay(ctx, t.rounds, c.cfg.NodeTimeout/minTries)
	return nil, nil
}

// triedEnough reports whether somebody who began then has used up both the rounds and the time of a try.
func (c *Client) triedEnough(rounds int, begun Instant) bool {
	return rounds >= minTries && c.cfg.Clock.Now().Sub(begun) >= c.cfg.NodeTimeout
}

// giveWay pauses by chance after so many lost rounds, so that one of those who disturb each other goes first.
func (c *Client) giveWay(ctx context.Context, rounds int, longest time.Duration) {
	c.pause(ctx, c.protocol.random(min(c.roundTrip()<<min(rounds-1, 10), longest)+1))
}

// refusedAlone is called after the node that was asked first denied, and the others were not asked. Its denial does
// not tell a held lock from an outage (T1), or from one that was just released. So all nodes are asked with
// inspect.lua, which takes nothing: the lock is held if a quorum answers and too many nodes have an owner. Otherwise
// the try asks all nodes with an acquire, once.
func (t *try) refusedAlone(ctx context.Context, r *round) (*RoundError, error) {
	s := t.spec
	c := s.client
	answers, _ := r.snapshot()
	for _, a := range answers {
		if a.denial != nil && a.denial.reason == stale && t.rounds < maxBallots {
			return nil, nil // only the ballot was too low: try again at once, above it
		}
	}
	c.waiters.contend(s.res)
	look := t.look()
	if err := c.awaitVotes(ctx, look, look.t0.Add(c.cfg.NodeTimeout), func(t *tally) bool { return t.verdict() != undecided }); err != nil {
		return nil, err
	}
	seen, votes := look.snapshot()
	taken, reserved := 0, false
	for i, a := range seen {
		switch {
		case a.err != nil:
			r.record(i, answer{vote: unknown, err: a.err})
		case a.found != nil && a.found.taken:
			owner := a.found.denial
			taken++
			reserved = reserved || owner.isForWaiter()
			r.record(i, answer{vote: denied, micros: a.micros, clock: a.clock, denial: &owner})
		}
	}
	// Without a quorum of answers, what is known of the nodes may be old: let them vote themselves. And the lock may be
	// free: a release returns when a quorum has answered, and may still be on its way to the node that was asked first.
	mayBeFree := !reserved && len(c.nodes)-taken >= c.need
	if votes.verdict() != won || mayBeFree {
		t.how.probe = nil
		return nil, nil
	}
	return r.error(ErrHeld, s.res.names, c.nodes, ""), nil
}

// look asks with inspect.lua the nodes that may vote.
func (t *try) look() *round {
	c := t.spec.client
	look := c.newRound(plan{call: c.protocol.inspectCall(t.spec.res)})
	to := c.allNodes()
	for _, n := range c.nodes {
		if why := n.absent(look.t0); why != nil { // it could answer inspect.lua, but not vote
			look.record(n.index, answer{vote: unknown, err: why})
			to &^= 1 << n.index
		}
	}
	c.send(look, to, 0)
	return look
}

// leads reports whether this try goes on after a split vote: it lost the round, but nobody else has a quorum (T2).
//
// The rule: all clients rank the nodes of a lock in the same order. The leader is the owner of the first node, in that
// order, that has an owner. The leader goes on. All others end.
//
// Why at least one client goes on: a client that owns a node ends only if a node ranked before it has another owner.
// That owner goes on by the same rule, unless there is again an owner before it, and so on. The owner of the foremost
// node has nobody before it. So one is always left, until somebody has a quorum. Where clients got different answers,
// more than one may go on. Then the next round decides between them.
//
// An owner that does not go on is left out (goesOn): a holder that died, or another program, has that node for longer than
// a try. To leave out an owner that does go on does no harm but a further round, because then one more goes on.
//
// A node that is silent for NodeTimeout shows no owner to anybody, and is left out. If it is silent to its owner alone,
// it can happen that nobody goes on.
func (t *try) leads(ctx context.Context, r *round) (bool, error) {
	c := t.spec.client
	for _, node := range c.ranking(t.spec.res) {
		answers, votes := r.snapshot()
		if holderOf(answers, &votes) != "" {
			return false, nil // another owner has a quorum: that is the winner
		}
		if votes.votes[node] == pending && r.askedNodes().has(node) {
			if err := c.awaitVotes(ctx, r, r.lastAsked.Add(c.cfg.NodeTimeout), func(t *tally) bool { return t.votes[node] != pending }); err != nil {
				return false, err
			}
			answers, votes = r.snapshot()
			if holderOf(answers, &votes) != "" {
				return false, nil
			}
		}
		switch a := answers[node]; {
		case a.vote == granted, a.vote == pending && r.isUnvouched(node): // the key there is ours
			return true, nil
		case a.denial != nil && (a.denial.reason == held || a.denial.reason == slotTaken):
			if goesOn, err := t.goesOn(ctx, node, a.denial); goesOn || err != nil {
				return false, err
			}
		}
	}
	return true, nil // no node showed an owner that goes on
}

// goesOn reports whether to give way to the owner by which this node denied. Who goes on, or ends, releases its nodes and has
// a new token in the next round. So an owner that is still there about a round trip later, and has no quorum, does neither.
// Of several who share the lock, the denial has no token; then it is not known. A reservation is for somebody who is coming.
func (t *try) goesOn(ctx context.Context, node int, d *denial) (bool, error) {
	if !d.hasOneOwner() {
		return true, nil
	}
	if owner, known := t.stayed[node]; known && owner == d.owner {
		return false, nil
	}
	c := t.spec.client
	c.pause(ctx, c.roundTrip())
	look := t.look()
	until := look.t0.Add(c.cfg.NodeTimeout)
	if err := c.awaitVotes(ctx, look, until, func(t *tally) bool { return t.votes[node] != pending }); err != nil {
		return false, err
	}
	isThere := func(a answer) bool { return a.found != nil && a.found.taken && shown(a.found.owner) == d.owner }
	if seen, _ := look.snapshot(); !isThere(seen[node]) {
		return true, nil
	}
	if err := c.awaitVotes(ctx, look, until, func(t *tally) bool { return t.open() == 0 }); err != nil {
		return false, err
	}
	seen, _ := look.snapshot()
	at := 0
	for _, a := range seen {
		if isThere(a) {
			at++
		}
	}
	if at >= c.need {
		return true, nil // it has won, or nobody can
	}
	if t.stayed == nil {
		t.stayed = map[int]string{}
	}
	t.stayed[node] = d.owner
	return false, nil
}

// shown is what a refusal says of this owner (common.lua).
func shown(owner string) string { return owner[:min(len(owner), 2048)] }

// holderOf is the owner that has a quorum of nodes whose clocks agree, or "". An owner that needs a node with a clock out
// of step has not won (C1): if others ended because of it, nobody would go on.
func holderOf(answers []answer, votes *tally) string {
	for _, a := range answers {
		if a.denial == nil || a.denial.reason != held {
			continue
		}
		var nodes nodeSet
		for i, b := range answers {
			if b.denial != nil && b.denial.reason == held && b.denial.owner == a.denial.owner {
				nodes.add(i)
			}
		}
		if nodes, _ = votes.agreeing(nodes); nodes.len() >= votes.need {
			return a.denial.owner
		}
	}
	return ""
}
