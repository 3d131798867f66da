package subject

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Watchdog is a lock as Redisson's RLock is documented ("Locks and synchronizers", and the scripts of
// RedissonLock): a hash of one field, the owner's id, with a count for re-entrance, and a watchdog that renews
// it every third of its time. Waiting is by polling here, not by messages.
//
// Its weaknesses: it lives on one master, so it is lost with it; and its holder is never told. The holder
// believes until it unlocks.
type Watchdog struct{ OneMaster }

// Name returns "watchdog".
func (Watchdog) Name() string { return "watchdog" }

// Renews says that a lease goes on for as long as its holder wants it.
func (Watchdog) Renews() bool { return true }

// About is for lists.
func (Watchdog) About() string {
	return "a reentrant hash lock with renewal on one master: two owners after a failover, and its loss is silent"
}

// Open connects to the first node.
func (Watchdog) Open(_ context.Context, o Options) (Client, error) {
	node, err := first(o)
	if err != nil {
		return nil, err
	}
	return &watchdogClient{pool: newPool(node, o.TTL/2), ttl: o.TTL, id: newToken()}, nil
}

type watchdogClient struct {
	pool *redis.Pool
	ttl  time.Duration
	id   string

	mu      sync.Mutex // guards threads; nothing waits under it
	threads int

	renewals sync.WaitGroup
}

var (
	watchdogLock = redis.NewScript(1, `if (redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
	redis.call('hincrby', KEYS[1], ARGV[2], 1)
	redis.call('pexpire', KEYS[1], ARGV[1])
	return nil
end
return redis.call('pttl', KEYS[1])`)
	watchdogRenew = redis.NewScript(1, `if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
	redis.call('pexpire', KEYS[1], ARGV[1])
	return 1
end
return 0`)
	watchdogUnlock = redis.NewScript(1, `if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
	redis.call('pexpire', KEYS[1], ARGV[1])
	return 0
end
redis.call('del', KEYS[1])
return 1`)
)

// Acquire locks as a thread of its own would: a thread that has the lock may enter again.
func (c *watchdogClient) Acquire(ctx context.Context, name string) (Lease, error) {
	c.mu.Lock()
	c.threads++
	owner := fmt.Sprintf("%s:%d", c.id, c.threads)
	c.mu.Unlock()
	err := retry(ctx, pollEvery, func() (bool, error) {
		reply, err := run(c.pool, watchdogLock, name, millis(c.ttl), owner)
		return reply == nil, err
	})
	if err != nil {
		return nil, err
	}
	l := &watchdogLease{client: c, name: name, owner: owner, unlocked: make(chan struct{})}
	c.renewals.Add(1)
	go l.watch()
	return l, nil
}

func (c *watchdogClient) Close() error {
	c.renewals.Wait()
	return c.pool.Close()
}

type watchdogLease struct {
	client      *watchdogClient
	name, owner string
	once        sync.Once
	unlocked    chan struct{}
}

// watch renews until the lock is unlocked, or is found gone: then it stops, and tells nobody.
func (l *watchdogLease) watch() {
	defer l.client.renewals.Done()
	ticker := time.NewTicker(l.client.ttl / 3)
	defer ticker.Stop()
	for {
		select {
		case <-l.unlocked:
			return
		case <-ticker.C:
			renewed, err := redis.Int(run(l.client.pool, watchdogRenew, l.name, millis(l.client.ttl), l.owner))
			if err == nil && renewed == 0 {
				return
			}
		}
	}
}

func (l *watchdogLease) Valid() bool {
	select {
	case <-l.unlocked:
		return false
	default:
		return true
	}
}

func (l *watchdogLease) Lost() <-chan struct{} { return nil }
func (l *watchdogLease) Fence() uint64         { return 0 }
func (l *watchdogLease) Token() string         { return l.owner }

func (l *watchdogLease) Release(context.Context) error {
	l.once.Do(func() { close(l.unlocked) })
	_, err := redis.Int(run(l.client.pool, watchdogUnlock, l.name, millis(l.client.ttl), l.owner))
	if err == redis.ErrNil {
		return errNotOurs
	}
	return err
}
