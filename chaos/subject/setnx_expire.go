package subject

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
)

// SetnxExpire is the lock of countless tutorials from before Redis 2.6.12: SETNX takes it, EXPIRE then gives
// it an end. The Redis documentation of SETNX warns of such locks, and of the deadlock when "the client
// fails, crashes, or is otherwise not able to release the lock".
//
// Its weakness: a client that dies between the two commands leaves a lock without an end.
type SetnxExpire struct{ OneMaster }

// GapSetnxExpire is the gap in which SetnxExpire can die.
const GapSetnxExpire = "between SETNX and EXPIRE"

// Name returns "setnx-expire".
func (SetnxExpire) Name() string { return "setnx-expire" }

// About is for lists.
func (SetnxExpire) About() string {
	return "SETNX then EXPIRE on one master: a crash between leaves the lock for ever"
}

// Open connects to the first node.
func (SetnxExpire) Open(_ context.Context, o Options) (Client, error) {
	node, err := first(o)
	if err != nil {
		return nil, err
	}
	return setnxClient{newPool(node, o.TTL/2), o}, nil
}

type setnxClient struct {
	pool *redis.Pool
	o    Options
}

func (c setnxClient) Acquire(ctx context.Context, name string) (Lease, error) {
	token := newToken()
	var began time.Time
	err := retry(ctx, pollEvery, func() (bool, error) {
		began = time.Now()
		set, err := redis.Int(do(c.pool, "SETNX", name, token))
		return set == 1, err
	})
	if err != nil {
		return nil, err
	}
	if err := c.o.step(GapSetnxExpire); err != nil {
		return nil, err
	}
	if _, err := do(c.pool, "PEXPIRE", name, millis(c.o.TTL)); err != nil {
		return nil, fmt.Errorf("the lock has no expiry: %w", err)
	}
	return setnxLease{timed{token, began.Add(c.o.TTL)}, c, name}, nil
}

func (c setnxClient) Close() error { return c.pool.Close() }

type setnxLease struct {
	timed
	client setnxClient
	name   string
}

// Release deletes the lock if it is still this owner's, so that nothing but its one weakness shows.
func (l setnxLease) Release(context.Context) error {
	return compareAndDelete(l.client.pool, l.name, l.token)
}

// unlockScript is the one that the Redis documentation gives for safe release.
var unlockScript = redis.NewScript(1, `if redis.call("get",KEYS[1]) == ARGV[1] then
	return redis.call("del",KEYS[1])
else
	return 0
end`)

var errNotOurs = errors.New("the lock was no longer ours")

func compareAndDelete(pool *redis.Pool, name, token string) error {
	deleted, err := redis.Int(run(pool, unlockScript, name, token))
	if err == nil && deleted == 0 {
		err = errNotOurs
	}
	return err
}
