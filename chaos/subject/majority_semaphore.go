package subject

import (
	"context"
	"strconv"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/chaos/history"
)

// MajoritySemaphore is the obvious semaphore over several masters: each has a set of owners, with as many places as
// there are permits, and whoever is in the sets of a majority has a permit.
//
// Its weakness: majorities of places are not majorities of nodes. With three nodes and two permits, three clients that
// have a place on two nodes each fill all six places, and each has a majority. No fault is needed.
type MajoritySemaphore struct{}

// Name returns "majority-semaphore".
func (MajoritySemaphore) Name() string { return "majority-semaphore" }

// About describes the subject in one line.
func (MajoritySemaphore) About() string {
	return "a semaphore that counts a majority for each permit: too many holders if clients see different nodes"
}

// Kind returns that it is a semaphore, and how many permits it has.
func (MajoritySemaphore) Kind() Kind {
	return Kind{Lock: history.Semaphore, Permits: defaultPermits}
}

// Open connects to all nodes.
func (s MajoritySemaphore) Open(_ context.Context, o Options) (Client, error) {
	client, err := openPlain(o, plainPatience(o.TTL), plainNode{})
	if err != nil {
		return nil, err
	}
	return majorityClient{client.(plainClient), s.Kind().Permits}, nil
}

type majorityClient struct {
	plainClient
	permits int
}

// The members of the set are "<number> <token>", one for each permit that the owner has, and their scores are the ends
// of the leases.
var (
	enterScript = redis.NewScript(1, `local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if redis.call('ZCARD', KEYS[1]) + ARGV[2] > tonumber(ARGV[3]) then return 0 end
for i = 1, tonumber(ARGV[2]) do
	redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[4] * 1000), i .. ' ' .. ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1`)
	exitScript = redis.NewScript(1, `local left = 0
for i = 1, tonumber(ARGV[2]) do left = redis.call('ZREM', KEYS[1], i .. ' ' .. ARGV[1]) end
return left`)
)

func (c majorityClient) Acquire(ctx context.Context, name string) (Lease, error) {
	return c.AcquireAs(ctx, name, Want{Permits: 1})
}

// AcquireAs takes as many permits as are wanted, all or none on each node.
func (c majorityClient) AcquireAs(ctx context.Context, name string, w Want) (Lease, error) {
	wants := strconv.Itoa(max(1, w.Permits))
	c.take = func(pool *redis.Pool, name, token string) (bool, error) {
		return redis.Bool(run(pool, enterScript, name, token, wants, c.permits, millis(c.ttl)))
	}
	c.free = func(pool *redis.Pool, name, token string) (bool, error) {
		return redis.Bool(run(pool, exitScript, name, token, wants))
	}
	return c.plainClient.Acquire(ctx, name)
}
