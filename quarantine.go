package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// A readiness is what a node knows of whether its server may grant (Q1). It belongs to one connection.
type readiness struct {
	identity  any          // of the server's data set, boxed for redigo
	marker    any          // what the server's marker must be, boxed
	known     bool         // ready.lua has answered
	ready     bool         // it said yes
	differs   *ConfigError // else: its clients are configured otherwise
	until     Instant      // else: when its quarantine ends, if it is in one
	unjudged  bool         // else: this client hears too few other nodes to judge
	why       error        // else: why it is refused, if it is
	asking    bool         // it is being asked
	whenKnown []func()     // called when it has answered, or its connection broke
	askAgain  *time.Timer
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
func marker(identity, digest string) string { return identity + " " + digest }

var errUsed = errors.New("it has been used: it has keys, fencing tokens or a marker; enroll it without --only-new, if no lease can be out")

var errUnjudged = errors.New("it may have forgotten what it granted, and too few other nodes answer to judge that")

// word is what the node's server is asked by itself, and the time that goes with it. A client begins and ends
// quarantines only while it hears a quorum, this node included, that does not object to its configuration: by their
// clocks it counts. If any node does object, it takes a quorum of nodes that may grant: no client that is configured
// otherwise than the rest decides for nodes that forgot.
func (c *Client) word(n *node) (word string, fleet int64) {
	var array [maxNodes]int64
	offsets := array[:0]
	ready, differing := 0, 0
	for _, other := range c.nodes {
		if other == n {
			continue
		}
		agrees, votes, differs := other.opinion()
		if differs {
			differing++
		}
		if votes {
			ready++
		}
		if o := other.clock.Load(); o != nil && agrees {
			offsets = append(offsets, o.offset)
		}
	}
	if c.cfg.onlyLook || len(offsets) < c.need-1 || differing > 0 && ready < c.need-1 {
		return wordLook, 0
	}
	if len(offsets) > 0 {
		fleet = int64(c.cfg.Clock.Now())/1e3 + medianOf(offsets)
	}
	if c.protocol.omits(clocksOfOthers) {
		fleet = 0
	}
	if n.forgetsNothing() {
		word = wordDurable
	}
	return word, fleet
}

// opinion says whether the node's server is configured as we are, as far as it cares, whether it may grant as well, or
// whether it is configured otherwise. It says nothing of a server that is away or has not told.
func (n *node) opinion() (agrees, ready, differs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &n.readiness
	if !n.up || !s.known {
		return false, false, false
	}
	return s.differs == nil && (s.why == nil || s.unjudged), s.ready, s.differs != nil
}

// forgetsNothing reports whether a restart of the server has kept everything: it persists before it answers, and
// what it has is its own. What a promoted replica has is what had reached it, and what was evicted is persisted as gone.
func (n *node) forgetsNothing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	promoted := n.server.history != "" && !n.client.protocol.omits(promotedForgets)
	return n.client.cfg.Durable && !promoted && !n.server.hasEvicted() && n.unfit == nil
}

// askReady asks the server whether it may grant, unless it is being asked. INFO goes first: what it says of the
// server is part of the question.
func (n *node) askReady() { n.askReadyThen(nil) }

// askReadyThen calls then, if not nil, when the answer is known, or when a question that is in flight is answered.
// It reports whether it will.
func (n *node) askReadyThen(then func()) bool {
	n.mu.Lock()
	up, ask := n.up, n.up && !n.readiness.asking
	if up && then != nil {
		n.readiness.whenKnown = append(n.readiness.whenKnown, then)
	}
	if ask {
		n.readiness.asking = true
		n.infoAskedAt = n.client.cfg.Clock.Now()
		n.queue = append(n.queue, request{command: &command{name: "INFO", done: func(n *node, _ request, reply any, err error) {
			n.applyInfo(reply, err)
			n.sendReady()
		}}})
	}
	n.mu.Unlock()
	if ask {
		n.wakeUp()
	}
	return up
}

// sendReady asks by what INFO has said.
func (n *node) sendReady() {
	word, fleet := n.client.word(n)
	c := n.client
	learn := func(_ *round, node int, a answer, _ verdict, _ bool) {
		if node == n.index {
			n.learnReady(a)
		}
	}
	r := c.newRound(plan{call: c.readyCall(c.protocol.ready, word, fleet), answered: learn})
	n.mu.Lock()
	if n.readiness.asking = n.up; n.up {
		// Ahead of everything: what is queued behind it is answered as it says.
		n.queue = append([]request{{round: r}}, n.queue...)
	}
	n.mu.Unlock()
	n.wakeUp()
}

// learnReady takes what ready.lua answered.
func (n *node) learnReady(a answer) {
	cfg := &n.client.cfg
	n.mu.Lock()
	s := &n.readiness
	quarantined := s.known && !s.ready && s.why == nil
	first, was, agreed := !s.known, s.ready, s.known && s.differs == nil
	n.tried = true
	callbacks := s.stop()
	*s = readiness{identity: s.identity, marker: s.marker, known: true}
	again := time.Duration(0)
	switch {
	case a.vote == granted:
		s.ready = true
	case errors.As(a.err, &s.differs):
		s.why = s.differs
		again = healthInterval
	case a.err == errUnjudged:
		s.unjudged, s.why = true, errUnjudged
		again = owedInterval
	case a.denial != nil:
		s.until = cfg.Clock.Now().Add(a.denial.left)
		again = min(a.denial.left, owedInterval) // somebody may enroll it
	default:
		s.why = a.err
		again = owedInterval
	}
	if again > 0 && n.up {
		s.askAgain = time.AfterFunc(again+time.Millisecond, n.askReady)
	}
	now := *s
	n.mu.Unlock()
	defer func() { // if it is asked again by now, the answer to that counts
		n.mu.Lock()
		if n.readiness.asking {
			n.readiness.whenKnown, callbacks = append(n.readiness.whenKnown, callbacks...), nil
		}
		n.mu.Unlock()
		for _, call := range callbacks {
			call()
		}
	}()

	switch {
	case now.ready && !was && !first:
		cfg.Logger.Info("redlock: node may grant again", "node", n.endpoint.name)
	case a.denial != nil && !quarantined:
		n.client.logQuarantine(n, a.denial.left)
	case now.differs != nil && (first || agreed):
		cfg.Logger.Error("redlock: node refuses this client", "node", n.endpoint.name, "error", now.differs)
	}
	n.client.readied(n, first, now.differs == nil && !agreed)
}

// readied is called when a node has told how it stands. Others may have waited for that: for the first word of
// all, or for enough nodes to judge by.
func (c *Client) readied(n *node, first, agrees bool) {
	if first {
		c.nodeTried()
	}
	if n.waitsForOthers() { // they may have come since it was asked
		if word, _ := c.word(n); word != wordLook {
			n.askReady()
		}
	}
	if !agrees {
		return
	}
	for _, other := range c.nodes {
		if other != n && other.waitsForOthers() {
			other.askReady()
		}
	}
}

func (n *node) waitsForOthers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.readiness.unjudged
}

// stop ends the wait to ask again, and returns the callbacks that wait for the answer.
func (s *readiness) stop() (callbacks []func()) {
	if s.askAgain != nil {
		s.askAgain.Stop()
		s.askAgain = nil
	}
	callbacks, s.whenKnown = s.whenKnown, nil
	return callbacks
}

// unready is why a server refused to grant. If it is news, the server is asked what to do about it.
func (n *node) unready() error {
	n.mu.Lock()
	news := n.readiness.ready
	why := n.readiness.why
	left := n.readiness.until.Sub(n.client.cfg.Clock.Now())
	n.readiness.ready = false
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

// voted is called when the server granted or denied, so it is ready: if that is news, because another client
// enrolled it, the server is asked.
func (n *node) voted() {
	n.mu.Lock()
	news := n.readiness.known && !n.readiness.ready
	n.mu.Unlock()
	if news {
		n.askReady()
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

// agreed is the configuration that the node has, "" if it has none; or why that is not known.
func (n *node) agreed() (text string, known bool, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.up || !n.readiness.known:
		return "", false, cmp.Or(n.why, errConnecting)
	case n.readiness.differs != nil:
		return n.readiness.differs.there, true, nil
	case n.readiness.ready:
		return n.client.agreement.text, true, nil
	default: // new, or in a quarantine that a client of our own configuration began
		return "", true, nil
	}
}

// refusedByConfig is the round's error if so many nodes refuse this client's configuration that no quorum is left: waiting
// would not help.
func (c *Client) refusedByConfig(l *spec, r *round) error {
	answers, t := r.snapshot()
	if len(c.nodes)-t.unknown >= c.need {
		return nil
	}
	refusing := 0
	for _, a := range answers {
		if differs := (*ConfigError)(nil); errors.As(a.err, &differs) {
			refusing++
		}
	}
	if len(c.nodes)-refusing >= c.need {
		return nil
	}
	return r.error(ErrNoQuorum, l.res.names, c.nodes, "")
}
