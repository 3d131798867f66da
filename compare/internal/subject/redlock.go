package subject

import (
	"context"
	"errors"

	"github.com/quorumlock/redlock"
)

// redlockSubject has a mutex, with or without fencing tokens.
func redlockSubject(name string, noFence bool) Subject {
	return Subject{Name: name, Renews: true, Open: func(ctx context.Context, o Options) (Client, error) {
		return openRedlock(ctx, o, noFence, func(c *redlock.Client, name string) redlock.Lock { return c.Mutex(name) })
	}}
}

func fairSubject(name string) Subject {
	return Subject{Name: name, Renews: true, Special: true, Open: func(ctx context.Context, o Options) (Client, error) {
		return openRedlock(ctx, o, false, func(c *redlock.Client, name string) redlock.Lock { return c.Mutex(name).Fair() })
	}}
}

func semaphoreSubject(name string, permits int) Subject {
	return Subject{Name: name, Renews: true, Special: true, Permits: permits, Open: func(ctx context.Context, o Options) (Client, error) {
		return openRedlock(ctx, o, false, func(c *redlock.Client, name string) redlock.Lock { return c.Semaphore(name, permits) })
	}}
}

func openRedlock(ctx context.Context, o Options, noFence bool, lock func(*redlock.Client, string) redlock.Lock) (Client, error) {
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(o.URLs...), TTL: o.TTL, NoFence: noFence})
	if err != nil {
		return nil, err
	}
	// The subject before this one may have had another configuration. None of its leases exists any more.
	if err := c.Enroll(ctx, redlock.ChangeConfig()); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
		return nil, errors.Join(err, c.Close())
	}
	return redlockClient{c, lock}, nil
}

type redlockClient struct {
	*redlock.Client
	lock func(c *redlock.Client, name string) redlock.Lock
}

func (c redlockClient) Acquire(ctx context.Context, name string) (Lease, error) {
	lease, err := c.lock(c.Client, name).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return (*redlockLease)(lease), nil
}

type redlockLease redlock.Lease

func (l *redlockLease) Release(ctx context.Context) error { return (*redlock.Lease)(l).Release(ctx) }
func (l *redlockLease) Held() bool                        { return (*redlock.Lease)(l).Valid() }
