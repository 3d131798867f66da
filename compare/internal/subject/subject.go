// Package subject has the lock libraries that are compared, each with its own defaults, behind one interface with
// hardly any overhead.
package subject

import (
	"context"
	"errors"
	"time"
)

// A Subject is a lock library in one configuration.
type Subject struct {
	Name string
	// OneServer: its locks are only on the first server, so no other server affects it.
	OneServer bool
	// Renews: it renews its leases by itself.
	Renews bool
	// Litters: some of its releases overtake their acquires on some servers, and the keys then stay until their TTL. While
	// such keys are on a quorum of the servers, the name cannot be acquired.
	Litters bool
	// Permits is how many can hold one name at once. 0: one.
	Permits int
	// Special: it is no mutex, or no plain one. It is only in the workloads that name it.
	Special bool
	// Sleeps: a waiter may miss that the lock is free, and continue to wait.
	Sleeps bool
	// Bare: it is not a lock but a loop of commands, which is measured differently. Open is nil.
	Bare bool
	// Fence: a bare loop's commands store a fencing token.
	Fence bool
	// Open makes one client, like a process of an application.
	Open func(ctx context.Context, o Options) (Client, error)
}

// Options configure one client.
type Options struct {
	URLs       []string      // of the servers: redis:// or unix://
	Goroutines int           // that will use the client at once; the size of connection pools, up to maxPool
	TTL        time.Duration // of the leases, if the subject renews them; 0: its default
	Patience   time.Duration // for the answer of a server; 0: what the library has by default
}

// maxPool is the maximum number of pooled connections to one server. With 16, 64 and 256 the results of pooling
// subjects differed less than between rounds. One connection for each of thousands of goroutines would exhaust file
// descriptors.
const maxPool = 64

func (o Options) pool() int { return min(o.Goroutines, maxPool) }

// A Client takes locks. Its methods may be called concurrently.
type Client interface {
	// Acquire waits for the lock as long as the library does by default, or until ctx ends. If it gives up earlier, the
	// caller tries again.
	Acquire(ctx context.Context, name string) (Lease, error)
	Close() error
}

// A Lease is a lock that is held.
type Lease interface {
	Release(ctx context.Context) error
}

// A Tracked lease knows whether it is still held.
type Tracked interface {
	Held() bool
}

// errNotOurs means that a release found no lock of ours, if the library has no error for it.
var errNotOurs = errors.New("the lock was not ours at the release")

// All returns the subjects in the order of the tables. The first is this library; Baseline is one of them.
func All() []Subject {
	return []Subject{
		redlockSubject("redlock", false),
		redlockSubject("redlock NoFence", true),
		redsyncSubject("redsync redigo", false, openRedigo),
		redsyncSubject("redsync redigo FailFast", true, openRedigo),
		redsyncSubject("redsync go-redis", false, openGoRedis),
		redsyncSubject("redsync go-redis FailFast", true, openGoRedis),
		redsyncSubject("redsync rueidis", false, openRueidis),
		redsyncSubject("redsync rueidis FailFast", true, openRueidis),
		rueidislockSubject("rueidislock (one server)", 1),
		rueidislockSubject("rueidislock 3 keys (one server)", 2),
		redislockSubject("bsm/redislock (one server)"),
		fairSubject("redlock Fair"),
		semaphoreSubject("redlock Semaphore of 4", 4),
		recipeSubject("semaphore recipe of 4 (one server)", 4),
		{Name: "limit", Bare: true, Fence: true},
		{Name: "limit NoFence", Bare: true},
	}
}

// Baseline is the subject that the others are compared with.
const Baseline = "redsync redigo"
