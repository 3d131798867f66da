package subject

import (
	"context"
	"net/url"

	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
)

// openRedigo sets no timeouts, which is the default of redigo. This matters when one server is stopped.
func openRedigo(server string, o Options) (rsredis.Pool, func() error, error) {
	network, address, err := networkAddress(server)
	if err != nil {
		return nil, nil, err
	}
	pool := &redis.Pool{
		MaxIdle: o.pool(), MaxActive: o.pool(), Wait: true,
		DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, network, address) },
	}
	return rsredigo.NewPool(pool), pool.Close, nil
}

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
