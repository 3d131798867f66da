package redlock

import (
	"cmp"
	"context"
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
	*settings
	ttlMillis   any // Config.TTL, as a script argument
	nodes       []*node
	need        int
	siblings    []*Client // the clients of all groups of a Sharded, this one too; nil: there are no groups
	scheduler   *scheduler
	notifier    *notifier // nil: there are no hooks and no logger
	localQueues localQueues
	overlaps    overlaps
	admission   admission
	over        func(r *round, trips int) // leaveAdmission, made once: BenchmarkCycle shows each allocation of an attempt
	waiters     waiters
	quorumLog   quorumLog
	timers      timers
	outbidding  sync.Mutex    // held from the ballot of an attempt for a shared lock until it is sent; nothing waits under it
	seen        atomic.Uint64 // the highest ballot made or seen (F1)
	// agreedBallot is what a quorum of nodes had when they were far ahead of the servers' clocks; see learn.
	agreedBallot atomic.Uint64
	acquiring    atomic.Int64 // calls of Acquire that are under way, for Stats
	oldToken     string       // every attempt's token, if freshToken is off

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
}

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
		settings:  &settings{cfg: cfg, protocol: cmp.Or(cfg.protocol, standard), agreement: agreementOf(&cfg)},
		notifier:  notifier,
		oldToken:  newToken(""),
		need:      cfg.Quorum,
		ttlMillis: millis(cfg.TTL),
		cancel:    cancel,
		ending:    make(chan struct{}),
		ended:     make(chan struct{}),
		opened:    make(chan struct{}),
		tried:     make(chan struct{}),
		claims:    map[string]*node{},
	}
	c.admission.init(c.protocol.firstLimit)
	c.over = c.leaveAdmission
	c.scheduler = newScheduler(cfg.Clock)
	c.scheduler.forgetsTicked = c.protocol.omits(ticksDrained)
	for i, e := range endpoints {
		c.nodes = append(c.nodes, newNode(c.settings, c, i, e))
	}
	c.waiters.init(c)
	go c.scheduler.run(ctx)
	for _, n := range c.nodes {
		go n.run(ctx)
	}
	return c, nil
}

// Dropped is how many calls of hooks and lines of the log were dropped because earlier ones took too long. Up to 4096
// of them can wait. The number never goes down; 0 is the normal value.
func (c *Client) Dropped() uint64 {
	if c.notifier == nil {
		return 0
	}
	return c.notifier.dropped.Load()
}
