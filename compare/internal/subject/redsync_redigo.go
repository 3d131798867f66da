package subject

import (
	"context"
	"errors"
	"net/url"
	"sync"

	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
)

// openRedigo sets no timeouts by default, as redigo does. This matters when one server is stopped.
func openRedigo(server string, o Options) (rsredis.Pool, func() error, error) {
	network, address, err := networkAddress(server)
	if err != nil {
		return nil, nil, err
	}
	pool := &redis.Pool{
		MaxIdle: o.pool(), MaxActive: o.pool(), Wait: true,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, network, address, redigoTimeouts(o)...)
		},
	}
	gated := &gatedPool{Pool: pool}
	return rsredigo.NewPool(gated), gated.Close, nil
}

func redigoTimeouts(o Options) []redis.DialOption {
	if o.Patience == 0 {
		return nil
	}
	return []redis.DialOption{
		redis.DialConnectTimeout(o.Patience), redis.DialReadTimeout(o.Patience), redis.DialWriteTimeout(o.Patience),
	}
}

// A gatedPool closes only while no caller waits for a connection. A redigo pool of limited size (v1.9.3) gives the place of
// a caller whose context has ended back without its mutex, while Close closes the channel of places: a data race, and a
// panic if Close was first. redsync with FailFast leaves such callers behind.
type gatedPool struct {
	*redis.Pool
	mu     sync.RWMutex // held for reading by callers that wait for a connection
	closed bool         // guarded by mu
}

func (p *gatedPool) GetContext(ctx context.Context) (redis.Conn, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return nil, errPoolClosed
	}
	return p.Pool.GetContext(ctx)
}

// Close waits for callers that wait for a connection, until they have one or their contexts end.
func (p *gatedPool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.Pool.Close()
}

var errPoolClosed = errors.New("the pool is closed")

// networkAddress splits a URL of a fleet, for clients that do not support unix:// URLs.
func networkAddress(server string) (network, address string, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", "", err
	}
	if u.Scheme == "unix" {
		return "unix", u.Path, nil
	}
	return "tcp", u.Host, nil
}
