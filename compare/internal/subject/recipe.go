package subject

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// recipeTTL is how long a permit that is not given back is taken.
const recipeTTL = 10 * time.Second

var errFull = errors.New("all permits are taken")

// recipeSubject is a semaphore on one server by the usual recipe: a sorted set of those who are in, by the time when they
// came. It sends the commands of mennanov/limiters' concurrent buffer, in one pipeline, without that library: this would
// bring the SDKs of five other stores. It does not wait: who is refused tries again. Of two who come at once for the
// last permit, both may be refused, and its order is that of the clients' clocks.
func recipeSubject(name string, permits int) Subject {
	return Subject{Name: name, OneServer: true, Special: true, Permits: permits, Open: func(_ context.Context, o Options) (Client, error) {
		client, err := newGoRedis(o.URLs[0], o)
		if err != nil {
			return nil, err
		}
		return &recipeClient{client: client, permits: int64(permits)}, nil
	}}
}

type recipeClient struct {
	client  *redis.Client
	permits int64
}

// lastEntry is the number of the last entry of this process in any set.
var lastEntry atomic.Int64

func (c *recipeClient) Acquire(ctx context.Context, name string) (Lease, error) {
	entry := recipeLease{c.client, name, strconv.FormatInt(lastEntry.Add(1), 36)}
	now := time.Now()
	var count *redis.IntCmd
	_, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRemRangeByScore(ctx, name, "-inf", strconv.FormatInt(now.Add(-recipeTTL).UnixNano(), 10))
		p.ZAdd(ctx, name, redis.Z{Score: float64(now.UnixNano()), Member: entry.member})
		count = p.ZCard(ctx, name)
		return nil
	})
	if err == nil && count.Val() > c.permits {
		err = errFull
	}
	if err != nil {
		return nil, errors.Join(err, entry.Release(context.WithoutCancel(ctx)))
	}
	return entry, nil
}

func (c *recipeClient) Close() error { return c.client.Close() }

type recipeLease struct {
	client *redis.Client
	name   string
	member string
}

func (l recipeLease) Release(ctx context.Context) error {
	return l.client.ZRem(ctx, l.name, l.member).Err()
}
