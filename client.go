package redlock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Client acquires locks on one set of nodes. It is safe for concurrent use; a process needs one.
//
// It runs two goroutines a node, one scheduler, one notifier if there are hooks or a logger, and while locks are
// contended three more a node.
type Client struct {
	cfg         Config
	protocol    *protocol
	agreement   agreement
	ttlMillis   any // of Config.TTL, boxed once for redigo
	nodes       []*node
	need        int
	scheduler   *scheduler
	notifier    *notifier // nil: there is nothing of the user's to call
	localQueues localQueues
	waiters     waiters
	timers      timers
	seen        atomic.Uint64 // the highest ballot made or met (F1)
	oldToken    string        // of every attempt, where freshToken is off

	cancel context.CancelFunc // ends every goroutine
	ending chan struct{}      // closed when Close begins
	ended  chan struct{}      // closed when Close is over
	opened chan struct{}      // closed when the nodes had their first chance to connect
	tried  chan struct{}      // closed when every node has connected, or failed to, once

	underWay sync.WaitGroup // Acquires, TryAcquires and Releases; added to under mu, and never once closed is set

	mu      sync.Mutex       // guards the rest; no I/O and no call-back under it
	claims  map[string]*node // by run id: the node that this server is counted as
	grace   *time.Timer      // closes opened though some node is still silent
	isOpen  bool
	isTried bool
	closed  bool
	warned  bool // of a quarantine
}

// openGrace is how long the first round waits for the last nodes to connect once a quorum has.
const openGrace = 20 * time.Millisecond

// New checks the configuration and connects in the background. It does not wait for any node; an error
// wraps [ErrInvalid]. Close the client when done with it.
func New(cfg Config) (*Client, error) {
	cfg, endpoints, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	notifier := newNotifier(&cfg)
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{
		cfg:       cfg,
		notifier:  notifier,
		protocol:  cmp.Or(cfg.protocol, standard),
		agreement: agreementOf(&cfg),
		oldToken:  newToken(),
		need:      cfg.Quorum,
		ttlMillis: millis(cfg.TTL),
		cancel:    cancel,
		ending:    make(chan struct{}),
		ended:     make(chan struct{}),
		opened:    make(chan struct{}),
		tried:     make(chan struct{}),
		claims:    map[string]*node{},
	}
	c.scheduler = newScheduler(cfg.Clock)
	c.scheduler.forgetsTicked = c.protocol.omits(ticksDrained)
	for i, e := range endpoints {
		c.nodes = append(c.nodes, newNode(c, i, e))
	}
	c.waiters.init(c)
	go c.scheduler.run(ctx)
	for _, n := range c.nodes {
		go n.run(ctx)
	}
	return c, nil
}

// stallTimeout is how long a connection may owe an answer before it is given up, and how long it may take
// to open.
func (c *Client) stallTimeout() time.Duration { return max(4*c.cfg.NodeTimeout, time.Second) }

// claim makes the server the node's own, or returns the node that has it.
func (c *Client) claim(runID string, n *node) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.claims[runID]; ok && other != n {
		return other
	}
	c.claims[runID] = n
	return nil
}

// release gives up the node's claim.
func (c *Client) release(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for runID, owner := range c.claims {
		if owner == n {
			delete(c.claims, runID)
		}
	}
}

// nodeTried is called when a node's first attempt is over, and when it has become a voter or no longer is one.
func (c *Client) nodeTried() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isTried && c.countTried() == len(c.nodes) {
		c.isTried = true
		close(c.tried)
	}
	switch {
	case c.isOpen || c.closed:
	case c.isTried:
		c.open()
	case c.countUp() >= c.need && c.grace == nil:
		c.grace = time.AfterFunc(openGrace, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !c.isOpen {
				c.open()
			}
		})
	}
}

// nodeChanged is called when a node's connection opened (err is nil) or broke, and after the first attempt.
func (c *Client) nodeChanged(n *node, err error) {
	if err != nil {
		c.nodeTried()
	}
	name := n.endpoint.name
	switch {
	case c.isClosed():
	case err == nil:
		c.cfg.Logger.Info("redlock: node connected", "node", name)
		if hook := c.cfg.Hooks.NodeUp; hook != nil {
			hook(name)
		}
	default:
		c.cfg.Logger.Warn("redlock: node not connected", "node", name, "error", err)
		if hook := c.cfg.Hooks.NodeDown; hook != nil {
			hook(name, err)
		}
	}
}

// open lets the first rounds go. c.mu is held.
func (c *Client) open() {
	c.isOpen = true
	close(c.opened)
}

func (c *Client) countTried() (count int) {
	for _, n := range c.nodes {
		if tried, _, _ := n.state(); tried {
			count++
		}
	}
	return count
}

func (c *Client) countUp() (count int) {
	for _, n := range c.nodes {
		if _, up, _ := n.state(); up {
			count++
		}
	}
	return count
}

// awaitOpen holds the first round back until a quorum of the nodes is connected, or each has tried to. A round
// without them would take a lock that is held for an outage, or make a ballot out of nothing.
func (c *Client) awaitOpen(ctx context.Context) error {
	select {
	case <-c.opened: // without a timer, as nearly always
		return nil
	default:
		return c.awaitEvent(ctx, c.opened, c.stallTimeout())
	}
}

// awaitAll waits until every node has connected or failed to, no longer than that may take.
func (c *Client) awaitAll(ctx context.Context) error {
	return c.awaitEvent(ctx, c.tried, c.stallTimeout())
}

// awaitEvent waits for it, or as long as patience lasts, which is no error.
func (c *Client) awaitEvent(ctx context.Context, event <-chan struct{}, patience time.Duration) error {
	timer := c.timers.start(patience)
	defer c.timers.stop(timer)
	select {
	case <-event:
	case <-timer.C:
	case <-c.ending:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// ballot is the nodes' median clock in µs as last observed, and above every ballot this client has seen
// (F1). This process's own wall clock has no part in it. It is 0 while no node's clock is known.
func (c *Client) ballot(now Instant) uint64 {
	median, known := c.medianClock()
	if !known {
		return 0
	}
	if c.protocol.omits(serverBallots) {
		median = 0
	}
	fresh := uint64(max(0, int64(now)/1e3+median))
	for {
		seen := c.seen.Load()
		next := max(fresh, seen+1)
		if c.seen.CompareAndSwap(seen, next) {
			return next
		}
	}
}

// medianClock is the median of the nodes' clocks, in µs ahead of ours, as last observed.
func (c *Client) medianClock() (micros int64, known bool) {
	var array [maxNodes]int64
	offsets := array[:0]
	for _, n := range c.nodes {
		if o := n.clock.Load(); o != nil {
			offsets = append(offsets, o.offset)
		}
	}
	if len(offsets) == 0 {
		return 0, false
	}
	return medianOf(offsets), true
}

// medianOf is the median, the lower one of two, of at least one number. It sorts them.
func medianOf(numbers []int64) int64 {
	slices.Sort(numbers)
	return numbers[(len(numbers)-1)/2]
}

// saw keeps the next ballot above this one.
func (c *Client) saw(ballot uint64) {
	for {
		seen := c.seen.Load()
		if ballot <= seen || c.seen.CompareAndSwap(seen, ballot) {
			return
		}
	}
}

// roundTrip is what a round is expected to take: the median of the nodes' usual round trips.
func (c *Client) roundTrip() time.Duration {
	var array [maxNodes]time.Duration
	trips := array[:0]
	for _, n := range c.nodes {
		if n.clock.Load() != nil {
			trips = append(trips, time.Duration(n.trip.Load()))
		}
	}
	if len(trips) == 0 {
		return time.Millisecond
	}
	slices.Sort(trips)
	return max(trips[len(trips)/2], 100*time.Microsecond)
}

// jitter returns a random duration from half of d to d and a half.
func (c *Client) jitter(d time.Duration) time.Duration {
	return d/2 + c.protocol.random(d+1)
}
