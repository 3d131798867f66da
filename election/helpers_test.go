package election_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/election"
	"github.com/quorumlock/redlock/redlocktest"
)

// bubble runs a test with n nodes in virtual time, in which work takes no time.
func bubble(t *testing.T, n int, test func(t *testing.T, nodes *redlocktest.Nodes)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, redlocktest.Start(t, n)) })
}

// A process is a client with a network of its own.
type process struct {
	*redlock.Client
	cutOff chan struct{}
	once   sync.Once
}

// cut cuts the process off from all nodes: nothing arrives any more, in either direction. It does not notice.
func (p *process) cut() { p.once.Do(func() { close(p.cutOff) }) }

func start(t *testing.T, nodes *redlocktest.Nodes, change ...func(*redlock.Config)) *process {
	p := &process{cutOff: make(chan struct{})}
	cfg := redlock.Config{Nodes: nodes.Nodes()}
	for i := range cfg.Nodes {
		dial := cfg.Nodes[i].Dial
		cfg.Nodes[i].Dial = func(ctx context.Context) (redis.Conn, error) {
			select {
			case <-p.cutOff:
				return nil, errors.New("no route to host")
			default:
			}
			conn, err := dial(ctx)
			return &cutConn{Conn: conn, cutOff: p.cutOff, closed: make(chan struct{})}, err
		}
	}
	for _, change := range change {
		change(&cfg)
	}
	var err error
	p.Client, err = redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

type cutConn struct {
	redis.Conn
	cutOff <-chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (c *cutConn) isCut() bool {
	select {
	case <-c.cutOff:
		return true
	default:
		return false
	}
}

func (c *cutConn) Flush() error {
	if c.isCut() {
		return nil
	}
	return c.Conn.Flush()
}

func (c *cutConn) Receive() (any, error) {
	reply, err := c.Conn.Receive()
	if c.isCut() {
		<-c.closed
		return nil, errors.New("closed")
	}
	return reply, err
}

func (c *cutConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// far puts a process so far away from the nodes that it hears each reply late.
func far(roundTrip time.Duration) func(*redlock.Config) {
	return func(cfg *redlock.Config) {
		for i := range cfg.Nodes {
			dial := cfg.Nodes[i].Dial
			cfg.Nodes[i].Dial = func(ctx context.Context) (redis.Conn, error) {
				conn, err := dial(ctx)
				return &farConn{Conn: conn, roundTrip: roundTrip}, err
			}
		}
	}
}

type farConn struct {
	redis.Conn
	roundTrip time.Duration

	mu   sync.Mutex // guards the rest
	sent int        // commands that were not flushed
	due  []time.Time
}

func (c *farConn) Send(name string, args ...any) error {
	c.mu.Lock()
	c.sent++
	c.mu.Unlock()
	return c.Conn.Send(name, args...)
}

func (c *farConn) Flush() error {
	c.mu.Lock()
	c.due = append(c.due, slices.Repeat([]time.Time{time.Now().Add(c.roundTrip)}, c.sent)...)
	c.sent = 0
	c.mu.Unlock()
	return c.Conn.Flush()
}

func (c *farConn) Receive() (any, error) {
	reply, err := c.Conn.Receive()
	c.mu.Lock()
	var due time.Time // of a message: now
	if len(c.due) > 0 {
		due, c.due = c.due[0], c.due[1:]
	}
	c.mu.Unlock()
	time.Sleep(time.Until(due))
	return reply, err
}

func campaign(t *testing.T, e *election.Election) *election.Term {
	t.Helper()
	term, err := e.Campaign(t.Context())
	require.NoError(t, err)
	return term
}

// next returns what the observer hears next.
func next(t *testing.T, leaders <-chan election.Leader) election.Leader {
	t.Helper()
	leader, open := <-leaders
	require.True(t, open, "the channel is closed")
	return leader
}

// requireQuiet checks that the observer has nothing to tell now.
func requireQuiet(t *testing.T, leaders <-chan election.Leader) {
	t.Helper()
	synctest.Wait()
	select {
	case leader := <-leaders:
		require.Fail(t, "another change", "%+v", leader)
	default:
	}
}

func leaderOf(term *election.Term) election.Leader {
	return election.Leader{Label: term.Label(), Number: term.Number(), Token: term.Lease().Token()}
}

// refusing refuses connections while refuse is set.
func refusing(dial func(context.Context) (redis.Conn, error), refuse *atomic.Bool) func(context.Context) (redis.Conn, error) {
	return func(ctx context.Context) (redis.Conn, error) {
		if refuse.Load() {
			return nil, errors.New("refused")
		}
		return dial(ctx)
	}
}
