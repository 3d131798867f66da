package subject

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// PlainRedlock is the Redlock algorithm as the Redis documentation describes it ("Distributed Locks with
// Redis"), and no more: SET NX PX with one random value on all N masters, each with a small timeout; it is
// had if a majority set it and time is left; else it is unlocked on all of them and tried again after a
// random pause. It keeps no marker, no fence, and does not renew.
//
// Its weaknesses are those that the page leaves to the operator: a master that restarts without its data, is
// flushed, or whose clock steps, gives its vote a second time.
type PlainRedlock struct{}

// Name returns "plain-redlock".
func (PlainRedlock) Name() string { return "plain-redlock" }

// About is for lists.
func (PlainRedlock) About() string {
	return "the quorum algorithm of the Redis documentation and no more: two owners after a restart, a flush, a clock step"
}

const (
	plainPatience = 50 * time.Millisecond // the page: "in the 5-50 milliseconds range" for a lock of 10 s
	plainPause    = 20 * time.Millisecond
)

// Open connects to all nodes.
func (PlainRedlock) Open(_ context.Context, o Options) (Client, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("no nodes")
	}
	c := plainClient{ttl: o.TTL}
	for _, url := range o.URLs {
		c.pools = append(c.pools, newPool(url, min(plainPatience, o.TTL/4)))
	}
	return c, nil
}

type plainClient struct {
	pools []*redis.Pool
	ttl   time.Duration
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

// try is the page's steps 1 to 5.
func (c plainClient) try(name string) (lease Lease, answered int, err error) {
	began := time.Now()
	token := newToken()
	granted := 0
	for _, a := range c.all(func(pool *redis.Pool) (any, error) {
		return do(pool, "SET", name, token, "NX", "PX", millis(c.ttl))
	}) {
		switch {
		case a.err != nil:
			err = a.err
		default:
			answered++
			if a.reply != nil {
				granted++
			}
		}
	}
	drift := c.ttl/100 + 2*time.Millisecond
	until := began.Add(c.ttl - drift)
	if granted > len(c.pools)/2 && time.Now().Before(until) {
		return plainLease{timed{token, until}, c, name}, answered, nil
	}
	_ = c.unlock(name, token)
	return nil, answered, err
}

type plainAnswer struct {
	reply any
	err   error
}

// all does the same at every node at once, and waits for all of them.
func (c plainClient) all(ask func(*redis.Pool) (any, error)) []plainAnswer {
	answers := make([]plainAnswer, len(c.pools))
	var wg sync.WaitGroup
	for i, pool := range c.pools {
		wg.Add(1)
		go func() {
			defer wg.Done()
			answers[i].reply, answers[i].err = ask(pool)
		}()
	}
	wg.Wait()
	return answers
}

// unlock tells every master, "even the instances it believed it was not able to lock".
func (c plainClient) unlock(name, token string) error {
	deleted := 0
	for _, a := range c.all(func(pool *redis.Pool) (any, error) { return run(pool, unlockScript, name, token) }) {
		if n, err := redis.Int(a.reply, a.err); err == nil {
			deleted += n
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
	timed
	client plainClient
	name   string
}

func (l plainLease) Release(context.Context) error { return l.client.unlock(l.name, l.token) }
