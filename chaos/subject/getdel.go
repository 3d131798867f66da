package subject

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"
)

// GetDel takes the lock as the Redis documentation has it, SET NX PX with a random value, but releases it by
// GET, a comparison in the client, and DEL. The documentation of SET shows the script that it should be.
//
// Its weakness: if the lock ends between GET and DEL, DEL deletes the lock of the next owner.
type GetDel struct{ OneMaster }

// GapGetDel is the gap in which a release of GetDel can be held up.
const GapGetDel = "between GET and DEL"

// Name returns "get-del".
func (GetDel) Name() string { return "get-del" }

// About is for lists.
func (GetDel) About() string {
	return "SET NX PX on one master, released by GET then DEL: a slow release deletes another's lock"
}

// Open connects to the first node.
func (GetDel) Open(_ context.Context, o Options) (Client, error) {
	node, err := first(o)
	if err != nil {
		return nil, err
	}
	return getdelClient{newPool(node, o.TTL/2), o}, nil
}

type getdelClient struct {
	pool *redis.Pool
	o    Options
}

func (c getdelClient) Acquire(ctx context.Context, name string) (Lease, error) {
	l, err := setNX(ctx, c.pool, name, c.o.TTL)
	if err != nil {
		return nil, err
	}
	return getdelLease{l, c, name}, nil
}

// setNX waits for a lock on one master.
func setNX(ctx context.Context, pool *redis.Pool, name string, ttl time.Duration) (timed, error) {
	token := newToken()
	var began time.Time
	err := retry(ctx, pollEvery, func() (bool, error) {
		began = time.Now()
		reply, err := do(pool, "SET", name, token, "NX", "PX", millis(ttl))
		return reply != nil, err
	})
	return timed{token, began.Add(ttl)}, err
}

func (c getdelClient) Close() error { return c.pool.Close() }

type getdelLease struct {
	timed
	client getdelClient
	name   string
}

func (l getdelLease) Release(context.Context) error {
	owner, err := redis.String(do(l.client.pool, "GET", l.name))
	if err == redis.ErrNil || err == nil && owner != l.token {
		return errNotOurs
	}
	if err != nil {
		return err
	}
	if err := l.client.o.step(GapGetDel); err != nil {
		return err
	}
	_, err = do(l.client.pool, "DEL", l.name)
	return err
}
