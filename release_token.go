package redlock

import (
	"context"
	"strings"
)

// ReleaseToken releases the lease of name that has this owner token ([Lease.Token]), from whatever process: one that
// was given the token, because the process that acquired the lock has handed on the work, or has crashed. It takes the
// lock from nobody else, however late it comes. Of a lock with several names it releases this one. A minimum hold
// ([Lock.WithMinHold]) ends with it.
//
// The process that acquired the lock, if it is alive, learns of it as after [Client.ForceRelease], and relies on the
// lock until then: it must have stopped its work. It returns:
//   - nil if a quorum of the nodes had the lock for this token, and deleted it;
//   - [ErrLost] if a quorum of the nodes did not have it: it was released, it expired, or it was never acquired. What was
//     left of it on other nodes is deleted;
//   - [ErrNoQuorum] if neither is known, because nodes are away. The lock then expires by itself. Nodes that come back
//     earlier still get the release. It is [ErrNoQuorum] too if the process that acquired the lock is alive and took it back
//     again and again, or may have taken it back on nodes that no longer answer.
//
// While nodes are away, ErrLost of a second call may only mean that the first one deleted the lock on the others. A process
// that is alive can still go on with it.
//
// It does not release a reader or permits of a lock that several share.
//
// ErrLost and ErrNoQuorum come in a [*RoundError]. Other errors are [ErrInvalid], [ErrClosed] and ctx.Err(). ctx bounds
// only the wait. ReleaseToken waits for nodes that are up, no longer than NodeTimeout. The first use of a client also
// waits for its nodes to connect.
func (c *Client) ReleaseToken(ctx context.Context, name, token string) error {
	s := c.Mutex(name).spec
	switch {
	case s.err != nil:
		return s.err
	case token == "" || strings.HasPrefix(token, reservationPrefix):
		return invalid("token", "it is no owner token; give what Lease.Token returned")
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if !c.begin() { // Close waits for the answers
		return ErrClosed
	}
	defer c.finish()
	if err := c.awaitAll(ctx); err != nil {
		return err
	}
	release := func() (*round, error) {
		// Who shares a lock stays (S1). It is owed to every node, since any may have the key (L3).
		r := c.newRound(plan{call: c.protocol.releaseMutexCall(s.res.keys, token, c.reservation(), 0)})
		c.send(r, c.allNodes(), c.allNodes())
		err := r.until(ctx, &c.timers, c.ending, c.cfg.NodeTimeout, func(t *tally) bool { return t.open() == 0 })
		return r, err
	}
	defer c.sayTaken(token, s.res.keys[0]) // last, because ctx may end with the lease
	r, err := release()
	if err != nil {
		return err
	}
	_, votes := r.snapshot()
	switch proof, _ := votes.released(false, c.allNodes()); proof {
	case won:
		return c.staysReleased(ctx, name, token, r, release)
	case lost:
		return r.error(ErrLost, s.res.names, c.nodes, "no lease has this token")
	default:
		return r.error(ErrNoQuorum, s.res.names, c.nodes, "")
	}
}

// staysReleased looks whether the holder took back what a quorum has just deleted, as releaseFound does.
func (c *Client) staysReleased(ctx context.Context, name, token string, r *round, release func() (*round, error)) error {
	deleted := nodeSet(0)
	for try := 0; ; try++ {
		_, votes := r.snapshot()
		deleted |= votes.votedBy(granted)
		state, look, err := c.inspect(ctx, name)
		if err != nil {
			return err
		}
		_, heard := look.snapshot()
		switch there := state.where(func(n NodeState) bool { return n.Held && n.Token == token }); {
		case there == 0 && len(c.nodes)-(deleted&heard.votedBy(granted)).len() >= c.need:
			return r.error(ErrNoQuorum, []string{name}, c.nodes, "nodes that had deleted it did not answer again, so its holder may have taken it back")
		case there == 0:
			return nil
		case try == forceTries:
			return r.error(ErrNoQuorum, []string{name}, c.nodes, r.whyItStays(there))
		}
		if r, err = release(); err != nil {
			return err
		}
	}
}
