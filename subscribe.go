package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A subscriber gets the messages of one node, on a connection of its own. It runs while somebody waits and for a while
// after, or while it is refused, as three goroutines: run dials, subscribes and pings; a reader receives; a third ends them
// with the client.
type subscriber struct {
	client     *Client
	node       *node
	goroutines sync.WaitGroup
	more       chan struct{} // capacity 1: a lease wants to know of waiters, so subscribe to that channel too

	mu      sync.Mutex // guards the rest; only waiters.wanted is called under it, and no code of the user's
	running bool
	stood   bool  // the subscription was confirmed, on the present or the last connection
	why     error // why subscribing fails though the node is up; nil: not known, or one was confirmed since
	mute    error // why this client may not publish; nil if it may
	misses  int   // connections in a row without a confirmed subscription
	told    bool  // the log has why or mute
}

const (
	// tidyInterval is how often a subscriber checks whether it is still wanted, and whether its connection is alive.
	tidyInterval = time.Second
	// refusedMax is the longest pause before a subscriber asks a server again that refused it: an operator has to act
	// first.
	refusedMax = 30 * time.Second
	// maxMessage is how long a message may be beside the prefix: that of a waiter of a fair lock has its name and a key. A longer
	// one is of no lock. To answer it would hold up votes, because what is sent to a node goes in order.
	maxMessage = maxNameBytes + 128
	// missesTold is how many connections in a row must fail, while the node is up, before this is logged.
	missesTold = 3
)

func newSubscriber(c *Client, n *node) *subscriber {
	return &subscriber{client: c, node: n, more: make(chan struct{}, 1)}
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

// run keeps the node subscribed until nobody wants its messages any more, or the client ends.
func (s *subscriber) run() {
	defer s.goroutines.Done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.goroutines.Add(1)
	go func() { // ends no later than run
		defer s.goroutines.Done()
		select {
		case <-s.client.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	again := reconnect{settings: s.client.settings}
	for ctx.Err() == nil {
		began := s.client.cfg.Clock.Now()
		err := s.once(ctx)
		s.client.waiters.confirm(s.node.index, false)
		if s.idle() {
			return
		}
		if s.isSubscribed() {
			again.lasted(s.client.cfg.Clock.Now().Sub(began))
		} else if err != nil && ctx.Err() == nil {
			s.missed(err)
		}
		longest := backoffMax
		if isRefusal(err) {
			longest = refusedMax
		}
		again.pause(ctx, nil, longest)
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

// idle ends the subscriber if nobody wants its messages. If these were refused, it goes on until they are not: what Status
// says of that would never change otherwise.
func (s *subscriber) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = s.client.waiters.wanted() || s.why != nil
	return !s.running
}

func (s *subscriber) isSubscribed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stood
}

// subscribed notes that the server confirmed the subscription.
func (s *subscriber) subscribed() {
	s.mu.Lock()
	s.stood, s.why, s.misses = true, nil, 0
	s.told = s.told && s.mute != nil
	s.mu.Unlock()
	s.client.waiters.confirm(s.node.index, true)
}

// missed notes that a connection ended without a confirmed subscription, and why.
func (s *subscriber) missed(err error) {
	_, up, _ := s.node.state()
	refused := isRefusal(err)
	s.mu.Lock()
	s.misses++
	known := s.why != nil
	if refused || up && s.misses >= missesTold { // else the node itself is away, which is logged elsewhere
		s.why = inWords(err)
	}
	begins := s.why != nil && !known
	s.mu.Unlock()
	s.tell()
	if begins {
		s.client.waiters.wakeAll() // waiters that hoped for messages poll from now on
	}
}

// mayPublish notes whether this client may publish on the node: err is the server's refusal, or nil.
func (s *subscriber) mayPublish(err error) {
	if isBusy(err) {
		return
	}
	s.mu.Lock()
	s.mute = err
	s.told = s.told && (err != nil || s.why != nil)
	s.mu.Unlock()
	s.client.waiters.setMute(s.node.index, err != nil)
	s.tell()
}

// askPublish asks the server whether this client may publish, on the node's own connection. Status and the node's health
// check use it, because there is no subscriber connection while nobody waits.
func (s *subscriber) askPublish() *command {
	return &command{name: "PUBLISH", args: []any{channelPrefix + s.client.waiters.me, ""}, done: func(_ *node, _ request, _ any, err error) {
		if err == nil || isRefusal(err) {
			s.mayPublish(err)
		}
	}}
}

// tell logs once why waiters poll: what is wrong with messages and what is wrong with publishing are much the same. It does
// not if the server refuses the node's own connection too: the log has that, and its remedy is the first thing to do.
func (s *subscriber) tell() {
	if _, up, away := s.node.state(); !up && isRefusal(away) {
		return
	}
	s.mu.Lock()
	tell := !s.told && (s.why != nil || s.mute != nil)
	s.told = s.told || tell
	s.mu.Unlock()
	if tell {
		s.client.cfg.Logger.Warn("redlock: waiters of a node poll", "node", s.node.endpoint.name, "error", s.refusal())
	}
}

const channelRemedy = "allow the user SUBSCRIBE and PUBLISH on redlock:released:* (ACL: &redlock:released:* +subscribe +publish), and the client one connection more"

// refusal is why waiters poll, with the remedy; nil if no reason is known.
func (s *subscriber) refusal() error {
	s.mu.Lock()
	why, mute := s.why, s.mute
	s.mu.Unlock() // what follows asks the error for its text, and it may be one of the user's Dial
	switch {
	case why != nil:
		return fmt.Errorf("it sends this client no messages about releases, so its waiters poll: %w", withChannelRemedy(why, channelRemedy))
	case mute != nil:
		return fmt.Errorf("it sends others no messages about this client's releases, so they poll: %w", withChannelRemedy(mute, channelRemedy))
	default:
		return nil
	}
}

// withChannelRemedy is why no messages come, and what to do about it: the remedy, but a login that lacks or is wrong needs no
// rights.
func withChannelRemedy(why error, remedy string) error {
	switch {
	case hasCode(why, "NOAUTH"):
		return fmt.Errorf("it demands a login: %w; give the user and the password", why)
	case errors.As(why, new(redis.Error)) && strings.Contains(why.Error(), "WRONGPASS"):
		return fmt.Errorf("%w; check the user name and the password", why)
	default:
		return fmt.Errorf("%w; %s", why, remedy)
	}
}

// isDeaf reports whether there is a known reason to expect no subscription soon.
func (s *subscriber) isDeaf() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why != nil
}

func (s *subscriber) open(ctx context.Context) (redis.Conn, error) {
	conn, _, err := s.node.endpoint.open(ctx, s.client.stallTimeout(), s.handshake)
	return conn, err
}

// handshake logs in. It also sends this client an empty message, to learn whether it may publish.
func (s *subscriber) handshake(conn redis.Conn, login login) error {
	if err := login.start(conn, []any{"PUBLISH", channelPrefix + s.client.waiters.me, ""}, []any{"PING"}); err != nil {
		return err
	}
	_, refusal := conn.Receive()
	if refusal != nil && !isRefusal(refusal) {
		return refusal
	}
	// A server that wants no connection answers so too, and ends it. That says nothing about publishing.
	if _, err := conn.Receive(); conn.Err() != nil {
		if refusal != nil {
			return refusedConnection(refusal)
		}
		return err
	}
	s.mayPublish(refusal)
	return nil
}

// listen keeps the connection subscribed until it breaks, nobody wants its messages (see idle), or ctx ends. It returns why
// it broke.
func (s *subscriber) listen(ctx context.Context, conn redis.Conn) error {
	pubsub := redis.PubSubConn{Conn: conn}
	waiters := &s.client.waiters
	if err := pubsub.Subscribe(channelPrefix+waiters.me, channelPrefix+waiters.meShared, takenPrefix+waiters.id); err != nil {
		return err
	}
	if waiters.isWatching() {
		s.subscribeMore()
	}
	var why error // why the reader ended; to be read only once broken is closed
	broken := make(chan struct{})
	var heard atomic.Bool // something came since the last tick
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
	for waiters.wanted() || s.isDeaf() {
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
		case <-s.more:
			if err := pubsub.Subscribe(wantedPrefix + waiters.id); err != nil { // a second time changes nothing
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

// read receives messages until the connection breaks, or the server refuses or ends the subscription.
func (s *subscriber) read(pubsub redis.PubSubConn, heard *atomic.Bool) error {
	for {
		switch m := pubsub.Receive().(type) {
		case error:
			// A server that cannot write to its disk answers so to a PING, and goes on sending messages.
			if !isRefusal(m) || !hasCode(m, "MISCONF") {
				return m
			}
		case redis.Subscription:
			if m.Kind != "subscribe" {
				return errors.New("it ended the subscription")
			}
			switch m.Channel {
			case takenPrefix + s.client.waiters.id, channelPrefix + s.client.waiters.me:
			case wantedPrefix + s.client.waiters.id:
				s.client.waiters.watchedOn(s.node)
			default: // the second of the two for releases
				s.subscribed()
			}
		case redis.Message:
			s.received(m.Channel, string(m.Data))
		}
		heard.Store(true)
	}
}

func (s *subscriber) received(channel, message string) {
	if len(message) > maxMessage+len(s.client.cfg.Prefix) {
		return
	}
	switch waiters := &s.client.waiters; channel {
	case takenPrefix + waiters.id:
		s.client.taken(message)
	case wantedPrefix + waiters.id:
		waiters.isWanted(message)
	default:
		waiters.received(message, s.node.index, channel == channelPrefix+waiters.meShared)
	}
}

// subscribeMore has the connection, if there is one, subscribe to the messages of waiters. It does not block.
func (s *subscriber) subscribeMore() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}
