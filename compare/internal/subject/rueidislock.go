package subject

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockSubject locks 2*majority-1 keys on one server. The README of rueidislock recommends a majority of 1 for
// one server, and NoLoopTracking if the server supports it. Its default majority is 2. If a reply takes longer than
// TryNextAfter, by default 20 ms, it waits for a message that may never come.
func rueidislockSubject(name string, majority int32) Subject {
	return Subject{Name: name, OneServer: true, Renews: true, Sleeps: true, Open: func(_ context.Context, o Options) (Client, error) {
		option, err := rueidis.ParseURL(o.URLs[0])
		if err != nil {
			return nil, err
		}
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: option, KeyValidity: o.TTL, KeyMajority: majority, NoLoopTracking: true, TryNextAfter: o.Patience,
		})
		if err != nil {
			return nil, err
		}
		return rueidislockClient{locker}, nil
	}}
}

type rueidislockClient struct{ locker rueidislock.Locker }

func (c rueidislockClient) Acquire(ctx context.Context, name string) (Lease, error) {
	held, cancel, err := c.locker.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidislockLease{held, cancel}, nil
}

func (c rueidislockClient) Close() error {
	c.locker.Close()
	return nil
}

type rueidislockLease struct {
	held   context.Context
	cancel context.CancelFunc
}

// Release returns when the keys are deleted or could not be deleted. The library does not say which.
func (l rueidislockLease) Release(context.Context) error {
	l.cancel()
	return nil
}

func (l rueidislockLease) Held() bool { return l.held.Err() == nil }
