package subject

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// Settings that the library leaves to its user. By default it does not wait. The retry is from the example in its
// documentation.
const (
	redislockTTL   = 10 * time.Second
	redislockRetry = 100 * time.Millisecond
)

func redislockSubject(name string) Subject {
	return Subject{Name: name, OneServer: true, Open: func(_ context.Context, o Options) (Client, error) {
		client, err := newGoRedis(o.URLs[0], o)
		if err != nil {
			return nil, err
		}
		return redislockClient{client, redislock.New(client)}, nil
	}}
}

type redislockClient struct {
	client *redis.Client
	locker *redislock.Client
}

func (c redislockClient) Acquire(ctx context.Context, name string) (Lease, error) {
	lock, err := c.obtain(ctx, name, redislockTTL)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

func (c redislockClient) obtain(ctx context.Context, name string, ttl time.Duration) (*redislock.Lock, error) {
	options := redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockRetry)}
	return c.locker.Obtain(ctx, name, ttl, &options)
}

func (c redislockClient) Close() error { return c.client.Close() }
