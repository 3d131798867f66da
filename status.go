package redlock

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// A NodeStatus is what a client knows of one node.
type NodeStatus struct {
	Name      string
	Connected bool
	// Err is why the node has no vote: not connected, in quarantine (a [*QuarantineError]), unfit, its clock out of
	// step, refusing this client's configuration (a [*ConfigError]), or refusing all writes, as with a full disk. It has the
	// remedy. nil: it votes.
	Err     error
	RunID   string // of the server process
	Role    string // master or slave, as the server calls it
	Version string // of the server; with the name of the product if it is not Redis: "valkey-8.1.1"
	// Latency is the time of one round trip.
	Latency time.Duration
	// ClockOffset is how far the server's clock is ahead of the median of the nodes' clocks. It is wrong by no
	// more than Latency.
	ClockOffset time.Duration
	// Quarantine is how long it takes until the node may grant. 0: it is not in quarantine.
	Quarantine time.Duration
	// MaxTTL is the longest lease that the node grants. 0: not known.
	MaxTTL time.Duration
	// Warnings are problems that do not cost the node its vote: a memory limit, an old version, CLIENT KILL forbidden,
	// waiters that must poll, a proxy in between or a product that has one, a Dial that sets a read timeout. Each has the remedy.
	Warnings []string
}

// Status asks every node for its state and waits for the answers, no longer than NodeTimeout. In a new client it first
// lets every node try to connect. It returns earlier, with what is known, if ctx ends. The result is in the order of
// Config.Nodes. Status takes no locks and may be called at any time. After Close every Err is [ErrClosed]: a closed client
// knows nothing of its nodes.
func (c *Client) Status(ctx context.Context) []NodeStatus {
	if err := c.awaitAll(ctx); err == nil {
		c.lookAround(ctx)
	}
	nodes := make([]NodeStatus, len(c.nodes))
	for i, n := range c.nodes {
		nodes[i] = n.status()
		if why := c.waiters.refusal(i); why != nil && nodes[i].Connected {
			nodes[i].Warnings = append(nodes[i].Warnings, why.Error())
		}
	}
	c.compareClocks(nodes)
	if c.isClosed() { // else a node would have the error that it had last, or that of its closed connection
		for i := range nodes {
			nodes[i].Connected, nodes[i].Err = false, ErrClosed
		}
	}
	return nodes
}

// lookAround asks every connected node anew, and waits for the answers.
func (c *Client) lookAround(ctx context.Context) {
	answers := make(chan struct{}, 7*len(c.nodes)) // never blocks a reader: no node is asked more than seven things
	asked := 0
	for _, n := range c.nodes {
		asked += n.refresh(func() { answers <- struct{}{} })
	}
	_ = gather(ctx, c, c.cfg.NodeTimeout, asked, answers, func(struct{}) {}) // what has not come is not news
}

// refresh asks the server for INFO, what the health check asks with it, whether the user may end connections, and whether it
// may grant. It calls done after each answer, and returns how many times that will be.
func (n *node) refresh(done func()) int {
	own := func(of *command) *command {
		return &command{name: of.name, args: of.args, done: func(n *node, q request, reply any, err error) {
			of.done(n, q, reply, err)
			done()
		}}
	}
	commands := append([]*command{askInfo, askKill}, n.healthQuestions()...)
	n.mu.Lock()
	up := n.up
	if up {
		for _, c := range commands {
			n.queue = append(n.queue, request{command: own(c)})
		}
	}
	n.mu.Unlock()
	if !up {
		return 0
	}
	n.wakeUp()
	if n.askReadyThen(done) {
		return len(commands) + 1
	}
	return len(commands)
}

// status is what is known of the node, without comparing its clock with others.
func (n *node) status() NodeStatus {
	s := n.ownStatus()
	s.Err = n.judgedNow(s.Err)
	return s
}

func (n *node) ownStatus() NodeStatus {
	cfg := &n.cfg
	n.mu.Lock()
	defer n.mu.Unlock()
	s := NodeStatus{Name: n.endpoint.name, Connected: n.up, Err: n.obstacle(),
		RunID: n.server.runID, Role: n.server.role, Version: n.server.shownVersion(), Warnings: n.server.warnings()}
	if o := n.clock.Load(); o != nil {
		s.Latency = o.rtt
	}
	if !n.up {
		return s
	}
	if n.proxied {
		s.Warnings = append(s.Warnings, "another server answered on a connection that stayed open, as behind a proxy, which hides restarts; give the server's own address")
	}
	if n.endpoint.readTimeout.Load() {
		s.Warnings = append(s.Warnings, "a read timeout, likely set by the node's Dial, ended a connection; "+readTimeoutRemedy)
	}
	switch differs := n.readiness.differs; {
	case differs != nil:
		s.MaxTTL, _ = time.ParseDuration(readAgreement(differs.there)[agreedMaxTTL])
	case n.readiness.ready:
		s.MaxTTL = cfg.MaxTTL
	}
	if !n.readiness.ready {
		s.Quarantine = max(0, n.readiness.until.Sub(cfg.Clock.Now()))
	}
	return s
}

// obstacle is why the node has no vote, as far as it is known without the other nodes; nil: it votes. n.mu is held.
func (n *node) obstacle() error {
	s := &n.readiness
	switch {
	case !n.up:
		return n.why
	case n.unfit != nil:
		return n.unfit
	case s.ready:
		return n.server.noWrites
	}
	if left := s.until.Sub(n.cfg.Clock.Now()); left > 0 {
		return &QuarantineError{Left: left}
	}
	return cmp.Or(s.why, errUnready)
}

// compareClocks fills in how far each clock is from the median, and whether that costs the node its vote.
func (c *Client) compareClocks(nodes []NodeStatus) {
	median, _ := c.medianClock()
	tolerance := toleranceOf(c.cfg.ClockBand)
	for i, n := range c.nodes {
		o := n.clock.Load()
		if o == nil || !nodes[i].Connected {
			continue
		}
		s := &nodes[i]
		s.ClockOffset = time.Duration(o.offset-median) * time.Microsecond
		if err := clockError(s.ClockOffset, o.rtt, tolerance); err != nil {
			s.Err = errors.Join(s.Err, err)
		}
	}
}

// absent is why the node would not vote if it were asked now, as far as the client knows; nil: it would.
func (n *node) absent(now Instant) error {
	n.mu.Lock()
	known := n.readiness.known
	stalled := n.up && n.flight.len() > 0 && now.Sub(n.flight.oldest().sentAt) > n.cfg.NodeTimeout
	n.mu.Unlock()
	switch err := n.status().Err; {
	case stalled:
		return errSilent
	case err == errUnready && !known: // it has just connected, and is being asked whether it may grant
		return nil
	default:
		return err
	}
}
