package subject

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Watchdog is a lock as Redisson documents its RLock ("Locks and synchronizers", and the scripts of RedissonLock). The
// key is a hash with one field: the owner's id, and how often it entered. A watchdog renews it every third of its TTL.
// Unlike Redisson, its waiters poll.
//
// Its weaknesses: the lock is on one master and is lost with it. And its holder is never notified: it believes that it
// holds the lock until it unlocks it.
type Watchdog struct{ OneMaster }

// Name returns "watchdog".
func (Watchdog) Name() string { return "watchdog" }

// Renews returns true: a lease is renewed until it is released.
func (Watchdog) Renews() bool { return true }

// About describes the subject in one line.
func (Watchdog) About() string {
	return "a reentrant hash lock with renewal on one master: two owners after a failover, and its holder is not notified"
}

// Open connects to the first node.
func (Watchdog) Open(_ context.Context, o Options) (Client, error) {
	m, err := openMaster(o)
	if err != nil {
		return nil, err
	}
	return &watchdogClient{master: m, id: newToken()}, nil
}

type watchdogClient struct {
	master
	id       string
	threads  atomic.Int64
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

// Acquire gives every lease a thread number of its own, because a thread that holds the lock may enter it again.
func (c *watchdogClient) Acquire(ctx context.Context, name string) (Lease, error) {
	owner := fmt.Sprintf("%s:%d", c.id, c.threads.Add(1))
	err := poll(ctx, func() (bool, error) {
		reply, err := c.run(watchdogLock, name, millis(c.TTL), owner)
		return reply == nil, err
	})
	if err != nil {
		return nil, err
	}
	l := &watchdogLease{basicLease: basicLease{name, owner}, client: c, unlocked: make(chan struct{})}
	c.renewals.Go(l.renew)
	return l, nil
}

func (c *watchdogClient) Close() error {
	c.renewals.Wait()
	return c.master.Close()
}

type watchdogLease struct {
	basicLease
	client   *watchdogClient
	once     sync.Once
	unlocked chan struct{}
}

// run runs a script for this owner.
func (l *watchdogLease) run(script *redis.Script) (int, error) {
	return redis.Int(l.client.run(script, l.name, millis(l.client.TTL), l.token))
}

// renew runs until the lock is unlocked or is found gone. In the second case it stops and notifies nobody.
func (l *watchdogLease) renew() {
	ticker := time.NewTicker(l.client.TTL / 3)
	defer ticker.Stop()
	for {
		select {
		case <-l.unlocked:
			return
		case <-ticker.C:
			if renewed, err := l.run(watchdogRenew); err == nil && renewed == 0 {
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

func (l *watchdogLease) Release(context.Context) error {
	l.once.Do(func() { close(l.unlocked) })
	_, err := l.run(watchdogUnlock)
	if err == redis.ErrNil {
		return errNotOurs
	}
	return err
}
