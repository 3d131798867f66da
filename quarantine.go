package redlock

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// A standing is what a node knows of whether its server may grant (Q1). It belongs to one connection.
type standing struct {
	runID    any           // boxed, for redigo
	marker   any           // what the server's marker must be, boxed
	known    bool          // ready.lua has answered
	ready    bool          // it said yes
	maxTTL   time.Duration // that the server grants, if it has told
	until    Instant       // else: when its quarantine ends, if it is in one
	why      error         // else: why it is refused, if it is
	asking   bool          // ready.lua is in flight
	askAgain *time.Timer
}

// A QuarantineError is why a node that is connected does not vote: it may have forgotten leases that it
// granted, because it restarted, was flushed, replaced, rolled back or promoted, or because it is new. It
// sits out the time in which the last of these expires. [Client.Enroll] ends it at once.
type QuarantineError struct {
	Left time.Duration // of the quarantine, as last told by the server
}

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("in quarantine for %v more: it is new, or it restarted or was flushed and may have forgotten leases "+
		"(if none can be out, Client.Enroll or `redlock enroll` ends this)", e.Left.Round(time.Millisecond))
}

// marker is what redlock:node holds on a node that may grant; see scripts/ready.lua.
func marker(runID string, maxTTLMillis int64) string {
	return runID + " " + strconv.FormatInt(maxTTLMillis, 10)
}

// readyRound asks nodes whether they may grant, or tells them that they may.
func (c *Client) readyRound(word string) *round {
	margin := millis(c.cfg.NodeTimeout + c.cfg.MaxClockSkew)
	return c.newRound(c.protocol.ready, nil, []any{millis(c.cfg.MaxTTL), margin, word, flag(!c.cfg.NoFence)}, c.cfg.Clock.Now())
}

// askReady asks the server whether it may grant, unless it is being asked.
func (n *node) askReady() {
	word := ""
	if n.client.cfg.Durable {
		word = "durable"
	}
	r := n.client.readyRound(word)
	r.answered = func(_ *round, node int, a answer, _ verdict, _ bool) {
		if node == n.index {
			n.learnReady(a)
		}
	}
	n.mu.Lock()
	ask := n.up && !n.stands.asking
	if ask {
		n.stands.asking = true
		// Ahead of everything: what is queued behind it is answered as it says.
		n.queue = append([]request{{round: r}}, n.queue...)
	}
	n.mu.Unlock()
	if ask {
		n.nudge()
	}
}

// learnReady takes what ready.lua answered.
func (n *node) learnReady(a answer) {
	cfg := &n.client.cfg
	n.mu.Lock()
	s := &n.stands
	first := !s.known
	was := s.ready
	s.asking, s.known, s.ready, s.why = false, true, false, nil
	s.stop()
	again := time.Duration(0)
	switch {
	case a.vote == granted && a.maxTTL < millis(cfg.MaxTTL):
		s.maxTTL = time.Duration(a.maxTTL) * time.Millisecond
		s.why = fmt.Errorf("it takes no leases above %v, and MaxTTL is %v here; set the same MaxTTL in every client, and Enroll to change it",
			s.maxTTL, cfg.MaxTTL)
		again = healthInterval
	case a.vote == granted:
		s.ready, s.maxTTL = true, time.Duration(a.maxTTL)*time.Millisecond
		s.marker = marker(s.runID.(string), a.maxTTL)
	case a.denial != nil:
		s.until = cfg.Clock.Now().Add(a.denial.left)
		again = a.denial.left
	default:
		s.why = a.err
		again = owedInterval
	}
	if again > 0 && n.up {
		s.askAgain = time.AfterFunc(again+time.Millisecond, n.askReady)
	}
	ready, left := s.ready, again
	n.mu.Unlock()
	switch {
	case ready && !was && !first:
		cfg.Logger.Info("redlock: node may grant again", "node", n.endpoint.name)
	case a.denial != nil && (first || was):
		n.client.logQuarantine(n, left)
	}
}

// stop ends the wait to ask again.
func (s *standing) stop() {
	if s.askAgain != nil {
		s.askAgain.Stop()
		s.askAgain = nil
	}
}

// unready is why a server refused to grant. If it is news, the server is asked what to do about it.
func (n *node) unready() error {
	n.mu.Lock()
	news := n.stands.ready
	why := n.stands.why
	left := n.stands.until.Sub(n.client.cfg.Clock.Now())
	n.stands.ready = false
	n.mu.Unlock()
	switch {
	case news:
		n.askReady()
		return errUnready
	case why != nil:
		return why
	case left <= 0: // over: it is being asked, or will be at once
		return errUnready
	default:
		return &QuarantineError{Left: left}
	}
}

// logQuarantine says once a client and for all nodes what a newcomer has to know.
func (c *Client) logQuarantine(n *node, left time.Duration) {
	c.mu.Lock()
	warned := c.warned
	c.warned = true
	c.mu.Unlock()
	if warned { // the others say it shortly
		c.cfg.Logger.Info("redlock: node in quarantine", "node", n.endpoint.name, "left", left)
		return
	}
	c.cfg.Logger.Warn("redlock: a node is in quarantine and does not grant yet: it is new, or it may have forgotten leases; "+
		"if no lease can be out on these nodes, Client.Enroll or `redlock enroll` ends this now",
		"node", n.endpoint.name, "left", left)
}

// Enroll is an operator's word that no lease is out on these nodes. It ends every quarantine now, and makes
// this client's MaxTTL that of the nodes. Use it once on new servers; said wrongly, two clients may hold one
// lock. The error is a [*RoundError] that is [ErrNoQuorum] and names the nodes that were not reached; the
// others are enrolled all the same.
func (c *Client) Enroll(ctx context.Context) error {
	if c.isClosed() {
		return ErrClosed
	}
	if err := c.awaitAll(ctx); err != nil {
		return err
	}
	r := c.readyRound("enroll")
	r.tally.need = len(c.nodes)
	r.answered = func(_ *round, node int, a answer, _ verdict, _ bool) {
		if a.vote == granted {
			c.nodes[node].learnReady(a)
		}
	}
	if err := c.hearAll(ctx, r, c.stallTimeout()); err != nil {
		return err
	}
	if r.result() == won {
		return nil
	}
	return r.error(ErrNoQuorum, nil, c.nodes, "not every node was enrolled")
}
