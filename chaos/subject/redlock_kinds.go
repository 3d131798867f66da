package subject

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/election"
)

// The other kinds of locks of this library. Each is a subject of its own.

// RedlockFair is a lock in order of arrival.
type RedlockFair struct{ Redlock }

// Name returns "redlock-fair".
func (RedlockFair) Name() string { return "redlock-fair" }

// About describes the subject in one line.
func (RedlockFair) About() string { return "this library, in order of arrival" }

// Kind returns that it is fair.
func (RedlockFair) Kind() Kind { return Kind{Lock: history.Fair} }

// Open makes a client.
func (s RedlockFair) Open(ctx context.Context, o Options) (Client, error) {
	if o.Queued != nil {
		quorum, configure := len(o.URLs)/2+1, s.Configure
		s.Configure = func(cfg *redlock.Config) {
			cfg.Hooks.Traced = func(ctx context.Context, op redlock.Operation) {
				if since, ok := queuedSince(op, quorum); ok {
					o.Queued(ctx, since)
				}
			}
			if configure != nil {
				configure(cfg)
			}
		}
	}
	client, err := s.open(ctx, o)
	if err != nil {
		return nil, err
	}
	return redlockSharer{redlockClient{client}, func(name string, _ Want) redlock.Lock {
		return client.Mutex(name).Fair()
	}}, nil
}

// queuedSince returns when a quorum of nodes had certainly written the call into their queues (protocol step O2): with
// the answers of the first refused round it draws its ticket, and in a later one a quorum takes it.
func queuedSince(op redlock.Operation, quorum int) (since time.Time, ok bool) {
	if op.Op != "acquire" {
		return since, false
	}
	hasTicket := false
	for _, round := range op.Rounds {
		switch {
		case round.Denied < quorum || !errors.Is(round.Err, redlock.ErrHeld):
		case hasTicket:
			return round.Begun.Add(round.Took), true
		default:
			hasTicket = true
		}
	}
	return since, false
}

// RedlockRW is the lock for readers and writers.
type RedlockRW struct{ Redlock }

// Name returns "redlock-rw".
func (RedlockRW) Name() string { return "redlock-rw" }

// About describes the subject in one line.
func (RedlockRW) About() string {
	return "this library: readers, or one writer; a writer may become a reader"
}

// Kind returns that it is for readers and writers.
func (RedlockRW) Kind() Kind { return Kind{Lock: history.ReadWrite} }

// Open makes a client.
func (s RedlockRW) Open(ctx context.Context, o Options) (Client, error) {
	client, err := s.open(ctx, o)
	if err != nil {
		return nil, err
	}
	return redlockReadWriter{redlockSharer{redlockClient{client}, func(name string, w Want) redlock.Lock {
		if w.Reader {
			return client.RWMutex(name).Reader()
		}
		return client.RWMutex(name).Writer()
	}}}, nil
}

// RedlockSemaphore is a semaphore.
type RedlockSemaphore struct {
	Redlock
	Permits int // Default 2
}

const defaultPermits = 2

// Name returns "redlock-semaphore".
func (RedlockSemaphore) Name() string { return "redlock-semaphore" }

// About describes the subject in one line.
func (s RedlockSemaphore) About() string {
	return fmt.Sprintf("this library: a semaphore with %d permits", s.Kind().Permits)
}

// Kind returns that it is a semaphore, and how many permits it has.
func (s RedlockSemaphore) Kind() Kind {
	if s.Permits == 0 {
		s.Permits = defaultPermits
	}
	return Kind{Lock: history.Semaphore, Permits: s.Permits}
}

// Open makes a client.
func (s RedlockSemaphore) Open(ctx context.Context, o Options) (Client, error) {
	client, err := s.open(ctx, o)
	if err != nil {
		return nil, err
	}
	permits := s.Kind().Permits
	return redlockSharer{redlockClient{client}, func(name string, w Want) redlock.Lock {
		return client.Semaphore(name, permits).WithPermits(max(1, w.Permits))
	}}, nil
}

// A redlockSharer is a client whose locks depend on what is wanted.
type redlockSharer struct {
	redlockClient
	lock func(name string, w Want) redlock.Lock
}

// Acquire acquires what only one can hold; of a semaphore, one permit.
func (c redlockSharer) Acquire(ctx context.Context, name string) (Lease, error) {
	return c.AcquireAs(ctx, name, Want{})
}

// AcquireAs acquires what is wanted.
func (c redlockSharer) AcquireAs(ctx context.Context, name string, w Want) (Lease, error) {
	return acquired(c.lock(name, w).Acquire(ctx))
}

// A redlockReadWriter is a client whose writers can become readers.
type redlockReadWriter struct{ redlockSharer }

// AcquireAs acquires what is wanted.
func (c redlockReadWriter) AcquireAs(ctx context.Context, name string, w Want) (Lease, error) {
	lease, err := c.redlockSharer.AcquireAs(ctx, name, w)
	if err != nil || w.Reader {
		return lease, err
	}
	return redlockWriter{lease.(redlockLease)}, nil
}

// A redlockWriter is a lease that can become that of a reader.
type redlockWriter struct{ redlockLease }

// Downgrade makes a reader of the writer.
func (l redlockWriter) Downgrade(ctx context.Context) (Lease, error) {
	return acquired(l.redlockLease.Downgrade(ctx))
}

// RedlockHandover is a lock whose holders hand it to others by Detach and Adopt.
type RedlockHandover struct{ Redlock }

// Name returns "redlock-handover".
func (RedlockHandover) Name() string { return "redlock-handover" }

// About describes the subject in one line.
func (RedlockHandover) About() string {
	return "this library; holders hand the lock to other clients"
}

// Kind returns that the lock is handed over.
func (RedlockHandover) Kind() Kind { return Kind{Lock: history.HandOver} }

// Open makes a client.
func (s RedlockHandover) Open(ctx context.Context, o Options) (Client, error) {
	client, err := s.open(ctx, o)
	if err != nil {
		return nil, err
	}
	return redlockTaker{redlockClient{client}}, nil
}

type redlockTaker struct{ redlockClient }

// Acquire acquires a lock that can be handed over.
func (c redlockTaker) Acquire(ctx context.Context, name string) (Lease, error) {
	return given(c.redlockClient.Acquire(ctx, name))
}

// Adopt takes a lock over.
func (c redlockTaker) Adopt(ctx context.Context, text string) (Lease, error) {
	var ticket redlock.Ticket
	if err := ticket.UnmarshalText([]byte(text)); err != nil {
		return nil, err
	}
	return given(acquired(c.client.Adopt(ctx, ticket)))
}

func given(lease Lease, err error) (Lease, error) {
	if err != nil {
		return nil, err
	}
	return redlockGiver{lease.(redlockLease)}, nil
}

type redlockGiver struct{ redlockLease }

// Detach makes a ticket of the lease.
func (l redlockGiver) Detach(ctx context.Context) (string, error) {
	ticket, err := l.redlockLease.Lease.Detach(ctx)
	if err != nil {
		return "", err
	}
	text, err := ticket.MarshalText()
	return string(text), err
}

// RedlockElection is package election: to hold the lock is to lead.
type RedlockElection struct{ Redlock }

// Name returns "redlock-election".
func (RedlockElection) Name() string { return "redlock-election" }

// About describes the subject in one line.
func (RedlockElection) About() string { return "this library: one leader; to hold the lock is to lead" }

// Open makes a client.
func (s RedlockElection) Open(ctx context.Context, o Options) (Client, error) {
	client, err := s.open(ctx, o)
	if err != nil {
		return nil, err
	}
	return redlockCandidate{redlockClient{client}, fmt.Sprintf("client-%d", o.Client)}, nil
}

type redlockCandidate struct {
	redlockClient
	label string
}

// Acquire waits until this client leads.
func (c redlockCandidate) Acquire(ctx context.Context, name string) (Lease, error) {
	term, err := election.New(c.client, name, election.Options{Label: c.label}).Campaign(ctx)
	if err != nil {
		return acquired(nil, err)
	}
	return redlockTerm{redlockLease{term.Lease()}, term}, nil
}

type redlockTerm struct {
	redlockLease
	term *election.Term
}

func (t redlockTerm) Valid() bool                       { return t.term.Valid() }
func (t redlockTerm) Lost() <-chan struct{}             { return t.term.Context().Done() }
func (t redlockTerm) Fence() uint64                     { return t.term.Number() }
func (t redlockTerm) Release(ctx context.Context) error { return t.term.Resign(ctx) }
