package subject

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockSubject locks 2*majority-1 keys on one server. Its README asks for a majority of 1 there, and
// for NoLoopTracking where the server knows it; its default is 2.
// Where a reply takes longer than TryNextAfter, 20 ms, it waits for a message that nobody may send.
func rueidislockSubject(name string, majority int32) Subject {
	return Subject{Name: name, OneServer: true, Renews: true, Sleeps: true, Open: func(_ context.Context, o Options) (Client, error) {
		option, err := rueidis.ParseURL(o.URLs[0])
		if err != nil {
			return nil, err
		}
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: option, KeyValidity: o.TTL, KeyMajority: majority, NoLoopTracking: true,
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

// Release returns when the keys are deleted, or could not be: the library does not say which.
func (l rueidislockLease) Release(context.Context) error {
	l.cancel()
	return nil
}

func (l rueidislockLease) Held() bool { return l.held.Err() == nil }
