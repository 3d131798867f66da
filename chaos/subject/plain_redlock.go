package subject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// PlainRedlock is the Redlock algorithm exactly as the Redis documentation describes it ("Distributed Locks with
// Redis"). It sends SET NX PX with one random value to all N masters, each with a short timeout. It has the lock if a
// majority granted it and time is left. Otherwise it unlocks all masters and tries again after a random pause. It has
// no marker and no fencing token, and it does not renew.
//
// Its weaknesses are what the page leaves to the operator: a master that restarts without its data, is flushed, or
// whose clock steps, gives its vote a second time.
type PlainRedlock struct {
	// Patience is how long a client waits for a node. 0: a tenth of the TTL.
	Patience time.Duration
}

// Name returns "plain-redlock".
func (PlainRedlock) Name() string { return "plain-redlock" }

// About describes the subject in one line.
func (PlainRedlock) About() string {
	return "the quorum algorithm of the Redis documentation, nothing added: two owners after a restart, a flush or a clock step"
}

const plainPause = 20 * time.Millisecond

// plainPatience is how long to wait for a node. The page says "in the 5-50 milliseconds range" for a lock of 10 s. Here
// locks are short, and the servers share a machine that may be busy: 50 ms for a lock of 500 ms.
func plainPatience(ttl time.Duration) time.Duration { return ttl / 10 }

// Open connects to all nodes.
func (s PlainRedlock) Open(_ context.Context, o Options) (Client, error) {
	return openPlain(o, cmp.Or(s.Patience, plainPatience(o.TTL)), plainNode{
		take: func(pool *redis.Pool, name, token string) (bool, error) {
			reply, err := do(pool, "SET", name, token, "NX", "PX", millis(o.TTL))
			return reply != nil, err
		},
		free: func(pool *redis.Pool, name, token string) (bool, error) {
			return redis.Bool(run(pool, unlockScript, name, token))
		},
	})
}

// A plainNode is what is sent to one node: to take the lock there, and to free it. Both report whether it did so.
type plainNode struct {
	take, free func(pool *redis.Pool, name, token string) (bool, error)
}

func openPlain(o Options, patience time.Duration, node plainNode) (Client, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("no nodes")
	}
	c := plainClient{ttl: o.TTL, plainNode: node}
	for _, url := range o.URLs {
		c.pools = append(c.pools, newPool(url, patience))
	}
	return c, nil
}

type plainClient struct {
	plainNode
	pools []*redis.Pool
	ttl   time.Duration
	late  bool // see LateValidity
}

func (c plainClient) Acquire(ctx context.Context, name string) (Lease, error) {
	for {
		lease, answered, err := c.try(name)
		if lease != nil {
			return lease, nil
		}
		select {
		case <-ctx.Done():
			if answered > len(c.pools)/2 {
				return nil, fmt.Errorf("%w: %w", ErrRefused, ctx.Err())
			}
			return nil, errors.Join(ctx.Err(), fmt.Errorf("%d of %d nodes answered: %w", answered, len(c.pools), err))
		case <-time.After(rand.N(plainPause)):
		}
	}
}

// try is steps 1 to 5 of the page.
func (c plainClient) try(name string) (lease Lease, answered int, err error) {
	began := time.Now()
	token := newToken()
	granted := 0
	for _, a := range c.all(func(pool *redis.Pool) (bool, error) { return c.take(pool, name, token) }) {
		if a.err != nil {
			err = a.err
			continue
		}
		answered++
		if a.yes {
			granted++
		}
	}
	if c.late {
		began = time.Now()
	}
	drift := c.ttl/100 + 2*time.Millisecond
	until := began.Add(c.ttl - drift)
	if granted > len(c.pools)/2 && time.Now().Before(until) {
		return plainLease{timedLease{basicLease{name, token}, until}, c}, answered, nil
	}
	_ = c.unlock(name, token)
	return nil, answered, err
}

type plainAnswer struct {
	yes bool
	err error
}

// all sends the same to every node at once and waits for all answers.
func (c plainClient) all(ask func(*redis.Pool) (bool, error)) []plainAnswer {
	answers := make([]plainAnswer, len(c.pools))
	var wg sync.WaitGroup
	for i, pool := range c.pools {
		wg.Go(func() { answers[i].yes, answers[i].err = ask(pool) })
	}
	wg.Wait()
	return answers
}

// unlock sends the script to every master, "even the instances it believed it was not able to lock".
func (c plainClient) unlock(name, token string) error {
	deleted := 0
	for _, a := range c.all(func(pool *redis.Pool) (bool, error) { return c.free(pool, name, token) }) {
		if a.yes {
			deleted++
		}
	}
	if deleted <= len(c.pools)/2 {
		return errNotOurs
	}
	return nil
}

func (c plainClient) Close() error {
	var err error
	for _, pool := range c.pools {
		err = errors.Join(err, pool.Close())
	}
	return err
}

type plainLease struct {
	timedLease
	client plainClient
}

func (l plainLease) Release(context.Context) error { return l.client.unlock(l.name, l.token) }
