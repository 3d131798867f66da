package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// A quorumLog is what a client remembers to log which nodes lose their votes and get them back, and what that means for
// the quorum.
type quorumLog struct {
	mu      sync.Mutex // guards looking and again; nothing is counted or logged under it
	looking bool       // a goroutine counts and logs: one at a time, so that the lines are in order. It has the rest
	again   bool       // a vote has changed since that goroutine began to count

	silent [maxNodes]string // by node, why it does not vote, as the log last said: a key of causeOf; "": it votes
	spare  spare            // as the log last said
	taught bool             // the log has said how a quarantine ends
}

// A spare is how many more nodes may fail.
type spare uint8

const (
	spareSome spare = iota // one at least; or none, but as many nodes vote as ever can
	spareNone              // the next failure stops all locks
	spareGone              // there is no quorum
)

// notConnected stands in silent for a node that is not connected. Its reason is logged when the connection breaks.
const notConnected = "not connected"

// votesChanged is called when a node may have become a voter, or have stopped being one. It says nothing of a quorum before
// every node was tried once. A clock that is out of step does not count here, because it is known only when a round
// compares clocks.
func (c *Client) votesChanged() {
	if c.notifier == nil || c.notifier.log == nil || c.isClosed() {
		return
	}
	l := &c.quorumLog
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = true
	if l.looking {
		return
	}
	l.looking = true
	for l.again {
		l.again = false
		l.mu.Unlock()
		c.logVotes()
		l.mu.Lock()
	}
	l.looking = false
}

// logVotes logs what is new: of each node, and of the quorum.
func (c *Client) logVotes() {
	tried := c.hasTried() // asked first: a node that answers meanwhile has changed its vote, so that all are looked at again
	votes, open := 0, 0
	var without causes
	for i, n := range c.nodes {
		switch up, unsure, why := c.voteOf(n); {
		case unsure:
			open++
		case why == nil:
			votes++
			c.logVote(n, &c.quorumLog.silent[i], nil, up)
		default:
			cause := without.of(why)
			if cause.nodes = append(cause.nodes, n.endpoint.name); len(cause.nodes) == 1 {
				cause.text = inShort(why)
			}
			c.logVote(n, &c.quorumLog.silent[i], why, up)
		}
	}
	if tried {
		c.logSpare(votes, open, without)
	}
}

// voteOf is whether the node is connected, and why it does not vote; nil: it votes. unsure: it is about to say whether it
// votes, or the others are about to say so much that it can be judged.
func (c *Client) voteOf(n *node) (up, unsure bool, why error) {
	n.mu.Lock()
	up, why = n.up, n.obstacle()
	asked := n.unfit == nil && !n.readiness.ready && (n.readiness.asking || !n.readiness.known)
	unsure = up && asked || !up && !n.tried
	n.mu.Unlock()
	why = n.judgedNow(why)
	return up, unsure || why == errUnready || why == errNotJudged, why
}

// logVote logs why the node does not vote, or that it does (why is nil), if the log has not said so.
func (c *Client) logVote(n *node, said *string, why error, up bool) {
	was := *said
	switch {
	case why == nil:
		*said = ""
	case !up: // logAway has the reason
		*said = notConnected
		return
	default:
		*said, _ = causeOf(why)
	}
	log, differs, quarantine := c.cfg.Logger, (*ConfigError)(nil), (*QuarantineError)(nil)
	switch {
	case *said == was:
	case why == nil:
		log.Info("redlock: node votes", "node", n.endpoint.name)
	case errors.As(why, &differs):
		log.Error("redlock: node refuses this client", "node", n.endpoint.name, "error", why)
	case errors.As(why, &quarantine) && c.quorumLog.taught: // else new servers have the same long line once for each node
		log.Warn("redlock: node does not vote", "node", n.endpoint.name, "error", quarantine.withoutRemedy())
	default:
		c.quorumLog.taught = c.quorumLog.taught || quarantine != nil
		log.Warn("redlock: node does not vote", "node", n.endpoint.name, "error", why)
	}
}

// logAway logs why the node is not connected.
func (c *Client) logAway(n *node, err error) {
	if !c.isClosed() {
		c.cfg.Logger.Warn("redlock: node not connected", "node", n.endpoint.name, "error", err)
	}
}

// logSpare logs if another number of failures is tolerated, as far as that matters: none, or not even those that there
// are. A node that is about to say whether it votes may change either. without has the nodes that do not vote, and why.
func (c *Client) logSpare(votes, open int, without causes) {
	was, is := c.quorumLog.spare, spareSome
	switch {
	case votes+open < c.need:
		is = spareGone
	case votes < c.need:
		return
	case votes > c.need || c.need == len(c.nodes), open > 0 && was == spareGone:
	case open > 0:
		return
	default:
		is = spareNone
	}
	if is == was {
		return
	}
	c.quorumLog.spare = is
	level, means := slog.LevelInfo, ""
	switch {
	case is == spareGone:
		level, means = slog.LevelWarn, "nothing is granted or renewed"
	case is == spareNone && was == spareGone:
		means = "locks are granted and renewed again, until the next failure"
	case is == spareNone:
		level, means = slog.LevelWarn, "the next failure stops all locks"
	case was == spareGone:
		means = "locks are granted and renewed again"
	default:
		means = "the next failure stops no lock"
	}
	var missing []any
	if len(without) > 0 {
		said := make([]string, len(without))
		for i, c := range without {
			said[i] = c.byNodes()
		}
		missing = []any{"without", strings.Join(said, "; ")}
	}
	c.cfg.Logger.Log(context.Background(), level, c.voteCount(votes)+": "+means, missing...)
}

func (c *Client) voteCount(votes int) string {
	verb := "vote"
	if votes == 1 {
		verb = "votes"
	}
	return fmt.Sprintf("redlock: %d of %d nodes %s, and it takes %d", votes, len(c.nodes), verb, c.need)
}
