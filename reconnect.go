package redlock

import (
	"context"
	"time"
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
