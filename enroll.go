package redlock

import "context"

// An EnrollOption makes [Client.Enroll] more careful, or less.
type EnrollOption func(*enrolment)

type enrolment struct{ word string }

// OnlyNew enrolls only servers that have never been used: they have no key but those of a quarantine. Others are
// refused, whatever they hold; a node that already grants to this client is no error, and is left as it is. It needs
// the right to DBSIZE and EXISTS.
func OnlyNew() EnrollOption { return func(e *enrolment) { e.word = wordNew } }

// ChangeConfig replaces the configuration that the nodes hold by this client's, and ends every quarantine. First stop
// all other clients and wait for the longer MaxTTL of the two configurations: clients that go on are refused from then
// on, and their leases may be longer than the new configuration allows for.
func ChangeConfig() EnrollOption { return func(e *enrolment) { e.word = wordChange } }

// Enroll is an operator's word that no lease is out on these nodes. It ends every quarantine now, and writes this
// client's configuration to nodes that have none. Use it once on new servers, best with [OnlyNew]. If it is said
// wrongly, two clients may hold one lock. A node that already grants is left as it is. A node that grants under another
// configuration is not enrolled, unless [ChangeConfig] is given; [errors.As] finds its [*ConfigError].
//
// The error is a [*RoundError] that is [ErrNoQuorum] and says which nodes were not enrolled, and why; the others
// are enrolled all the same. Other errors are [ErrClosed] and ctx.Err().
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
	return r.error(ErrNoQuorum, nil, c.nodes, "")
}
