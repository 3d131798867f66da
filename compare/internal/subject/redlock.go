package subject

import (
	"context"

	"github.com/quorumlock/redlock"
)

func redlockSubject(name string, noFence bool) Subject {
	return Subject{Name: name, Renews: true, Open: func(_ context.Context, o Options) (Client, error) {
		c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(o.URLs...), TTL: o.TTL, NoFence: noFence})
		if err != nil {
			return nil, err
		}
		return redlockClient{c}, nil
	}}
}

type redlockClient struct{ *redlock.Client }

func (c redlockClient) Acquire(ctx context.Context, name string) (Lease, error) {
	lease, err := c.Mutex(name).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return (*redlockLease)(lease), nil
}

type redlockLease redlock.Lease

func (l *redlockLease) Release(ctx context.Context) error { return (*redlock.Lease)(l).Release(ctx) }
func (l *redlockLease) Held() bool                        { return (*redlock.Lease)(l).Valid() }
