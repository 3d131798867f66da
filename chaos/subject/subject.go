// Package subject is what a lock library has to offer to be put to the test by the chaos harness, and the
// locks that the harness brings along: this library, and the baselines that show what goes wrong without it.
package subject

import (
	"context"
	"errors"
	"time"
)

// A Subject is a lock library under test.
type Subject interface {
	// Name is how the command line and reports call it.
	Name() string
	// Open makes one client of its own, as a process of an application would have. It is called once for
	// each client of the run, and closed at the end.
	Open(ctx context.Context, o Options) (Client, error)
}

// Options are what a client is to work with.
type Options struct {
	Client  int           // from 1
	URLs    []string      // of the nodes, redis:// or unix://
	TTL     time.Duration // how long a lease lasts if its holder dies
	Durable bool          // the servers persist every write before they answer: a library may trust them after a restart
	Fresh   bool          // no lease of anybody can be out on these nodes: a library that waits for proof need not
	// Clock is how far the client's wall clock is ahead of true time, for locks that send it to the servers.
	Clock func() time.Duration
	// Step, where it is not nil, is called by a lock that needs two commands where one would be safe, between
	// the two, with the name of the gap. There the client may be held up, as by a slow network, or die, as
	// the process that runs it does. With an error it gives up there, and sends nothing more.
	Step func(gap string) error
}

// A Client takes locks. Its methods may be called concurrently.
type Client interface {
	// Acquire waits for the lock of that name until ctx ends. An error that is ErrRefused says that
	// somebody else has it; any other error may mean anything.
	Acquire(ctx context.Context, name string) (Lease, error)
	Close() error
}

// ErrRefused is wrapped by errors that say that somebody else holds the lock.
var ErrRefused = errors.New("held by another")

// A Lease is a lock that was had.
type Lease interface {
	// Valid is whether the holder may still believe that it alone has the lock.
	Valid() bool
	// Lost is closed when the library tells its holder that the lease is over. nil where it never does.
	Lost() <-chan struct{}
	// Fence grows with each holder. 0 where the library has none.
	Fence() uint64
	// Token is what the library writes into the lock's key, to see the true owner on the nodes. "" if that
	// cannot be told.
	Token() string
	Release(ctx context.Context) error
}
