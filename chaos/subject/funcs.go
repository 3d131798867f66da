package subject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Functions is a mutex under test that is made of functions: C is a client of its library, L what a holder has. Connect,
// Lock and Unlock are required. The judge learns only what the others say: without Valid, a holder believes for a TTL from
// its call of Lock, and not at all if the call took longer; without Fence and Token, the checks of fencing tokens and of
// late losses are left out. The report says so.
//
// The functions may be called concurrently.
type Functions[C, L any] struct {
	Title string // its name in reports. Default: "functions"
	// Connect makes a client with its own connections to the nodes at o.URLs, and to nothing else: a fault may be that of
	// one client.
	Connect func(ctx context.Context, o Options) (C, error)
	// Disconnect closes the client. nil: there is nothing to close.
	Disconnect func(client C) error
	// Lock waits for the lock until ctx ends. The lock ends after the TTL if its holder dies. The error wraps ErrRefused if
	// somebody else holds the lock; any other is a failure of unknown effect.
	Lock   func(ctx context.Context, client C, name string, ttl time.Duration) (L, error)
	Unlock func(ctx context.Context, client C, lease L) error

	// Each of these may be nil. They are the methods of Lease.
	Valid func(lease L) bool
	Lost  func(lease L) <-chan struct{}
	Fence func(lease L) uint64
	Token func(lease L) string
}

// Name returns the title.
func (f Functions[C, L]) Name() string { return cmp.Or(f.Title, "functions") }

// Open makes a client.
func (f Functions[C, L]) Open(ctx context.Context, o Options) (Client, error) {
	switch {
	case f.Connect == nil:
		return nil, errors.New("Functions.Connect is nil; it is required")
	case f.Lock == nil:
		return nil, errors.New("Functions.Lock is nil; it is required")
	case f.Unlock == nil:
		return nil, errors.New("Functions.Unlock is nil; it is required")
	}
	client, err := f.Connect(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return functionsClient[C, L]{f, client, o.TTL}, nil
}

type functionsClient[C, L any] struct {
	Functions[C, L]
	client C
	ttl    time.Duration
}

func (c functionsClient[C, L]) Acquire(ctx context.Context, name string) (Lease, error) {
	until := time.Now().Add(c.ttl)
	lease, err := c.Lock(ctx, c.client, name, c.ttl)
	if err != nil {
		return nil, err
	}
	return functionsLease[C, L]{c, lease, until}, nil
}

func (c functionsClient[C, L]) Close() error {
	if c.Disconnect == nil {
		return nil
	}
	return c.Disconnect(c.client)
}

type functionsLease[C, L any] struct {
	of    functionsClient[C, L]
	lease L
	until time.Time // a TTL from the call that acquired it
}

func (l functionsLease[C, L]) Valid() bool {
	if l.of.Valid == nil {
		return time.Now().Before(l.until)
	}
	return l.of.Valid(l.lease)
}

func (l functionsLease[C, L]) Lost() <-chan struct{} {
	if l.of.Lost == nil {
		return nil
	}
	return l.of.Lost(l.lease)
}

func (l functionsLease[C, L]) Fence() uint64 {
	if l.of.Fence == nil {
		return 0
	}
	return l.of.Fence(l.lease)
}

func (l functionsLease[C, L]) Token() string {
	if l.of.Token == nil {
		return ""
	}
	return l.of.Token(l.lease)
}

func (l functionsLease[C, L]) Release(ctx context.Context) error {
	return l.of.Unlock(ctx, l.of.client, l.lease)
}

func (l functionsLease[C, L]) Untold() []string {
	return untold(l.of.Valid == nil, l.of.Fence == nil)
}

// Untold returns what the library does not say of a lease, for the report: history.Validity, history.FencingTokens, or
// both. It asks the lease's method Untold() []string; without one the answer is nothing.
func Untold(l Lease) []string {
	if u, ok := l.(interface{ Untold() []string }); ok {
		return u.Untold()
	}
	return nil
}
