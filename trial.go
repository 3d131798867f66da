package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// Trial does on every node what a lock needs there, to find rights that the node's user lacks. It takes a lock of its
// own, doctor/RANDOM, lets a second owner be refused and queued as a waiter, renews the lock, inspects it and releases
// it. It takes a few round trips, and leaves no key behind.
//
// It returns for each node, in the order of Config.Nodes, why that failed, or nil if it did not. err is [ErrClosed],
// ctx.Err(), or [ErrInvalid] if Prefix leaves no room for the name.
func (c *Client) Trial(ctx context.Context) (nodes []error, err error) {
	l := c.Mutex("doctor/" + rand.Text()).spec
	switch {
	case l.err != nil:
		return nil, l.err
	case c.isClosed():
		return nil, ErrClosed
	}
	if err := c.awaitAll(ctx); err != nil {
		return nil, err
	}
	all := c.allNodes()
	nodes = make([]error, len(c.nodes))
	var owner, other any = newToken(""), newToken("")
	defer c.releaseAt(l.res.keys, owner, all, 0) // also what was granted late
	defer c.releaseAt(l.res.keys, other, all, 0)
	acquire := func(token any, queueAt nodeSet) *round {
		now := c.cfg.Clock.Now()
		ballot, _ := c.propose(now)
		return c.newRound(plan{call: c.protocol.acquireCall(l.res, c.waiters.me, token, l.millis, ballot), t0: now,
			queueAt: queueAt, queueEntry: queueNow})
	}
	takes, waits := acquire(owner, 0), acquire(other, all)
	var taken nodeSet
	for _, r := range []*round{
		takes,
		waits,
		c.newRound(plan{call: c.protocol.extendCall(l.res, owner, l.millis, 0)}),
		c.newRound(plan{call: c.protocol.inspectCall(l.res)}),
		c.newRound(plan{call: c.protocol.releaseCall(l.res.keys, owner, c.reservation(), 0)}),
	} {
		if err := c.hearAll(ctx, r, c.cfg.NodeTimeout); err != nil {
			return nil, err
		}
		answers, _ := r.snapshot()
		for i, a := range answers {
			if r == takes && a.vote == granted {
				taken.add(i)
			}
			if nodes[i] == nil {
				nodes[i] = c.protocol.withRight(problemOf(a, taken.has(i), r == waits))
			}
		}
	}
	return nodes, c.tryQueues(ctx, l, nodes)
}

// tryQueues adds to each node's problems what its queues of waiters lack.
func (c *Client) tryQueues(ctx context.Context, l *spec, nodes []error) error {
	type answer struct {
		node int
		err  error
	}
	answers := make(chan answer, len(c.nodes))
	for i, n := range c.nodes {
		n.tryQueue(l.res.keys[0], c.waiters.me, func(err error) { answers <- answer{i, err} })
	}
	timer := c.timers.start(c.cfg.NodeTimeout)
	defer c.timers.stop(timer)
	for range c.nodes {
		select {
		case a := <-answers:
			if nodes[a.node] == nil {
				nodes[a.node] = a.err
			}
		case <-timer.C: // for a silent node, an earlier round has reported that
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ending:
			return ErrClosed
		}
	}
	return nil
}

// problemOf is what is wrong with an answer of a trial, or nil. A node may not have granted the trial's lock, because
// of other clients' ballots. Such a node only has to answer.
func problemOf(a answer, taken, waits bool) error {
	switch {
	case a.err != nil:
		return a.err
	case a.vote == pending:
		return errSilent
	case taken && waits && a.vote == granted:
		return errors.New("it granted a lock twice")
	case taken && !waits && a.denial != nil:
		return a.denial.exported()
	}
	return nil
}

// tryQueue runs the commands that the queues of waiters need. The scripts go on without them where they are forbidden;
// then no waiter gets a message, and waiters poll. So only this finds it.
func (n *node) tryQueue(key, me any, done func(error)) {
	queue := waitPrefix + key.(string)
	commands := []*command{
		{name: "ZADD", args: []any{queue, 1, me}},
		{name: "ZRANGE", args: []any{queue, 0, 0}},
		{name: "ZREM", args: []any{queue, me}},
		{name: "ZPOPMIN", args: []any{queue}},
	}
	var first error
	for i, c := range commands {
		c.done = func(_ *node, _ request, _ any, err error) { // all of them are called by the node's one reader
			if err != nil && first == nil {
				first = fmt.Errorf("%s: %w", c.name, err)
			}
			if i == len(commands)-1 {
				done(first)
			}
		}
	}
	n.mu.Lock()
	up, why := n.up, n.why
	for _, c := range commands {
		if up {
			n.queue = append(n.queue, request{command: c})
		}
	}
	n.mu.Unlock()
	if !up {
		done(why)
		return
	}
	n.wakeUp()
}
