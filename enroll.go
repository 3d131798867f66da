package redlock

import (
	"context"
	"slices"
)

// An EnrollOption makes [Client.Enroll] more or less careful: [OnlyNew] or [ChangeConfig].
type EnrollOption func(*enrolment)

type enrolment struct {
	word string
	err  error // the options contradict each other
}

func (e *enrolment) say(word string) {
	if e.word != wordEnroll && e.word != word {
		e.err = invalid("options", "OnlyNew and ChangeConfig exclude each other: a server that was never used has no configuration to change")
	}
	e.word = word
}

// OnlyNew enrolls only servers that look new: they have no keys except those of a quarantine. All others are refused,
// whatever keys they have. A node that already grants to this client is no error and stays as it is. The Redis user must
// be allowed to run DBSIZE and EXISTS.
//
// A server that restarted without its data looks new too. So all nodes are asked first. If any of them is in use or has
// been used, or does not answer, none is enrolled, and those that look new vote after their quarantine. But if all nodes
// have forgotten, as after a power cut, nothing tells them from new ones; nor does it if another program enrolls and uses
// them while this call asks, and one forgets just then. So use Enroll once, by one program, and never at each start of it.
func OnlyNew() EnrollOption { return func(e *enrolment) { e.say(wordNew) } }

// ChangeConfig replaces the configuration that the nodes hold with this client's, and ends every quarantine. First stop
// all other clients, and wait for the longer MaxTTL of the two configurations. The nodes refuse clients that go on, and
// the leases of such clients may be longer than the new configuration allows for.
func ChangeConfig() EnrollOption { return func(e *enrolment) { e.say(wordChange) } }

// Enroll says, as an operator, that no lease is out on these nodes. It ends every quarantine at once, and writes this
// client's configuration to nodes that have none. Use it once for new servers, best with [OnlyNew]. If a lease is out
// all the same, two clients may hold one lock.
//
// A node that already grants stays as it is. A node that grants under another configuration is not enrolled, unless
// [ChangeConfig] is given; [errors.As] finds its [*ConfigError].
//
// A node that cannot be reached at first is tried again for a second or so: until then, a server that was just started
// may listen. A node that hears the word later than 4 NodeTimeouts, or a second, is not enrolled.
//
// The error is a [*RoundError] that is [ErrNoQuorum] if any node was not enrolled. It says which nodes, and why; the
// others are enrolled. Other errors are [ErrInvalid] for both options at once, [ErrClosed] and ctx.Err().
func (c *Client) Enroll(ctx context.Context, options ...EnrollOption) error {
	return enroll(ctx, []*Client{c}, options)
}

// enroll enrolls the nodes of these clients. They are the groups of a Sharded, or one client.
func enroll(ctx context.Context, clients []*Client, options []EnrollOption) error {
	e := enrolment{word: wordEnroll}
	for _, option := range options {
		option(&e)
	}
	if e.err != nil {
		return e.err
	}
	ask := (*Client).askWhenUp
	if e.word == wordNew {
		// Only if all nodes look new, none is told that it is new. Otherwise one that forgets between the two questions, or
		// is away at the first one and back without its data, would be taken for new among nodes that are in use. The nodes of
		// another group tell as well that these have been in use. They do not tell that an earlier call enrolled only some
		// groups: it may be that all names in use belong to the others.
		looksNew := make([]bool, len(clients))
		err := each(clients, func(i int, c *Client) error {
			r, err := ask(c, ctx, wordIsNew)
			looksNew[i] = err == nil && r.allLookNew()
			return c.enrolled(r, err)
		})
		if slices.Contains(looksNew, false) {
			return err
		}
		ask = (*Client).askReadiness
	}
	return each(clients, func(_ int, c *Client) error { return c.enrolled(ask(c, ctx, e.word)) })
}

// askWhenUp is askReadiness, once the nodes are connected.
func (c *Client) askWhenUp(ctx context.Context, word string) (*round, error) {
	if c.isClosed() {
		return nil, ErrClosed
	}
	if err := c.awaitUp(ctx); err != nil {
		return nil, err
	}
	return c.askReadiness(ctx, word)
}

// opEnroll is the RoundError.Op of an enrolment.
const opEnroll = "enroll"

// enrolled is the error of an enrolment: which nodes are enrolled, and which are not, and why. nil: all are.
func (c *Client) enrolled(r *round, err error) error {
	if err != nil || r.result() == won {
		return err
	}
	e := r.error(ErrNoQuorum, nil, c.nodes, "")
	granted := r.grantedBy()
	for i, n := range c.nodes {
		if granted.has(i) {
			e.enrolled = append(e.enrolled, printable(n.endpoint.name))
		}
	}
	return e
}

// askReadiness asks all nodes whether they may grant, with a word of the operator's.
func (c *Client) askReadiness(ctx context.Context, word string) (*round, error) {
	timeout := c.stallTimeout()
	ready := plan{call: c.readyCall(c.protocol.enroll, word, moment{}, timeout, ""), t0: c.cfg.Clock.Now(),
		answered: func(r *round, node int, a answer, _ verdict, _ bool) {
			if a.vote == granted {
				c.nodes[node].learnReady(a, r.t0, false)
			}
		}}
	r := newRound(ready, len(c.nodes), len(c.nodes), -1)
	return r, c.hearAll(ctx, r, timeout)
}

// allLookNew reports whether every node answered that it looks new. One that does not answer may be in use.
func (r *round) allLookNew() bool {
	answers, _ := r.snapshot()
	return !slices.ContainsFunc(answers, func(a answer) bool { return a.err != errLooksNew })
}
