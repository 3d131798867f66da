package subject

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"

	chaos "github.com/quorumlock/redlock/chaos/subject"
)

// Peers are the other libraries as subjects of the chaos harness. Each is used as its README says, with a lease as long as
// the TTL of the run. What a library does not say of a lease, the harness judges by the TTL, and its report says so.
//
// What they wait for a server is a part of the TTL: with the defaults, or none, a client would wait for a silent server for
// many times the TTL, or rueidislock not long enough for a busy machine.
func Peers() []chaos.Subject {
	return []chaos.Subject{
		redsyncPeer("redsync-redigo", "redsync over redigo", openRedigo),
		redsyncPeer("redsync-goredis", "redsync over go-redis", openGoRedis),
		redsyncPeer("redsync-rueidis", "redsync over rueidis", openRueidis),
		rueidislockPeer(),
		redislockPeer(),
	}
}

// A peer is a library in the harness. C is one of its clients, L one of its leases.
type peer[C, L any] struct {
	chaos.Functions[C, L]
	about  string
	quorum func(nodes int) int
	renews bool
}

func (p peer[C, L]) About() string        { return p.about }
func (p peer[C, L]) Quorum(nodes int) int { return p.quorum(nodes) }
func (p peer[C, L]) Renews() bool         { return p.renews }

// HasOwnClock returns true: these libraries read the clock of this machine.
func (p peer[C, L]) HasOwnClock() bool { return true }

func majority(nodes int) int { return nodes/2 + 1 }
func one(int) int            { return 1 }

// options are those of a client in the harness. A server may take this part of a TTL for its answer.
func options(o chaos.Options, part time.Duration) Options {
	return Options{URLs: o.URLs, Goroutines: maxPool, TTL: o.TTL, Patience: o.TTL / part}
}

const (
	ofMany = 10 // a silent one of several servers leaves the lease most of its TTL
	ofOne  = 2
	ofKey  = 10 // after that, rueidislock takes a key for not granted
)

// redsyncPeer has a majority of all servers. A lease is valid until its Until. It is not renewed: redsync leaves Extend to
// its caller.
func redsyncPeer(name, about string, open poolOpener) chaos.Subject {
	return peer[*redsyncClient, *redsync.Mutex]{
		about: about + ": a majority of all servers; a lease is not renewed", quorum: majority,
		Functions: chaos.Functions[*redsyncClient, *redsync.Mutex]{
			Title: name,
			Connect: func(ctx context.Context, o chaos.Options) (*redsyncClient, error) {
				c, err := redsyncSubject(name, false, open).Open(ctx, options(o, ofMany))
				if err != nil {
					return nil, err
				}
				return c.(*redsyncClient), nil
			},
			Disconnect: (*redsyncClient).Close,
			Lock: func(ctx context.Context, c *redsyncClient, name string, ttl time.Duration) (*redsync.Mutex, error) {
				m := c.redsync.NewMutex(name, redsync.WithExpiry(ttl))
				err := m.LockContext(ctx)
				if errors.As(err, new(*redsync.ErrTaken)) {
					err = fmt.Errorf("%w: %w", chaos.ErrRefused, err)
				}
				return m, err
			},
			Unlock: func(ctx context.Context, _ *redsyncClient, m *redsync.Mutex) error {
				return (*redsyncLease)(m).Release(ctx)
			},
			Valid: func(m *redsync.Mutex) bool { return time.Now().Before(m.Until()) },
			Token: (*redsync.Mutex).Value,
		},
	}
}

// rueidislockPeer is on the first server. The library renews a lease, and ends its context when it is lost. Its keys have a
// prefix, so it shows no token.
func rueidislockPeer() chaos.Subject {
	const name = "rueidislock"
	return peer[rueidislockClient, rueidislockLease]{
		about: "rueidislock with KeyMajority 1, on one server; renews its leases", quorum: one, renews: true,
		Functions: chaos.Functions[rueidislockClient, rueidislockLease]{
			Title: name,
			Connect: func(ctx context.Context, o chaos.Options) (rueidislockClient, error) {
				c, err := rueidislockSubject(name, 1).Open(ctx, options(o, ofKey))
				if err != nil {
					return rueidislockClient{}, err
				}
				return c.(rueidislockClient), nil
			},
			Disconnect: rueidislockClient.Close,
			Lock: func(ctx context.Context, c rueidislockClient, name string, _ time.Duration) (rueidislockLease, error) {
				return c.acquireBeyond(ctx, name)
			},
			Unlock: func(ctx context.Context, _ rueidislockClient, l rueidislockLease) error { return l.Release(ctx) },
			Valid:  rueidislockLease.Held,
			Lost:   func(l rueidislockLease) <-chan struct{} { return l.held.Done() },
		},
	}
}

// acquireBeyond acquires a lock that outlives ctx, which bounds only the wait. The library makes the lease's context from
// the one of the call, and lets its keys last no longer than that one.
func (c rueidislockClient) acquireBeyond(ctx context.Context, name string) (rueidislockLease, error) {
	beyond, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	lease, err := c.Acquire(beyond, name)
	switch {
	case err != nil && ctx.Err() != nil: // it waits for as long as another has the lock, or as its server is away
		err = fmt.Errorf("%w, or the server is away: %w", chaos.ErrRefused, ctx.Err())
	case err == nil && !stop(): // granted when the wait was over
		err = errors.Join(ctx.Err(), lease.Release(ctx))
	}
	if err != nil {
		end()
		return rueidislockLease{}, err
	}
	held := lease.(rueidislockLease)
	release := held.cancel
	held.cancel = func() { release(); end() }
	return held, nil
}

// redislockPeer is on the first server. The library does not say for how long a lease is valid without asking the server,
// and leaves Refresh to its caller.
func redislockPeer() chaos.Subject {
	const name = "bsm-redislock"
	return peer[redislockClient, *redislock.Lock]{
		about: "bsm/redislock on one server; a lease is not renewed", quorum: one,
		Functions: chaos.Functions[redislockClient, *redislock.Lock]{
			Title: name,
			Connect: func(ctx context.Context, o chaos.Options) (redislockClient, error) {
				c, err := redislockSubject(name).Open(ctx, options(o, ofOne))
				if err != nil {
					return redislockClient{}, err
				}
				return c.(redislockClient), nil
			},
			Disconnect: redislockClient.Close,
			Lock: func(ctx context.Context, c redislockClient, name string, ttl time.Duration) (*redislock.Lock, error) {
				lock, err := c.obtain(ctx, name, ttl)
				if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
					err = fmt.Errorf("%w: %w", chaos.ErrRefused, err)
				}
				return lock, err
			},
			Unlock: func(ctx context.Context, _ redislockClient, l *redislock.Lock) error { return l.Release(ctx) },
			Token:  (*redislock.Lock).Token,
		},
	}
}
