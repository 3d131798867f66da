package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A subscriber hears what one node keeps for this client, on a connection of its own. It runs while somebody
// waits and for a while after, as two goroutines: run dials, subscribes and pings, a reader listens.
type subscriber struct {
	client     *Client
	node       *node
	goroutines sync.WaitGroup

	mu      sync.Mutex // guards running
	running bool
}

// tidyInterval is how often a subscriber looks whether it is still wanted, and alive.
const tidyInterval = time.Second

func newSubscriber(c *Client, n *node) *subscriber {
	return &subscriber{client: c, node: n}
}

// want starts the subscriber if it is not running.
func (s *subscriber) want() {
	s.mu.Lock()
	if !s.running && !s.client.isClosed() {
		s.running = true
		s.goroutines.Add(1)
		go s.run()
	}
	s.mu.Unlock()
}

// run listens until nothing is wanted any more or the client ends.
func (s *subscriber) run() {
	defer s.goroutines.Done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.goroutines.Add(1)
	go func() { // ends with run, at the latest
		defer s.goroutines.Done()
		select {
		case <-s.client.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	backoff := backoffMin
	for ctx.Err() == nil {
		if conn, err := s.open(ctx); err == nil {
			s.listen(ctx, conn)
			conn.Close()
			backoff = backoffMin
		}
		s.client.watch.confirm(s.node.index, false)
		if s.idle() {
			return
		}
		timer := time.NewTimer(s.client.jitter(backoff))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		backoff = min(2*backoff, backoffMax)
	}
}

// idle ends the subscriber if nothing is wanted.
func (s *subscriber) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = s.client.watch.wanted()
	return !s.running
}

func (s *subscriber) open(ctx context.Context) (redis.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.client.stallTimeout())
	defer cancel()
	conn, _, err := s.node.endpoint.connect(ctx, s.client.stallTimeout())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	replies, err := s.node.endpoint.login(conn)
	if err == nil {
		err = conn.Flush()
	}
	for range replies {
		if err == nil {
			_, err = conn.Receive()
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// listen keeps the connection subscribed until it breaks, nothing is wanted, or ctx ends.
func (s *subscriber) listen(ctx context.Context, conn redis.Conn) {
	pubsub := redis.PubSubConn{Conn: conn}
	if pubsub.Subscribe(channelPrefix+s.client.watch.me) != nil {
		return
	}
	broken := make(chan struct{})
	var heard atomic.Bool // since the last tick
	go func() {
		defer close(broken)
		s.read(pubsub, &heard)
	}()
	defer func() {
		conn.Close()
		<-broken
	}()
	tidy := time.NewTicker(tidyInterval)
	defer tidy.Stop()
	silent := 0
	for s.client.watch.wanted() {
		select {
		case <-tidy.C:
			if silent++; heard.Swap(false) {
				silent = 0
			}
			if time.Duration(silent)*tidyInterval > healthInterval || pubsub.Ping("") != nil {
				return
			}
		case <-broken:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *subscriber) read(pubsub redis.PubSubConn, heard *atomic.Bool) {
	for {
		switch m := pubsub.Receive().(type) {
		case error:
			return
		case redis.Subscription:
			s.client.watch.confirm(s.node.index, m.Kind == "subscribe")
		case redis.Message:
			s.client.watch.told(string(m.Data), s.node.index)
		}
		heard.Store(true)
	}
}
