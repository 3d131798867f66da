package redlock

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A subscriber hears one node's release messages, on a connection of its own. It runs while some key is
// wanted and for a while after, as two goroutines: run dials, subscribes and pings, a reader listens.
type subscriber struct {
	client     *Client
	node       *node
	wake       chan struct{} // capacity 1: what is wanted has changed
	goroutines sync.WaitGroup

	mu      sync.Mutex // guards running
	running bool
}

// channelPrefix is followed by the lock key; see scripts/release.lua.
const channelPrefix = "redlock:released:"

// tidyInterval is how often a subscriber looks for keys that nobody wants any more.
const tidyInterval = time.Second

func newSubscriber(c *Client, n *node) *subscriber {
	return &subscriber{client: c, node: n, wake: make(chan struct{}, 1)}
}

// want makes the subscriber look at what is wanted, and starts it if it is not running.
func (s *subscriber) want() {
	s.mu.Lock()
	if !s.running && !s.client.isClosed() {
		s.running = true
		s.goroutines.Add(1)
		go s.run()
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
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
		s.client.watch.unconfirm(s.node.index)
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
	s.running = len(s.client.watch.wanted()) > 0
	return !s.running
}

func (s *subscriber) open(ctx context.Context) (redis.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.client.stallTimeout())
	defer cancel()
	conn, err := s.node.endpoint.connect(ctx, s.client.stallTimeout())
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

// listen keeps the connection subscribed to what is wanted, until it breaks, nothing is, or ctx ends.
func (s *subscriber) listen(ctx context.Context, conn redis.Conn) {
	pubsub := redis.PubSubConn{Conn: conn}
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
	have := map[string]bool{}
	tidy := time.NewTicker(tidyInterval)
	defer tidy.Stop()
	silent := 0
	for {
		wanted := s.client.watch.wanted()
		if len(wanted) == 0 || s.update(pubsub, have, wanted) != nil {
			return
		}
		select {
		case <-s.wake:
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

// update subscribes to the keys that are new and leaves those that are no longer wanted.
func (s *subscriber) update(pubsub redis.PubSubConn, have map[string]bool, wanted []string) error {
	keep := make(map[string]bool, len(wanted))
	changed := false
	for _, key := range wanted {
		keep[key] = true
		if !have[key] {
			have[key], changed = true, true
			if err := pubsub.Conn.Send("SUBSCRIBE", channelPrefix+key); err != nil {
				return err
			}
		}
	}
	for key := range have {
		if !keep[key] {
			delete(have, key)
			changed = true
			s.client.watch.left(key, s.node.index)
			if err := pubsub.Conn.Send("UNSUBSCRIBE", channelPrefix+key); err != nil {
				return err
			}
		}
	}
	if !changed {
		return nil
	}
	return pubsub.Conn.Flush()
}

func (s *subscriber) read(pubsub redis.PubSubConn, heard *atomic.Bool) {
	for {
		switch m := pubsub.Receive().(type) {
		case error:
			return
		case redis.Subscription:
			if m.Kind == "subscribe" {
				s.client.watch.confirm(strings.TrimPrefix(m.Channel, channelPrefix), s.node.index)
			}
		case redis.Message:
			s.client.watch.tell(strings.TrimPrefix(m.Channel, channelPrefix), string(m.Data), 1<<s.node.index)
		}
		heard.Store(true)
	}
}
