package subject

import (
	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// go-redis writes to stderr about each connection that was cancelled by its context.
func init() { logging.Disable() }

func openGoRedis(server string, o Options) (rsredis.Pool, func() error, error) {
	client, err := newGoRedis(server, o)
	if err != nil {
		return nil, nil, err
	}
	return rsgoredis.NewPool(client), client.Close, nil
}

func newGoRedis(server string, o Options) (*redis.Client, error) {
	network, address, err := networkAddress(server)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(&redis.Options{
		Network: network, Addr: address, PoolSize: o.pool(), DialTimeout: o.Patience, ReadTimeout: o.Patience, WriteTimeout: o.Patience,
	}), nil
}
