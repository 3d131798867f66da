package redlock

import (
	"context"
	"slices"
)

// An EnrollOption makes [Client.Enroll] more or less careful: [OnlyNew] or [ChangeConfig].
type EnrollOption func(*enrolment)

type enrolment struct{ word string }

// OnlyNew enrolls only servers that look new: they have no keys except those of a quarantine, and none of the nodes
// grants already. All others are refused. A node that already grants to this client is no error and stays as it is. The
// Redis user must be allowed to run DBSIZE and EXISTS.
//
// A server that restarted without its data looks new too. While other nodes are in use, OnlyNew refuses it, and it votes
// after its quarantine. But if all nodes have forgotten, as after a power cut, nothing tells them from new ones. So use
// Enroll once, and never at each start of a program.
func OnlyNew() EnrollOption { return func(e *enrolment) { e.word = wordNew } }

// ChangeConfig replaces the configuration that the nodes hold with this client's, and ends every quarantine. First stop
// all other clients, and wait for the longer MaxTTL of the two configurations. The nodes refuse clients that go on, and
// the leases of such clients may be longer than the new configuration allows for.
func ChangeConfig() EnrollOption { return func(e *enrolment) { e.word = wordChange } }

// Enroll says, as an operator, that no lease is out on these nodes. It ends every quarantine at once, and writes this
// client's configuration to nodes that have none. Use it once for new servers, best with [OnlyNew]. If a lease is out
// all the same, two clients may hold one lock.
//
// A node that already grants stays as it is. A node that grants under another configuration is not enrolled, unless
// [ChangeConfig] is given; [errors.As] finds its [*ConfigError].
//
// The error is a [*RoundError] that is [ErrNoQuorum] if any node was not enrolled. It says which nodes, and why; the
// others are enrolled. Other errors are [ErrClosed] and ctx.Err().
func (c *Client) Enroll(ctx context.Context, options ...EnrollOption) error {
	e := enrolment{word: wordEnroll}
	for _, option := range options {
		option(&e)
	}
	if c.isClosed() {
		return ErrClosed
	}
	if err := c.awaitAll(ctx); err != nil {
		return err
	}
	note := ""
	if e.word == wordNew {
		// A node that does not grant, among others that do, may have taken the place of one that granted leases.
		if c.lookAround(ctx); c.someInUse() {
			e.word, note = wordLook, "other nodes are in use, so those that do not vote may have forgotten leases; OnlyNew leaves them in quarantine"
		}
	}
	enrolled := func(_ *round, node int, a answer, _ verdict, _ bool) {
		if a.vote == granted {
			c.nodes[node].learnReady(a)
		}
	}
	ready := plan{call: c.readyCall(c.protocol.enroll, e.word, 0), t0: c.cfg.Clock.Now(), answered: enrolled}
	r := newRound(ready, len(c.nodes), len(c.nodes), -1)
	if err := c.hearAll(ctx, r, c.stallTimeout()); err != nil {
		return err
	}
	if r.result() == won {
		return nil
	}
	return r.error(ErrNoQuorum, nil, c.nodes, note)
}

// someInUse is whether any node grants, to this client or to clients of another configuration.
func (c *Client) someInUse() bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.up && (n.readiness.ready || n.readiness.differs != nil)
	})
}
