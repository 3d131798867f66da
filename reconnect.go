package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	backoffMin = 10 * time.Millisecond
	backoffMax = time.Second
)

// A reconnect paces the attempts to open one connection again and again: a node's, or its subscriber's. Each pause is
// twice as long as the one before, up to a limit, until a connection has lasted. A random part of it keeps the clients
// of a server that has restarted from all coming at once. One goroutine uses it.
type reconnect struct {
	*settings
	backoff time.Duration // the next pause, but for the random part; 0: backoffMin
}

// lasted has the next pause be short again if the connection has worked for a while. A server that opens connections and ends
// each one at once, as a proxy that knows only some commands, would otherwise be asked a hundred times a second, and the log
// would say each time that the node came and went.
func (r *reconnect) lasted(d time.Duration) {
	if d > backoffMax/2 {
		r.backoff = 0
	}
}

// pause waits until it is time for the next attempt, until ctx ends, or until quit is closed. The pauses after this one
// are no longer than longest.
func (r *reconnect) pause(ctx context.Context, quit <-chan struct{}, longest time.Duration) {
	backoff := max(r.backoff, backoffMin)
	r.backoff = min(2*backoff, longest)
	timer := time.NewTimer(r.jitter(backoff))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-quit:
	}
}

var errMoved = errors.New("it has become a replica, and its address leads to another server now, which is a master")

// lookElsewhere returns nil, or what tells that the connection must end, because the node leads to another server now. It looks
// for that only while the server of this connection is a replica. looking has the goroutine, which ends with ctx.
func (n *node) lookElsewhere(ctx context.Context, looking *sync.WaitGroup) <-chan error {
	if !n.isReplica() {
		return nil
	}
	moved := make(chan error, 1)
	looking.Go(func() {
		again := time.NewTicker(healthInterval)
		defer again.Stop()
		for n.isReplica() {
			if n.leadsElsewhere(ctx) {
				moved <- errMoved
				return
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
		moved <- nil
	})
	return moved
}

func (n *node) isReplica() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server.isReplica()
}

// leadsElsewhere opens another connection to the node, and reports whether that leads to another server, which is a master. A
// name does after a failover, or the node's Dial. The former master need not end its connections, so without this the client
// would stay with it for ever.
func (n *node) leadsElsewhere(ctx context.Context) bool {
	var there serverInfo
	conn, _, err := n.endpoint.open(ctx, n.stallTimeout(), func(conn redis.Conn, login login) error {
		if err := login.start(conn, []any{"INFO"}); err != nil {
			return err
		}
		text, err := redis.String(conn.Receive())
		there = readInfo(text)
		return err
	})
	if err != nil {
		return false
	}
	conn.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	return there.role == "master" && there.runID != "" && there.runID != n.server.runID
}
