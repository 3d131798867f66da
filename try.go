package redlock

import (
	"context"
	"time"
)

// TryAcquire: acquire without waiting. Two rules make its answer true. If several clients try a free lock at the same
// moment, one of them wins (leads). And a lock that is reserved for a waiter is not free (yields).

const (
	// maxBallots is how many rounds a try makes at most that fail only because of the ballot, or because others were faster
	// for these permits and some are left. Of 40 readers that tried at once, the last one needed about ten, and of 60 far
	// away about thirty. With eight, some were told that the lock is held.
	maxBallots = 32
	// minTries is how many rounds a try makes at least before it gives up a lock that nobody holds. A leader loses a
	// round only to clients that came later, and one of them is then the leader.
	minTries = 8
)

// TryAcquire takes the lock if it is free, and does not wait for whoever has it. The error is a [*RoundError] that is
// [ErrHeld] or [ErrNoQuorum], or else ctx.Err(), [ErrInvalid] or [ErrClosed].
//
// ErrHeld means that another has the lock or is about to get it. If several try a free lock at the same moment, exactly
// one gets it. A lock that was released a moment ago and is reserved for a waiter counts as held, and so does one that
// ctx itself holds, unless it is [Lock.Reentrant]. But a reader, or a permit, that ctx holds is not in the way of another
// one. A lock that is [Lock.Fair] counts as held while somebody waits for it.
//
// It mostly takes one round. To tell a lock that is held from an outage it may wait up to NodeTimeout for nodes that
// are up and slow. If several try at once it makes further rounds, within another NodeTimeout or so; where they do not
// exclude each other, at most 32 rounds, with short pauses. Where a process tries more locks at once than its nodes can
// answer in time, some calls wait until others have their answers. The first use of a client waits until its nodes have connected
// and have said whether they may grant.
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
	settled bool     // before the last round, every node had tried to connect, or this try had waited for that
	loaded  nodeSet  // it has asked again because these had forgotten the script
	seen    []answer // what the nodes said last, in a lost round or a look (goesOn)
}

// next is called after a lost round. It returns how the try ends, or nothing if another round is to follow; then it has
// waited until that round's time has come.
func (t *try) next(ctx context.Context, r *round) (*RoundError, error) {
	s := t.spec
	c := s.client
	t.how.lead = c.leadAfter(t.how.lead, r)
	if slots, ok := t.otherSlots(ctx, r); ok && t.rounds < maxBallots {
		t.how.slots = slots
		t.spreadOut(ctx)
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
	most := 0
	if s.res.share.isSemaphore() { // who lost a round has permits for a moment, perhaps the last one of a node
		most = len(c.nodes) - c.need
	}
	if r.staleBut(most) && t.rounds < maxBallots {
		t.spreadOut(ctx)
		return nil, nil // only the ballot was too low: try again, above it
	}
	refusal := r.refusal(s.res.names, c.nodes)
	if refusal.kind != ErrHeld {
		if forgetful := r.forgetful(); forgetful&^t.loaded != 0 {
			t.loaded |= forgetful
			return nil, nil // the script is loaded again, ahead of the next round
		}
		if t.settled || refusal.Granted >= c.need {
			return refusal, nil
		}
		t.settled = true // some node was connecting for the first time: it may complete the quorum
		return nil, c.awaitAll(ctx)
	}
	c.waiters.contend(s.res)
	if r.hasYielded() || r.isReserved() || c.isBehind(r) || c.triedEnough(t.rounds, t.begun) || c.protocol.omits(triesDecided) {
		return refusal, nil
	}
	if goesOn, err := t.goesOn(ctx, r); goesOn || err != nil {
		return nil, err
	}
	return r.refusal(s.res.names, c.nodes), nil
}

// triedEnough reports whether somebody who began then has used up both the rounds and the time of a try.
func (c *Client) triedEnough(rounds int, begun Instant) bool {
	return rounds >= minTries && c.cfg.Clock.Now().Sub(begun) >= c.cfg.NodeTimeout
}

// spreadOut is called after a round that failed although nothing excluded the lock. The first time, the next round follows
// at once. Then random pauses of up to two round trips separate those that began together: they would outbid each other, or
// want the same permits, in every round.
func (t *try) spreadOut(ctx context.Context) {
	if c := t.spec.client; t.rounds > 1 {
		c.giveWay(ctx, t.rounds, max(2*c.roundTrip(), c.cfg.NodeTimeout/minTries))
	}
}

// giveWay pauses by chance after so many lost rounds, so that one of those who disturb each other goes first.
func (c *Client) giveWay(ctx context.Context, rounds int, longest time.Duration) {
	c.pause(ctx, c.protocol.random(c.longestPause(rounds, longest)+1))
}

// longestPause is the longest that giveWay pauses: longer in later rounds, because newcomers may keep disturbing.
func (c *Client) longestPause(rounds int, longest time.Duration) time.Duration {
	return min(c.roundTrip()<<min(rounds-1, 10), longest)
}

// refusedAlone is called after the node that was asked first denied, and the others were not asked. Its denial does
// not tell a held lock from an outage (T1), or from one that was just released. So the try looks at all nodes: the lock is
// held if a quorum answers and too many nodes have an owner. Otherwise the try asks all nodes with an acquire, once.
func (t *try) refusedAlone(ctx context.Context, r *round) (*RoundError, error) {
	s := t.spec
	c := s.client
	answers, _ := r.snapshot()
	for _, a := range answers {
		if a.denial != nil && a.denial.reason == stale && t.rounds < maxBallots {
			t.spreadOut(ctx)
			return nil, nil // as in next
		}
	}
	c.waiters.contend(s.res)
	seen, votes, err := t.look(ctx, func(t *tally) bool { return t.loss() != lossUnclear })
	if err != nil {
		return nil, err
	}
	taken, reserved := 0, false
	for i, a := range seen {
		if a.isOwned() {
			taken++
			reserved = reserved || a.isReserved()
		}
		if a.isOwned() || a.err != nil {
			r.record(i, a)
		}
	}
	// Without a quorum of answers, what is known of the nodes may be old: let them vote themselves. And the lock may be
	// free: a release returns when a quorum has answered, and may still be on its way to the node that was asked first.
	mayBeFree := !reserved && len(c.nodes)-taken >= c.need
	if !votes.answered() || mayBeFree {
		t.how.probe = nil
		return nil, nil
	}
	return r.error(ErrHeld, s.res.names, c.nodes, ""), nil
}

// look asks the nodes that may vote who is in the way, with an acquire that takes nothing. It waits until the answers
// decide something, no longer than NodeTimeout.
func (t *try) look(ctx context.Context, decided func(*tally) bool) ([]answer, tally, error) {
	s := t.spec
	c := s.client
	var token any = s.res.share.entry(newToken(""), t.how.slots)
	r := c.newRound(plan{call: t.how.acquireCall(c.protocol, s, token, onlyLook), full: true})
	to := c.allNodes()
	for _, n := range c.nodes {
		if why := n.absent(r.t0); why != nil { // it could answer, but not vote
			r.record(n.index, answer{vote: unknown, err: why})
			to &^= 1 << n.index
		}
	}
	c.send(r, to, 0)
	err := c.awaitVotes(ctx, r, r.t0.Add(c.cfg.NodeTimeout), decided)
	answers, votes := r.snapshot()
	return answers, votes, err
}

// goesOn reports whether this try makes another round after a split vote: it lost the round, but nobody else has a quorum
// (T2). Then it has waited until that round's time has come.
//
// The leader goes on at once. The others look twice, and end if somebody has come in between, or if one owner may have a
// quorum: it does if the nodes that are silent are its own.
//
// Why at least one goes on: What came between the two looks of a try, and is still there at the second one, has not been
// released. If its owner does not win, its own second look is later: that is not sent before all nodes have answered its
// first one, and its releases before that. So the last of them to look for the second time sees nobody that came. What
// stays came before the first look. If its owner may have a quorum, nobody else can get one.
func (t *try) goesOn(ctx context.Context, r *round) (bool, error) {
	c := t.spec.client
	leads, err := t.leads(ctx, r)
	if err != nil {
		return false, err
	}
	answers, votes := r.snapshot()
	if holderOf(answers, &votes) != "" {
		return false, nil // that is the winner
	}
	// Who leads need not look, unless an owner that may have a quorum is still there: that did not go on.
	owner, may := mayHaveQuorum(answers, c.need)
	before, did := mayHaveQuorum(t.seen, c.need)
	t.seen = answers
	if leads && !(may && did && owner == before) {
		// The others release their nodes meanwhile. That takes a round trip.
		c.giveWay(ctx, t.rounds, c.cfg.NodeTimeout/minTries)
		return true, nil
	}
	haveVoted := func(nodes nodeSet) func(*tally) bool {
		return func(t *tally) bool { return t.votedBy(pending)&nodes == 0 }
	}
	first, votes, err := t.look(ctx, haveVoted(c.allNodes()))
	if err != nil {
		return false, err
	}
	c.pause(ctx, c.longestPause(t.rounds, c.cfg.NodeTimeout/minTries)) // the leader is there by then
	t.seen, _, err = t.look(ctx, haveVoted(c.allNodes()&^votes.votedBy(pending)))
	if err != nil {
		return false, err
	}
	for i, a := range t.seen {
		if came := a.isOwned() && first[i].isFree(); came || a.isReserved() || first[i].isReserved() {
			return false, nil
		}
	}
	_, may = mayHaveQuorum(t.seen, c.need)
	return !may, nil
}

// leads reports whether this try goes first among those that lost the round. All clients rank the nodes in the same order.
// The leader is the owner of the first node that has an owner. One that is still there since the round before, or since the
// last look, does not go on, because each round has a token of its own: it is left out. If the votes that were cast are no
// quorum for another, it waits for those of the nodes ranked before its own, no longer than NodeTimeout.
func (t *try) leads(ctx context.Context, r *round) (bool, error) {
	c := t.spec.client
	for _, node := range c.ranking() {
		answers, votes := r.snapshot()
		if votes.votes[node] == pending && r.askedNodes().has(node) && holderOf(answers, &votes) == "" {
			hasVoted := func(t *tally) bool { return t.votes[node] != pending }
			if err := c.awaitVotes(ctx, r, r.lastAsked.Add(c.cfg.NodeTimeout), hasVoted); err != nil {
				return false, err
			}
			answers, _ = r.snapshot()
		}
		switch a := answers[node]; {
		case a.vote == granted, a.vote == pending && r.isUnvouched(node): // the key there is ours
			return true, nil
		case a.isOwned() && !(t.seen != nil && t.seen[node].isOwned() && t.seen[node].denial.owner == a.denial.owner):
			return false, nil
		}
	}
	return true, nil // no node showed an owner that goes on
}

// isOwned reports whether the node refused because another owner has a key.
func (a *answer) isOwned() bool {
	return a.denial != nil && (a.denial.reason == held || a.denial.reason == slotTaken)
}

// isReserved reports whether the node refused because the key is reserved for a waiter.
func (a *answer) isReserved() bool { return a.denial != nil && a.denial.isForWaiter() }

// isFree reports whether the node would have granted, if it had been asked for more than a look.
func (a *answer) isFree() bool { return a.denial != nil && a.denial.reason == stale }

// mayHaveQuorum finds an owner that has a quorum if the nodes that have not answered are its own. Then nobody else can get
// one. Clocks do not matter here.
func mayHaveQuorum(answers []answer, need int) (owner string, may bool) {
	for _, a := range answers {
		if !a.isOwned() {
			continue
		}
		nodes := 0
		for _, b := range answers {
			if b.vote == pending || b.vote == unknown || b.isOwned() && b.denial.owner == a.denial.owner {
				nodes++
			}
		}
		if nodes >= need {
			return a.denial.owner, true
		}
	}
	return "", false
}

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
		// Readers, and holders of permits, have one name together. On a quorum they may be several, none of which has one.
		if isOfSeveral(a.denial.owner) && votes.denied < len(answers) {
			continue
		}
		if nodes, _ = votes.agreeing(nodes); nodes.len() >= votes.need {
			return a.denial.owner
		}
	}
	return ""
}
