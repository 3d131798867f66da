package subject

import (
	"context"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

// GetSet is the "design pattern: locking with SETNX" of the Redis documentation of SETNX: the lock's value is
// the wall-clock time at which it ends; who finds that time in the past takes the lock over with GETSET, and
// has it if GETSET returned a time in the past too.
//
// Its weakness: whether a lock has ended is judged by the clock of whoever wants it. A client whose clock is
// ahead takes a lock that is held.
type GetSet struct{ OneMaster }

// Name returns "getset".
func (GetSet) Name() string { return "getset" }

// About is for lists.
func (GetSet) About() string {
	return "SETNX and GETSET of the expiry on one master: a client whose clock is ahead takes a held lock"
}

// Open connects to the first node.
func (GetSet) Open(_ context.Context, o Options) (Client, error) {
	node, err := first(o)
	if err != nil {
		return nil, err
	}
	return getsetClient{newPool(node, o.TTL/2), o}, nil
}

type getsetClient struct {
	pool *redis.Pool
	o    Options
}

// now is what this client takes for the time.
func (c getsetClient) now() time.Time {
	if c.o.Clock == nil {
		return time.Now()
	}
	return time.Now().Add(c.o.Clock())
}

func (c getsetClient) Acquire(ctx context.Context, name string) (Lease, error) {
	var began time.Time
	var value string
	err := retry(ctx, pollEvery, func() (bool, error) {
		began = time.Now()
		// In microseconds: the documentation's seconds would make two owners of one second look the same.
		value = strconv.FormatInt(c.now().Add(c.o.TTL).UnixMicro(), 10)
		return c.try(name, value)
	})
	if err != nil {
		return nil, err
	}
	return getsetLease{timed{value, began.Add(c.o.TTL)}, c, name}, nil
}

func (c getsetClient) try(name, value string) (bool, error) {
	set, err := redis.Int(do(c.pool, "SETNX", name, value))
	if set == 1 || err != nil {
		return set == 1, err
	}
	reply, err := do(c.pool, "GET", name)
	if reply == nil || err != nil {
		return false, err // nil: it was released just now, so SETNX again
	}
	if past, err := c.past(reply, nil); !past || err != nil {
		return false, err
	}
	return c.past(do(c.pool, "GETSET", name, value))
}

// past says whether the time that a reply holds is over. No value: it was deleted, and was free.
func (c getsetClient) past(reply any, err error) (bool, error) {
	ends, err := redis.Int64(reply, err)
	if err == redis.ErrNil {
		return true, nil
	}
	return err == nil && ends <= c.now().UnixMicro(), err
}

func (c getsetClient) Close() error { return c.pool.Close() }

type getsetLease struct {
	timed
	client getsetClient
	name   string
}

// Release deletes the lock, as the pattern says, if its time is not over. It compares too, so that nothing
// but the one weakness shows.
func (l getsetLease) Release(context.Context) error {
	return compareAndDelete(l.client.pool, l.name, l.token)
}
