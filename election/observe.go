package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Observe returns a channel with the present leader, as soon as it is known, and then each change, in order. That nobody
// leads is a change too: [Leader.None]. If changes come faster than they are read, only the newest is kept. The numbers
// of the leaders grow and never go back.
//
// The channel is closed when ctx ends or the client is closed, and at once if the election cannot be used; then
// [Election.Leader] has the error. While too few nodes answer, nothing comes but what a leader itself says: the last
// leader that was read may no longer lead. The package documentation says how fast changes come.
//
// An observer has a connection of its own to each node. One is enough for a process.
func (e *Election) Observe(ctx context.Context) <-chan Leader {
	leaders := make(chan Leader)
	o := &observer{Election: e, leaders: leaders, messages: make(chan string), mayHaveMissed: make(chan struct{}, 1)}
	if e.check() != nil || !e.nodes.Go(ctx, o.run) {
		close(leaders)
	}
	return leaders
}

// An observer is one call of Observe.
type observer struct {
	*Election
	leaders       chan<- Leader
	messages      chan string
	mayHaveMissed chan struct{} // capacity 1: a subscription was made, so there may have been messages before
}

// A looked is a look that is over.
type looked struct {
	sighting
	err     error
	changes int // of the view, when the look began
}

func (o *observer) run(ctx context.Context) {
	defer close(o.leaders)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for node := range o.nodes.Nodes() {
		wg.Go(func() { o.nodes.Keep(ctx, node, o.subscribe(ctx, o.nodes.Channel(node, o.lockKey))) })
	}

	v := view{owner: nameless{patience: o.nodes.NodeTimeout()}}
	var sent *Leader // nil: nothing was sent
	looks := make(chan looked, 1)
	want, looking := true, false
	timer := time.NewTimer(o.pollPause())
	defer timer.Stop()
	for {
		if want && !looking {
			want, looking = false, true
			now, changes := v.now, v.changes
			wg.Go(func() {
				s, err := o.look(ctx, now)
				looks <- looked{s, err, changes}
			})
		}
		var out chan<- Leader
		if v.known && (sent == nil || *sent != v.now) {
			out = o.leaders
		}
		select {
		case out <- v.now:
			now := v.now
			sent = &now
		case message := <-o.messages:
			want = v.heard(message, o.nodes.Believed()) || want
		case <-o.mayHaveMissed:
			want = true
		case l := <-looks:
			looking = false
			switch {
			case l.err != nil: // ask again when it is time
			case l.changes != v.changes:
				want = true
			case v.saw(l.sighting):
				timer.Reset(min(o.poll, retryPause))
			}
		case <-timer.C:
			want = true
			timer.Reset(o.pollPause())
		case <-ctx.Done():
			return
		}
	}
}

const (
	// retryPause is how soon to look again for the record of a new leader.
	retryPause = 50 * time.Millisecond
	// pingInterval is how often a subscription is checked, and maxSilence how many times in vain before the connection
	// is given up.
	pingInterval = time.Second
	maxSilence   = 5
)

func (o *observer) pollPause() time.Duration {
	return o.poll*3/4 + rand.N(o.poll/2)
}

// subscribe returns a function that receives one node's messages on the channel until the connection breaks, or the server
// ends the subscription.
func (o *observer) subscribe(ctx context.Context, channel string) func(redis.Conn) (worked bool, err error) {
	return func(conn redis.Conn) (worked bool, err error) {
		pubsub := redis.PubSubConn{Conn: conn}
		if err := pubsub.Subscribe(channel); err != nil {
			return false, err
		}
		var heard atomic.Bool
		over := make(chan struct{})
		var pinger sync.WaitGroup
		pinger.Go(func() { ping(pubsub, &heard, over) })
		defer func() {
			close(over)
			conn.Close() // ends a ping that is being written
			pinger.Wait()
		}()
		for {
			switch m := pubsub.Receive().(type) {
			case error:
				// A server that cannot write to its disk answers so to a PING, and goes on sending messages.
				if refusal := redis.Error(""); !errors.As(m, &refusal) || !strings.HasPrefix(refusal.Error(), "MISCONF") {
					return worked, m
				}
			case redis.Subscription:
				if m.Kind != "subscribe" {
					return worked, errors.New("it ended the subscription")
				}
				worked = true
				select {
				case o.mayHaveMissed <- struct{}{}:
				default:
				}
			case redis.Message:
				select {
				case o.messages <- string(m.Data):
				case <-ctx.Done():
					return worked, ctx.Err()
				}
			}
			heard.Store(true)
		}
	}
}

// ping closes the connection when nothing is heard on it any more.
func ping(pubsub redis.PubSubConn, heard *atomic.Bool, over <-chan struct{}) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for silent := 0; silent <= maxSilence; {
		select {
		case <-tick.C:
		case <-over:
			return
		}
		if silent++; heard.Swap(false) {
			silent = 0
		}
		if pubsub.Ping("") != nil {
			break
		}
	}
	pubsub.Conn.Close()
}
