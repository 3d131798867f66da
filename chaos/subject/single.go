package subject

import (
	"context"

	"github.com/gomodule/redigo/redis"
)

// Single is the "correct implementation with a single instance" of the Redis documentation, "Distributed Locks
// with Redis": SET NX PX with a random value, released by the compare-and-delete script.
//
// Its weakness is the one that the same page names: replication is asynchronous, so a replica that is
// promoted may not know of the lock. So it is with a master that restarts without its data.
type Single struct{ OneMaster }

// Name returns "single".
func (Single) Name() string { return "single" }

// About is for lists.
func (Single) About() string {
	return "SET NX PX and compare-and-delete on one master with a replica: two owners after a failover"
}

// Open connects to the first node.
func (Single) Open(_ context.Context, o Options) (Client, error) {
	node, err := first(o)
	if err != nil {
		return nil, err
	}
	return singleClient{newPool(node, o.TTL/2), o}, nil
}

type singleClient struct {
	pool *redis.Pool
	o    Options
}

func (c singleClient) Acquire(ctx context.Context, name string) (Lease, error) {
	l, err := setNX(ctx, c.pool, name, c.o.TTL)
	if err != nil {
		return nil, err
	}
	return singleLease{l, c.pool, name}, nil
}

func (c singleClient) Close() error { return c.pool.Close() }

type singleLease struct {
	timed
	pool *redis.Pool
	name string
}

func (l singleLease) Release(context.Context) error {
	return compareAndDelete(l.pool, l.name, l.token)
}
