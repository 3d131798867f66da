package redlock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Client acquires locks on one set of nodes. It is safe for concurrent use. One Client is enough for a process. Get
// one from [New]; the zero Client cannot be used.
//
// It runs two goroutines for each node, one that schedules the renewals, and one for hooks and the log if there are
// any. While locks are contended, it runs three more for each node.
type Client struct {
	cfg         Config
	protocol    *protocol
	agreement   agreement
	ttlMillis   any // Config.TTL, as a script argument
	nodes       []*node
	need        int
	scheduler   *scheduler
	notifier    *notifier // nil: there are no hooks and no logger
	localQueues localQueues
	waiters     waiters
	timers      timers
	seen        atomic.Uint64 // the highest ballot made or seen (F1)
	oldToken    string        // every attempt's token, if freshToken is off

	cancel context.CancelFunc // ends every goroutine
	ending chan struct{}      // closed when Close begins
	ended  chan struct{}      // closed when Close has finished
	opened chan struct{}      // closed when the first round may begin; see awaitOpen
	tried  chan struct{}      // closed when every node has connected or failed to connect, once

	underWay sync.WaitGroup // calls that Close waits for; Add is called under mu, and not after closed is set

	mu      sync.Mutex       // guards the rest; no I/O and no callback under it
	claims  map[string]*node // by run id: the node that this server counts as (N1)
	grace   *time.Timer      // closes opened, although some nodes have not connected
	isOpen  bool
	isTried bool
	closed  bool
	warned  bool // that a node is in quarantine
}

// openGrace is how long the first round waits for the other nodes after a quorum has connected.
const openGrace = 20 * time.Millisecond

// New checks the configuration and starts to connect. It does not wait for any node, so servers that are away are no
// error here. An error is [ErrInvalid] and names the field. Call [Client.Close] when the client is no longer needed.
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

// stallTimeout is how long a connection may take to open, and to answer before it is closed as stalled.
func (c *Client) stallTimeout() time.Duration { return max(4*c.cfg.NodeTimeout, time.Second) }

// claim makes the server count as node n, or returns the node that it already counts as: one server that is listed
// twice must not vote twice (N1).
func (c *Client) claim(runID string, n *node) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.claims[runID]; ok && other != n {
		return other
	}
	c.claims[runID] = n
	return nil
}

// release gives up the claims of node n.
func (c *Client) release(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for runID, owner := range c.claims {
		if owner == n {
			delete(c.claims, runID)
		}
	}
}

// nodeTried is called when a node's first attempt is over, and when the node has become a voter or has stopped being
// one.
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

// nodeChanged is called when a node's connection has opened (err is nil) or broken, and when the first attempt failed.
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

// open lets the first round begin. c.mu is held.
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

// awaitOpen delays the first round until a quorum is connected (plus openGrace for the others) or every node has tried.
// An earlier round would report an outage for a lock that is held, and would have no clock for its ballot (F1).
func (c *Client) awaitOpen(ctx context.Context) error {
	select {
	case <-c.opened: // nearly always; it needs no timer
		return nil
	default:
		return c.awaitEvent(ctx, c.opened, c.stallTimeout())
	}
}

// awaitAll waits until every node has connected or failed to connect once, no longer than stallTimeout.
func (c *Client) awaitAll(ctx context.Context) error {
	return c.awaitEvent(ctx, c.tried, c.stallTimeout())
}

// awaitEvent waits for the event, no longer than patience. It is no error if the event does not come.
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

// ballot is the median of the nodes' clocks in µs, as last observed, and above every ballot that this client has seen
// (F1). This process's wall clock is not used. It is 0 while no node's clock is known.
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

// medianClock is by how many µs the median of the nodes' clocks is ahead of ours, as last observed.
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

// medianOf returns the median of at least one number; of an even count, the lower one of the middle two. It sorts them.
func medianOf(numbers []int64) int64 {
	slices.Sort(numbers)
	return numbers[(len(numbers)-1)/2]
}

// saw makes every later ballot larger than this one.
func (c *Client) saw(ballot uint64) {
	for {
		seen := c.seen.Load()
		if ballot <= seen || c.seen.CompareAndSwap(seen, ballot) {
			return
		}
	}
}

// roundTrip is how long a round usually takes: the median of the nodes' usual round trips.
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

// jitter returns a random duration from 0.5 d to 1.5 d.
func (c *Client) jitter(d time.Duration) time.Duration {
	return d/2 + c.protocol.random(d+1)
}
