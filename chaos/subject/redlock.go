package subject

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/redlock"
)

// Redlock is this library, by its public API and nothing else.
type Redlock struct {
	// Configure, where it is not nil, changes the configuration of every client: to switch a defence off and
	// see what it was good for.
	Configure func(*redlock.Config)
}

// Name returns "redlock".
func (Redlock) Name() string { return "redlock" }

// Renews says that a lease goes on for as long as its holder wants it.
func (Redlock) Renews() bool { return true }

// About is for lists.
func (Redlock) About() string { return "this library: quorum, quarantine, fences" }

const (
	enrollPatience = 10 * time.Second // for all nodes of a new fleet
	maxSkew        = 500 * time.Millisecond
)

// Open makes a client. Where o.Fresh says that no lease can be out, it says so to the nodes.
func (s Redlock) Open(ctx context.Context, o Options) (Client, error) {
	// The servers of a fleet share one machine's clock, so a quarantine need not wait long for skew.
	cfg := redlock.Config{Nodes: redlock.Nodes(o.URLs...), TTL: o.TTL, MaxTTL: o.TTL, MaxClockSkew: min(maxSkew, o.TTL/2), Durable: o.Durable}
	if s.Configure != nil {
		s.Configure(&cfg)
	}
	client, err := redlock.New(cfg)
	if err != nil {
		return nil, err
	}
	if !o.Fresh {
		return redlockClient{client}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, enrollPatience)
	defer cancel()
	for { // a node whose connection is still being opened is not reached
		err := client.Enroll(ctx)
		if err == nil {
			return redlockClient{client}, nil
		}
		if !errors.Is(err, redlock.ErrNoQuorum) || ctx.Err() != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
}

type redlockClient struct{ client *redlock.Client }

func (c redlockClient) Acquire(ctx context.Context, name string) (Lease, error) {
	lease, err := c.client.Mutex(name).Acquire(ctx)
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
