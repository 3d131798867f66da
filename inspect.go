package redlock

import (
	"context"
	"slices"
	"strings"
	"time"
)

// A State is who holds a name, as a quorum of the nodes tells it, and each of them.
type State struct {
	Name string
	// Held says that a quorum of the nodes has the name for one owner. Where fewer do, somebody is taking it or
	// letting go, or failed to.
	Held bool
	// Token is the owner's: see [Lease.Token]. Other libraries write what they like.
	Token string
	// Remaining is how long a quorum will go on to have it, if the owner does nothing; negative: for ever.
	Remaining time.Duration
	// Fence is the largest that was granted in the name's fence slot. No lease of the name has a larger one; that
	// of another name in the same slot of 4096 may be it.
	Fence uint64
	// Nodes is in the order of Config.Nodes.
	Nodes []NodeState
}

// A NodeState is what one node knows of a name. What the node keeps for a client that waits is held by nobody.
type NodeState struct {
	Node      string
	Err       error // why it did not answer; then it tells no more
	Held      bool
	Token     string
	Remaining time.Duration // negative: for ever
	Fence     uint64
}

// Inspect asks all nodes who has the name, and waits for their answers no longer than NodeTimeout. It takes
// nothing and is no promise: a moment later it may be another.
//
// With [ErrNoQuorum], a [*RoundError], comes what the fewer nodes said. Other errors are [ErrInvalid],
// [ErrClosed] and ctx.Err().
func (c *Client) Inspect(ctx context.Context, name string) (*State, error) {
	s := c.Mutex(name).spec
	switch {
	case s.err != nil:
		return nil, s.err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case c.isClosed():
		return nil, ErrClosed
	}
	if err := c.awaitAll(ctx); err != nil {
		return nil, err
	}
	r := c.newRound(c.protocol.inspect, s.res.keys, s.res.slots, c.cfg.Clock.Now())
	if err := c.hearAll(ctx, r, c.cfg.NodeTimeout); err != nil {
		return nil, err
	}
	answers, t := r.snapshot()
	state := stateOf(name, answers, c.need)
	for i, n := range c.nodes {
		state.Nodes[i].Node = n.endpoint.name
	}
	if t.granted < c.need {
		return state, r.error(ErrNoQuorum, s.res.names, c.nodes, "")
	}
	return state, nil
}

// ForceRelease deletes the name's key on every node, whoever holds it, for an operator who knows that its owner
// is gone for good. An owner that lives does not know: it may believe until its next renewal, and somebody else
// may have the lock by then. Only a resource that compares fences is safe from both: fences go on growing.
//
// Who is seen to hold it is let go, and nobody who comes later. The error is nil if nobody does, and [ErrNoQuorum]
// if too few nodes answered, which then may hold it yet. Other errors are [ErrInvalid], also where the key holds
// something that no lock is, [ErrClosed] and ctx.Err().
func (c *Client) ForceRelease(ctx context.Context, name string) error {
	state, err := c.Inspect(ctx, name)
	if err != nil {
		return err
	}
	var owners []string
	for _, n := range state.Nodes {
		switch {
		case !n.Held || slices.Contains(owners, n.Token):
		case n.Token == "":
			return invalid("name", "on %s the key of %q holds something that is no lock; delete it by hand, or use another name", n.Node, name)
		default:
			owners = append(owners, n.Token)
		}
	}
	s := c.Mutex(name).spec
	for _, owner := range owners {
		r := c.newRound(c.protocol.release, s.res.keys, []any{owner, millis(keepTime)}, c.cfg.Clock.Now())
		if err := c.hearAll(ctx, r, c.cfg.NodeTimeout); err != nil {
			return err
		}
		if _, t := r.snapshot(); !t.answered() {
			return r.error(ErrNoQuorum, s.res.names, c.nodes, "")
		}
	}
	return nil
}

// A finding is what inspect.lua found on a node: who would be in the way, if anybody is.
type finding struct {
	denial
	taken bool
}

// stateOf reads the nodes' answers.
func stateOf(name string, answers []answer, need int) *State {
	s := &State{Name: name, Nodes: make([]NodeState, len(answers))}
	left := map[string][]time.Duration{}
	for i, a := range answers {
		n := &s.Nodes[i]
		f := a.found
		if f == nil {
			if n.Err = a.err; n.Err == nil {
				n.Err = errSilent
			}
			continue
		}
		n.Fence = f.highest
		s.Fence = max(s.Fence, f.highest)
		if !f.taken || strings.HasPrefix(f.owner, keptPrefix) {
			continue
		}
		n.Held, n.Token, n.Remaining = true, f.owner, f.left
		left[f.owner] = append(left[f.owner], f.left)
	}
	for owner, left := range left {
		if len(left) < need {
			continue
		}
		slices.SortFunc(left, longest)
		s.Held, s.Token, s.Remaining = true, owner, left[need-1]
	}
	return s
}

// longest sorts the longest first; what never expires is negative.
func longest(a, b time.Duration) int {
	switch {
	case a == b:
		return 0
	case b >= 0 && (a < 0 || a > b):
		return -1
	default:
		return 1
	}
}

// hearAll sends the round to every node, and waits until each has answered, no longer than the timeout: the first
// that is away does not end the wait for the others. It returns an error when ctx or the client has ended.
func (c *Client) hearAll(ctx context.Context, r *round, timeout time.Duration) error {
	heard := make(chan struct{}, len(c.nodes))
	then := r.answered
	r.answered = func(r *round, node int, a answer, v verdict, decides bool) {
		if then != nil {
			then(r, node, a, v, decides)
		}
		heard <- struct{}{}
	}
	for _, n := range c.nodes {
		n.send(r, false)
	}
	timer := c.timers.start(timeout)
	defer c.timers.stop(timer)
	for range c.nodes {
		select {
		case <-heard:
		case <-timer.C:
			r.expire(errSilent)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ending:
			return ErrClosed
		}
	}
	return nil
}
