// Package subject is the lock libraries that are compared, each with its own defaults, behind one interface
// that costs them next to nothing.
package subject

import (
	"context"
	"errors"
	"time"
)

// A Subject is a lock library in one configuration.
type Subject struct {
	Name string
	// OneServer: its locks live on the first server alone, so that no single other server matters to it.
	OneServer bool
	// Renews: it keeps its leases by itself.
	Renews bool
	// Litters: some of its releases overtake their acquires on some servers, and the keys then stay for their
	// time to live.
	Litters bool
	// Sleeps: one that waits may miss that the lock is free, and wait on.
	Sleeps bool
	// Bare: it is no lock but a loop of commands, measured otherwise. Open is nil.
	Bare bool
	// Fence: a bare loop's commands store a fencing token.
	Fence bool
	// Open makes one client, as a process of an application would have it.
	Open func(ctx context.Context, o Options) (Client, error)
}

// Options are what a client is to work with.
type Options struct {
	URLs       []string      // of the servers: redis:// or unix://
	Goroutines int           // that will use the client at once: connection pools are made as large, up to maxPool
	TTL        time.Duration // of the leases, where the subject renews them; 0: its default
}

// maxPool is the most connections that a pooling client may keep to one server. With 16, 64 and 256 the pooling
// subjects differed by less than from round to round; one for each of thousands of goroutines would run out of
// descriptors.
const maxPool = 64

func (o Options) pool() int { return min(o.Goroutines, maxPool) }

// A Client takes locks. Its methods may be called concurrently.
type Client interface {
	// Acquire waits for the lock as long as the library does by default, or until ctx ends. Where it gives
	// up before, the caller asks again.
	Acquire(ctx context.Context, name string) (Lease, error)
	Close() error
}

// A Lease is a lock that is held.
type Lease interface {
	Release(ctx context.Context) error
}

// A Tracked lease can tell whether it is still held.
type Tracked interface {
	Held() bool
}

// errNotOurs is a release that found nothing of ours, where the library has no error for it.
var errNotOurs = errors.New("the lock was not ours at the release")

// All are the subjects in the order of the tables. The first is this library; Baseline is among them.
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
		{Name: "limit", Bare: true, Fence: true},
		{Name: "limit NoFence", Bare: true},
	}
}

// Baseline is the subject that the others are divided by.
const Baseline = "redsync redigo"
