// Package subject defines what the chaos harness needs from a lock library to test it. It also contains the locks
// that come with the harness: this library, and baselines that show what goes wrong with simpler locks.
package subject

import (
	"context"
	"errors"
	"time"
)

// A Subject is a lock library under test.
type Subject interface {
	// Name is its name on the command line and in reports.
	Name() string
	// Open makes one client with its own connections, as one process of an application would have. It is called once
	// for each client of the run. The harness closes the client at the end.
	Open(ctx context.Context, o Options) (Client, error)
}

// Options configure one client.
type Options struct {
	Client  int           // from 1
	URLs    []string      // of the nodes, redis:// or unix://
	TTL     time.Duration // how long a lease lasts if its holder dies
	Durable bool          // the servers persist every write before they answer, so they forget nothing in a restart
	Fresh   bool          // no lease can exist on these nodes, so a library may skip its quarantine
	// Clock is how far the client's wall clock is ahead of true time, for locks that send their own time to the servers.
	Clock func() time.Duration
	// Step, if it is not nil, is for locks that send two commands where one would be safe. They call it between the
	// two, with the name of the gap. There the harness may delay the client, as a slow network does, or kill it. If Step
	// returns an error, the operation fails and sends nothing more.
	Step func(gap string) error
	// Queued, if it is not nil, is for locks in order of arrival.
	Queued QueuedFunc
	// Fail, if it is not nil, aborts the run, with the reason. It is for a library that cannot go on, and that would look
	// safe because it does nothing: its process has ended, for example.
	Fail func(why error)
	// Child says that this process is the client, and that a scenario will stop or kill its process group. Processes that
	// the library starts must stay in that group.
	Child bool
}

// A Client takes locks. Its methods may be called concurrently.
type Client interface {
	// Acquire waits for the lock with that name until ctx ends. ErrRefused says that somebody else holds it. Any other
	// error is a failure of unknown effect.
	Acquire(ctx context.Context, name string) (Lease, error)
	Close() error
}

// ErrRefused means that somebody else holds the lock. Errors of Acquire wrap it.
var ErrRefused = errors.New("held by another")

// A Lease is an acquired lock.
type Lease interface {
	// Valid reports whether the holder may still believe that nobody else holds the lock.
	Valid() bool
	// Lost is closed when the library tells the holder that the lease is over. nil if the library never does.
	Lost() <-chan struct{}
	// Fence is the fencing token, which grows with each holder. 0 if the library has none: then for every lease.
	Fence() uint64
	// Token is the owner token that the library writes into the lock's key. The harness uses it to find the true owner
	// on the nodes. "" if the library does not expose it, or keeps it elsewhere: late losses are then not judged.
	Token() string
	Release(ctx context.Context) error
}
