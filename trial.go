package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/gomodule/redigo/redis"
)

// Trial does on every node what a lock needs there, to find rights that the node's user lacks. It takes a lock of its
// own, doctor/RANDOM, lets a second owner be refused and queued as a waiter, renews the lock, inspects it and releases
// it. It takes a few round trips, and leaves no key behind.
//
// It returns for each node, in the order of Config.Nodes, why that failed, or nil if it did not. That is a *[KindsError]
// where only kinds of lock fail that you may not use. What a Trial learns of messages for waiters is in the Warnings of
// the next [Client.Status]. err is [ErrClosed], ctx.Err(), or [ErrInvalid] if Prefix leaves no
// room for the name.
func (c *Client) Trial(ctx context.Context) (nodes []error, err error) {
	l := c.Mutex("doctor/" + rand.Text()).spec
	switch {
	case l.err != nil:
		return nil, l.err
	case !c.begin(): // Close waits for the releases
		return nil, ErrClosed
	}
	defer c.finish()
	if err := c.awaitAll(ctx); err != nil {
		return nil, err
	}
	all := c.allNodes()
	nodes = make([]error, len(c.nodes))
	var owner, other any = newToken(""), newToken("")
	// Each round waits for a node that is silent, and a TTL may be shorter than that. If the lock expired before its release, a
	// good node would seem to grant it twice, or to have lost it.
	var keptMillis any = millis(max(c.cfg.TTL, (trialRounds+1)*c.stallTimeout()))
	defer c.releaseAt(l.res.keys, owner, all, 0) // also what was granted late
	defer c.releaseAt(l.res.keys, other, all, 0)
	acquire := func(token any, queueAt nodeSet) *round {
		now := c.cfg.Clock.Now()
		ballot, known := c.propose(now)
		if !known {
			ballot = 1 // a trial wins nothing, and tries also a node that is alone, whose clock may be wrong (F1)
		}
		return c.newRound(plan{call: c.protocol.acquireCall(l.res, c.waiters.me, token, keptMillis, ballot), t0: now,
			queueAt: queueAt, queueEntry: queueNow})
	}
	c.trySubscriptions(ctx)
	if c.isClosed() {
		return nil, ErrClosed
	}
	takes, waits := acquire(owner, 0), acquire(other, all)
	var taken nodeSet
	for _, r := range [trialRounds]*round{
		takes,
		waits,
		c.newRound(plan{call: c.protocol.extendCall(l.res, owner, keptMillis, 0)}),
		c.newRound(plan{call: c.protocol.inspectCall(l.res)}),
		c.newRound(plan{call: c.protocol.releaseCall(l.res.keys, owner, c.reservation(), 0)}),
	} {
		// It asks what the nodes answer, and not how fast: a busy machine must not look like a missing right.
		if err := c.hearAll(ctx, r, c.stallTimeout()); err != nil {
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
	return nodes, c.tryCommands(ctx, l, nodes)
}

// trialRounds is how many rounds a trial makes with its lock.
const trialRounds = 5

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

// trySubscriptions learns of each node whether it sends messages to this client, as it would to a waiter.
func (c *Client) trySubscriptions(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel()
	done.Go(func() {
		select {
		case <-c.ending: // Close does not wait for a server that is silent
			cancel()
		case <-ctx.Done():
		}
	})
	var tried sync.WaitGroup
	for i, n := range c.nodes {
		if _, up, _ := n.state(); up {
			tried.Go(func() { c.waiters.subscribers[i].try(ctx) })
		}
	}
	tried.Wait()
}

// try subscribes on a connection that it closes again.
func (s *subscriber) try(ctx context.Context) {
	conn, _, err := s.node.endpoint.open(ctx, s.client.stallTimeout(), func(conn redis.Conn, login login) error {
		if err := s.handshake(conn, login); err != nil {
			return err
		}
		_, err := conn.Do("SUBSCRIBE", channelPrefix+s.client.waiters.me)
		return err
	})
	switch {
	case err == nil:
		conn.Close()
		s.mu.Lock()
		s.why = nil
		s.mu.Unlock()
	case isRefusal(err):
		s.missed(err)
	}
}
