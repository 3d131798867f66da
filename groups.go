package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// What the clients of a Sharded know of each other's nodes: whether these have the same groups (Q3).

// always is an age that no word of a node has reached.
const always = century

// A groupSaid is what the nodes of one group said.
type groupSaid struct {
	voting   int        // nodes that vote for this client
	refusing int        // nodes that refuse its groups
	why      *NodeError // the word of one that refuses; nil: none does
}

// groupSays sums up what the nodes of this group said to questions that are not older. A refusal counts longer: until the
// node votes, or a quorum has voted since.
func (c *Client) groupSays(oldestAge time.Duration) (said groupSaid) {
	since, oldest := c.cfg.Clock.Now().Add(-oldestAge), Instant(0)
	for _, n := range c.nodes {
		n.mu.Lock()
		w := n.groups
		n.mu.Unlock()
		if w.voted >= since {
			if said.voting++; said.voting == 1 || w.voted < oldest {
				oldest = w.voted
			}
		}
		if w.refused != nil {
			said.refusing++
			said.why = &NodeError{Node: n.endpoint.name, Err: w.refused}
		}
	}
	if said.voting < c.need || said.refusing == 0 {
		return said
	}
	for _, n := range c.nodes {
		n.mu.Lock()
		if n.groups.refused != nil && n.groups.refusedAt < oldest {
			n.groups.refused = nil
		}
		n.mu.Unlock()
	}
	return said
}

// refusal is why this client may use no group: so many nodes of this group refuse its groups that no quorum is left.
func (c *Client) refusal(said *groupSaid) error {
	if said.voting < c.need && len(c.nodes)-said.refusing < c.need {
		return said.why
	}
	return nil
}

// checkGroup is why this client can never acquire the names, as far as it is known: the nodes of some group refuse its
// groups, or the names belong to another group.
func (c *Client) checkGroup(names []string) error {
	for _, group := range c.siblings {
		said := group.groupSays(always)
		if err := group.refusal(&said); err != nil {
			return err
		}
	}
	return c.cfg.checkGroup(names)
}

// enterGroup waits until the client knows what the nodes of the other groups say of its groups (Q3), and returns a moment t0
// at which it knew it. A lease that counts from t0 is safe from all that happened before the oldest of these words,
// however long this process stands still, before t0 or after it. To clients with other groups, the names may belong to
// another group than here. The nodes that this client acquires them on cannot know that, if only this client has them. So it
// asks the nodes of the others.
//
// An error is one of checkGroup, ctx.Err() or ErrClosed. blocked is the lost round of an attempt with this script that may
// acquire nothing now: a node refuses the client's groups, and the others of that group cannot outvote it; or neither another
// group nor its own answers; or some nodes of another group were not tried in time. A group of which no node answers blocks
// nobody else. Of the client's own group, the acquire itself asks a quorum.
func (c *Client) enterGroup(ctx context.Context, s *script, names []string) (t0 Instant, blocked *round, err error) {
	if len(c.siblings) < 2 {
		return c.cfg.Clock.Now(), nil, c.checkGroup(names)
	}
	var patience timer
	for timeUp := false; ; {
		news := c.cfg.groupNews.await() // before it looks, so that none is lost
		t0 = c.cfg.Clock.Now()
		unknown, why := c.askSiblings()
		if err := c.checkGroup(names); err != nil { // after it: what has come meanwhile may be final
			return t0, nil, err
		}
		switch {
		case unknown && !timeUp:
		case why != nil:
			return t0, c.unasked(s, t0, func(*node) error { return why }), nil
		default:
			return t0, nil, nil
		}
		if patience.Timer == nil { // for as long as a connection needs to show that it is broken, and to be opened again
			patience = c.timers.start(4 * c.stallTimeout())
			defer c.timers.stop(patience)
		}
		select {
		case <-news:
		case due := <-patience.C:
			timeUp = patience.isOver(due)
		case <-ctx.Done():
			return t0, nil, ctx.Err()
		case <-c.ending:
			return t0, nil, ErrClosed
		}
	}
}

// askSiblings asks the nodes of the other groups that were not heard lately, where it depends on them. unknown: it does.
// blocked is why nothing may be acquired now, also if what is unknown stays so.
func (c *Client) askSiblings() (unknown bool, blocked error) {
	for _, group := range c.siblings {
		if group == c {
			continue
		}
		if said := group.groupSays(group.freshFor()); said.voting >= group.need {
			continue
		}
		// It seems to be away. Or this machine was cut off from all, as one that has just woken up may be. So its nodes must have
		// been tried since this group is in contact.
		if contact, reached := c.inContact(); !reached {
			unknown = c.askUntried(c.freshFor()) || unknown
			blocked = errOutOfContact
		} else if group.askUntried(min(contact, group.freshFor())) {
			unknown, blocked = true, errUntried
		}
		// Only now: a refusal that has come since the first look has made its node count as tried.
		if said := group.groupSays(group.freshFor()); said.voting < group.need && said.refusing > 0 {
			// No ConfigError to errors.As: a caller would take it for final.
			blocked = fmt.Errorf("it was not asked: a node of another group refuses the groups of this client, and too few others "+
				"of that group answer to outvote it: %v", said.why)
		}
	}
	return unknown, blocked
}

// askUntried asks the nodes of this group that were last tried longer ago, and reports whether there are any.
func (c *Client) askUntried(oldestAge time.Duration) (some bool) {
	since := c.cfg.Clock.Now().Add(-oldestAge)
	for _, n := range c.nodes {
		n.mu.Lock()
		ask := n.groups.tried < since
		n.mu.Unlock()
		if ask {
			some = true
			n.askReady()
		}
	}
	return some
}

var (
	errOutOfContact = errors.New("it was not asked: too few nodes of its group, and of another one, have answered lately")
	errUntried      = errors.New("it was not asked: it is not known yet whether nodes of another group are away")
)

// inContact is for how long a quorum of this group has been heard again and again. reached: it was, lately.
func (c *Client) inContact() (contact time.Duration, reached bool) {
	var array [maxNodes]Instant
	now := c.cfg.Clock.Now()
	contacts, oldest := array[:0], now.Add(-c.freshFor())
	for _, n := range c.nodes {
		n.mu.Lock()
		if n.groups.heard >= oldest {
			contacts = append(contacts, n.groups.contact)
		}
		n.mu.Unlock()
	}
	if len(contacts) < c.need {
		return 0, false
	}
	slices.Sort(contacts)
	return now.Sub(contacts[c.need-1]), true
}
