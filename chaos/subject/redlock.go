package subject

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/redlock"
)

// Redlock is this library. It uses nothing but the public API.
type Redlock struct {
	// Configure, if it is not nil, changes the configuration of every client. A test can switch a defence off and show
	// what it prevents.
	Configure func(*redlock.Config)
}

// Name returns "redlock".
func (Redlock) Name() string { return "redlock" }

// Renews returns true: a lease is renewed until it is released.
func (Redlock) Renews() bool { return true }

// About describes the subject in one line.
func (Redlock) About() string { return "this library: quorum, quarantine, fencing tokens" }

const maxSkew = 500 * time.Millisecond

// Open makes a client. If o.Fresh says that no lease can exist, Open enrolls the nodes.
func (s Redlock) Open(ctx context.Context, o Options) (Client, error) {
	client, err := s.open(ctx, o)
	if err != nil {
		return nil, err
	}
	return redlockClient{client}, nil
}

func (s Redlock) open(ctx context.Context, o Options) (*redlock.Client, error) {
	// All servers of a fleet share the clock of one machine, so a quarantine needs little time for clock skew.
	cfg := redlock.Config{Nodes: redlock.Nodes(o.URLs...), TTL: o.TTL, MaxTTL: o.TTL, MaxClockSkew: min(maxSkew, o.TTL/2), Durable: o.Durable}
	if s.Configure != nil {
		s.Configure(&cfg)
	}
	client, err := redlock.New(cfg)
	if err != nil {
		return nil, err
	}
	if !o.Fresh {
		return client, nil
	}
	var last error // which node was not enrolled
	for {          // again while a node is still connecting
		err := client.Enroll(ctx)
		if err == nil {
			return client, nil
		}
		if !errors.Is(err, redlock.ErrNoQuorum) || ctx.Err() != nil {
			return nil, errors.Join(err, last, client.Close())
		}
		last = err
	}
}

type redlockClient struct{ client *redlock.Client }

func (c redlockClient) Acquire(ctx context.Context, name string) (Lease, error) {
	return acquired(c.client.Mutex(name).Acquire(ctx))
}

// acquired turns the result of an Acquire into that of the subject.
func acquired(lease *redlock.Lease, err error) (Lease, error) {
	switch {
	case err == nil:
		return redlockLease{lease}, nil
	case errors.Is(err, redlock.ErrHeld):
		return nil, errors.Join(ErrRefused, err)
	default:
		return nil, err
	}
}

func (c redlockClient) Close() error { return c.client.Close() }

type redlockLease struct{ *redlock.Lease }

func (l redlockLease) Lost() <-chan struct{} { return l.Context().Done() }
