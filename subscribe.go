package redlock

import (
	"context"
	"errors"
	"fmt"
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

	mu      sync.Mutex // guards the rest; nothing is called under it
	running bool
	stood   bool  // the subscription was confirmed, on the connection there is or was last
	why     error // why there was no subscription the last times; nil since one was confirmed
	mute    error // why this client may not tell others of its releases; nil if it may
	misses  int   // connections in a row without one
}

const (
	// tidyInterval is how often a subscriber looks whether it is still wanted, and alive.
	tidyInterval = time.Second
	// refusedMax is how long a subscriber waits, at most, before it asks again a server that refused it: an
	// operator has to act first.
	refusedMax = 30 * time.Second
	// missesTold is how many connections in a row fail, of a node that is up, before anybody is told.
	missesTold = 3
)

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
		err := s.once(ctx)
		s.client.waiters.confirm(s.node.index, false)
		if s.idle() {
			return
		}
		if s.isSubscribed() {
			backoff = backoffMin
		} else if err != nil && ctx.Err() == nil {
			s.missed(err)
		}
		timer := time.NewTimer(s.client.jitter(backoff))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		longest := backoffMax
		if isRefusal(err) {
			longest = refusedMax
		}
		backoff = min(2*backoff, longest)
	}
}

// once subscribes on a new connection, and returns why that ended.
func (s *subscriber) once(ctx context.Context) error {
	s.mu.Lock()
	s.stood = false
	s.mu.Unlock()
	conn, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return s.listen(ctx, conn)
}

// idle ends the subscriber if nothing is wanted.
func (s *subscriber) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = s.client.waiters.wanted()
	return !s.running
}

func (s *subscriber) isSubscribed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stood
}

// subscribed notes that the subscription stands.
func (s *subscriber) subscribed() {
	s.mu.Lock()
	s.stood, s.why, s.misses = true, nil, 0
	s.mu.Unlock()
	s.client.waiters.confirm(s.node.index, true)
}

// missed notes that a connection came to no subscription, and says so once.
func (s *subscriber) missed(err error) {
	_, up, _ := s.node.state()
	s.mu.Lock()
	s.misses++
	told := s.why != nil
	if isRefusal(err) || up && s.misses >= missesTold { // else the node itself is away, and says so
		s.why = err
	}
	begins := s.why != nil && !told
	tell := begins && s.mute == nil // else the same was said just now
	s.mu.Unlock()
	if tell {
		s.warn(s.refusal())
	}
	if begins {
		s.client.waiters.wakeAll() // those who hoped to hear poll from now on
	}
}

// mayPublish notes whether this client may tell others of its releases, and says so once if it may not.
func (s *subscriber) mayPublish(err error) {
	s.mu.Lock()
	tell := err != nil && s.mute == nil && s.why == nil
	s.mute = err
	s.mu.Unlock()
	s.client.waiters.setMute(s.node.index, err != nil)
	if tell {
		s.warn(s.refusal())
	}
}

// askPublish asks the same on the node's own connection, where nobody waits and so there is no other.
func (s *subscriber) askPublish() *command {
	return &command{name: "PUBLISH", args: []any{channelPrefix + s.client.waiters.me, ""}, done: func(_ *node, _ request, _ any, err error) {
		if err == nil || isRefusal(err) {
			s.mayPublish(err)
		}
	}}
}

func (s *subscriber) warn(why error) {
	s.client.cfg.Logger.Warn("redlock: waiters of a node poll", "node", s.node.endpoint.name, "error", why)
}

const channelRemedy = "allow the user SUBSCRIBE and PUBLISH on redlock:released:* (ACL: &redlock:released:* +subscribe +publish), and the client one connection more"

// refusal is why waiters have to poll the node, with the remedy; nil if they need not, or nobody has waited lately.
func (s *subscriber) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.why != nil:
		return fmt.Errorf("it does not tell this client of releases, so its waiters poll: %w; %s", s.why, channelRemedy)
	case s.mute != nil:
		return fmt.Errorf("it does not tell others of this client's releases, so they poll: %w; %s", s.mute, channelRemedy)
	default:
		return nil
	}
}

// isDeaf reports whether there is a reason why no subscription is to be expected soon.
func (s *subscriber) isDeaf() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why != nil
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
		err = conn.Send("PUBLISH", channelPrefix+s.client.waiters.me, "") // to nobody: to learn whether it may
	}
	if err == nil {
		err = conn.Flush()
	}
	for range replies {
		if err == nil {
			_, err = conn.Receive()
		}
	}
	if err == nil {
		_, err = conn.Receive()
		if err == nil || isRefusal(err) {
			s.mayPublish(err)
			err = nil
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// listen keeps the connection subscribed until it breaks, nothing is wanted, or ctx ends. It returns why it broke.
func (s *subscriber) listen(ctx context.Context, conn redis.Conn) error {
	pubsub := redis.PubSubConn{Conn: conn}
	if err := pubsub.Subscribe(channelPrefix + s.client.waiters.me); err != nil {
		return err
	}
	var why error // why the reader ended; read once broken is closed
	broken := make(chan struct{})
	var heard atomic.Bool // since the last tick
	go func() {
		defer close(broken)
		why = s.read(pubsub, &heard)
	}()
	defer func() {
		conn.Close()
		<-broken
	}()
	tidy := time.NewTicker(tidyInterval)
	defer tidy.Stop()
	silent := 0
	for s.client.waiters.wanted() {
		select {
		case <-tidy.C:
			if silent++; heard.Swap(false) {
				silent = 0
			}
			if time.Duration(silent)*tidyInterval > healthInterval {
				return errStalled
			}
			if err := pubsub.Ping(""); err != nil {
				return err
			}
		case <-broken:
			return why
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// read hears messages until the connection breaks, or the server refuses.
func (s *subscriber) read(pubsub redis.PubSubConn, heard *atomic.Bool) error {
	for {
		switch m := pubsub.Receive().(type) {
		case error:
			return m
		case redis.Subscription:
			if m.Kind != "subscribe" {
				return errors.New("it ended the subscription")
			}
			s.subscribed()
		case redis.Message:
			s.client.waiters.received(string(m.Data), s.node.index)
		}
		heard.Store(true)
	}
}
