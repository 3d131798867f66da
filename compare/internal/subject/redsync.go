package subject

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
)

// A poolOpener makes redsync's connection pool for one server, and returns a function that closes it.
type poolOpener func(url string, o Options) (redis.Pool, func() error, error)

// redsyncSubject with FailFast returns at a majority. SETs that are still in flight are then cancelled with the
// context, or overtaken by their DEL on another connection.
func redsyncSubject(name string, failFast bool, open poolOpener) Subject {
	return Subject{Name: name, Litters: failFast, Open: func(_ context.Context, o Options) (Client, error) {
		c := &redsyncClient{}
		var pools []redis.Pool
		for _, url := range o.URLs {
			pool, closePool, err := open(url, o)
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			pools, c.closers = append(pools, pool), append(c.closers, closePool)
		}
		c.redsync = redsync.New(pools...)
		if failFast {
			c.options = []redsync.Option{redsync.WithFailFast(true)}
		}
		return c, nil
	}}
}

type redsyncClient struct {
	redsync *redsync.Redsync
	options []redsync.Option
	closers []func() error
}

func (c *redsyncClient) Acquire(ctx context.Context, name string) (Lease, error) {
	m := c.redsync.NewMutex(name, c.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return (*redsyncLease)(m), nil
}

func (c *redsyncClient) Close() error {
	var errs []error
	for _, closePool := range c.closers {
		errs = append(errs, closePool())
	}
	return errors.Join(errs...)
}

type redsyncLease redsync.Mutex

func (l *redsyncLease) Release(ctx context.Context) error {
	ok, err := (*redsync.Mutex)(l).UnlockContext(ctx)
	if !ok && err == nil {
		err = errNotOurs
	}
	return err
}
