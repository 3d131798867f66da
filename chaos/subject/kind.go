package subject

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
)

// Not every lock is a mutex. A subject that is another kind of lock says so by a method Kind() Kind. What its clients
// and leases can do beyond [Client] and [Lease] is in the small interfaces below; each is optional.

// A Kind is what a lock promises. The zero Kind is a mutex.
type Kind struct {
	Lock    history.LockKind
	Permits int // of a semaphore
}

// KindOf returns the kind of the subject.
func KindOf(s Subject) Kind {
	if k, ok := s.(interface{ Kind() Kind }); ok {
		return k.Kind()
	}
	return Kind{}
}

// A Want is what a client wants of a lock. The zero Want is to be alone.
type Want struct {
	Reader  bool // to share the lock with other readers
	Permits int  // how many permits of a semaphore; 0: the lock is none
}

// IsShared reports whether others may hold the lock at the same time. What only a lock that one client holds can protect
// must then not be written.
func (w Want) IsShared() bool { return w.Reader || w.Permits > 0 }

// A Sharer is a Client of a lock that several may hold.
type Sharer interface {
	Client
	// AcquireAs is Acquire for what is wanted.
	AcquireAs(ctx context.Context, name string, w Want) (Lease, error)
}

// Acquire acquires what is wanted from a client.
func Acquire(ctx context.Context, c Client, name string, w Want) (Lease, error) {
	if s, ok := c.(Sharer); ok {
		return s.AcquireAs(ctx, name, w)
	}
	if w.IsShared() {
		return nil, fmt.Errorf("the subject knows no %+v: its clients have no method AcquireAs", w)
	}
	return c.Acquire(ctx, name)
}

// A Downgrader is the Lease of a writer that can become a reader. Nobody else must be able to write in between.
type Downgrader interface {
	// Downgrade ends this lease. It returns that of the reader.
	Downgrade(ctx context.Context) (Lease, error)
}

// A Giver is a Lease that can be handed to another client. Nobody else must get the lock in between.
type Giver interface {
	// Detach ends this lease, and returns a ticket for the client that takes the lock over.
	Detach(ctx context.Context) (ticket string, err error)
}

// A Taker is a Client that can take over what a Giver handed to it.
type Taker interface {
	Adopt(ctx context.Context, ticket string) (Lease, error)
}

// A QueuedFunc is told by a lock in order of arrival that the call with this context has had its place since then:
// whoever begins to acquire later gets the lock later. It may be told late, even after the call has returned.
type QueuedFunc func(ctx context.Context, since time.Time)
