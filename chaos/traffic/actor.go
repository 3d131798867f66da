package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/internal/sleep"
)

// An Actor is one client of a run. Its methods may be called concurrently.
type Actor struct {
	ID    int
	log   *Log
	grace time.Duration

	mu     sync.Mutex // guards client; nothing is called under it
	client subject.Client
}

// NewActor returns an actor that records what the client does.
func NewActor(id int, client subject.Client, log *Log) *Actor {
	return &Actor{ID: id, client: client, log: log, grace: grace}
}

// Replace gives the actor another client, as in a process that is deployed again. Calls of the former client continue.
// The caller closes it.
func (a *Actor) Replace(client subject.Client) (former subject.Client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	former, a.client = a.client, client
	return former
}

func (a *Actor) current() subject.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.client
}

// guard calls the subject and turns a panic into an error.
func (a *Actor) guard(doing string, call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = a.log.panicked(a.ID, doing, value)
		}
	}()
	return call()
}

// grace is how long a call may continue after its context has ended, before it is abandoned.
const grace = 5 * time.Second

// errLeft means that a call was abandoned.
var errLeft = errors.New("the subject did not return")

// call is guard for calls that must end with ctx. A subject that ignores its context is abandoned.
func (a *Actor) call(ctx context.Context, doing string, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- a.guard(doing, call) }() // ends with the subject
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(a.grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%w within %v after the end of its context", errLeft, a.grace)
	}
}

// warmTry is how long one try of Warm may take.
const warmTry = 2 * time.Second

// Warm acquires and releases a lock that no other client uses, without a record, so that all connections are open. It
// tries until ctx ends, because on a busy machine the first tries may time out. Each try has its own end: a subject whose
// first answer was late may wait for something that never comes. The error of the release does not matter.
func (a *Actor) Warm(ctx context.Context, name string) error {
	client := a.current()
	try := func() error {
		ctx, done := context.WithTimeout(ctx, warmTry)
		defer done()
		lease, err := client.Acquire(ctx, name)
		if err == nil {
			_ = lease.Release(ctx)
		}
		return err
	}
	return a.call(ctx, "the first acquire", func() error {
		for {
			err := try()
			if err == nil || sleep.For(ctx, 10*time.Millisecond) != nil {
				return err
			}
		}
	})
}

// Close closes the client.
func (a *Actor) Close() error { return a.guard("close", a.current().Close) }

// A Held is an acquired lock, until it is lost or released.
type Held struct {
	Op      uint64
	actor   *Actor
	want    subject.Want
	lease   subject.Lease
	guarded *Guarded
	fence   uint64
	token   string
	seen    [2]int64        // the values that were read: of the fenced counter, and of the other
	told    <-chan struct{} // closed when the library says that the lease is over; nil if it never does

	lost    chan struct{} // closed when the holder has noticed
	stop    chan struct{} // ends the watch
	watched chan struct{} // closed when the watch has ended

	mu    sync.Mutex // guards until
	until int64      // when the lease was last seen valid
}

// watchEvery is how often a holder checks whether its lease is valid.
const watchEvery = time.Millisecond

// Acquire waits for the lock until ctx ends. Then it watches the lease in the background.
func (a *Actor) Acquire(ctx context.Context, g *Guarded, w subject.Want) (*Held, error) {
	client := a.current()
	return a.begin(ctx, g, w, 0, "acquire", func(ctx context.Context) (subject.Lease, error) {
		return subject.Acquire(ctx, client, g.Name, w)
	})
}

// begin records an acquire: of a free lock, or of one that the op from leaves to it.
func (a *Actor) begin(
	ctx context.Context, g *Guarded, w subject.Want, from uint64, doing string,
	acquire func(context.Context) (subject.Lease, error),
) (*Held, error) {
	op := a.log.ops.Add(1)
	event := g.requested(a.ID, op, w)
	event.From = from
	a.log.Add(event)
	event.Role, event.Permits, event.From = "", 0, 0
	h := &Held{
		Op: op, actor: a, want: w, guarded: g,
		lost: make(chan struct{}), stop: make(chan struct{}), watched: make(chan struct{}),
	}
	ctx = context.WithValue(ctx, opKey{}, op)
	err := a.call(ctx, doing, func() error {
		lease, err := acquire(ctx)
		if err != nil {
			return err
		}
		if lease == nil {
			return errors.New("the subject returned no lease and no error")
		}
		h.lease, h.fence, h.token, h.told = lease, lease.Fence(), lease.Token(), lease.Lost()
		return nil
	})
	if err != nil {
		event.Kind = history.Failed
		if errors.Is(err, subject.ErrRefused) {
			event.Kind = history.Refused
		}
		event.Error, event.Left = err.Error(), errors.Is(err, errLeft)
		a.log.Add(event)
		return nil, err
	}
	event.Kind, event.Fence, event.Token = history.Granted, h.fence, h.token
	h.until = a.log.at() // before the grant: a lease that is never seen valid is never believed in
	a.log.Add(event)
	h.Valid()
	go h.watch()
	return h, nil
}

// An opKey is the key of the op in the context of its call.
type opKey struct{}

// Queued records that a call has its place in the order of arrival. It is for subject.Options.
func (l *Log) Queued(ctx context.Context, since time.Time) {
	if op, ok := ctx.Value(opKey{}).(uint64); ok {
		l.Add(history.Event{Kind: history.Queued, Op: op, Since: max(1, int64(since.Sub(l.began)))})
	}
}

// Valid asks the lease whether it is valid, and notes when it was.
func (h *Held) Valid() bool {
	at := h.actor.log.at() // read before the question, so that it is not later than the moment at which the answer was true
	valid := false
	_ = h.actor.guard("valid", func() error {
		valid = h.lease.Valid()
		return nil
	})
	if valid {
		h.mu.Lock()
		h.until = max(h.until, at)
		h.mu.Unlock()
	}
	return valid
}

func (h *Held) lastValid() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// watch ends when the lease is lost or released.
func (h *Held) watch() {
	defer close(h.watched)
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-h.told:
		case <-ticker.C:
			if h.Valid() {
				continue
			}
		}
		h.actor.log.Add(h.event(history.Lost))
		close(h.lost)
		return
	}
}

// event returns an event of this op. If it ends the belief, it has the time of that end.
func (h *Held) event(kind history.Kind) history.Event {
	e := history.Event{Kind: kind, Client: h.actor.ID, Op: h.Op, Resource: h.guarded.Name, Fence: h.fence, Token: h.token}
	if kind == history.Lost || kind == history.Release {
		e.Until, e.Untold = h.lastValid(), subject.Untold(h.lease)
	}
	return e
}

// Lost is closed when the holder has noticed that its lease is over.
func (h *Held) Lost() <-chan struct{} { return h.lost }

// Read reads the counters that the lock protects.
func (h *Held) Read() { h.seen = h.guarded.read(h.actor.log, h.event(history.Read), h.want) }

// Write writes one more than was read if the lease is valid, and reports whether it was. The process may be stopped
// between the check and the write; then the write is stale. Where others may hold the lock too, it reads once more.
func (h *Held) Write() bool {
	if !h.Valid() {
		return false
	}
	if h.want.IsShared() {
		h.Read()
		return true
	}
	h.write()
	return true
}

func (h *Held) write() {
	e := h.event(history.Write)
	if h.fence != 0 { // without a fencing token there is nothing to compare
		h.guarded.fenced.write(h.actor.log, e, h.seen[0]+1)
	}
	h.guarded.unfenced.write(h.actor.log, e, h.seen[1]+1)
}

// leave ends the belief, and records it. With handed, the lock goes to another op.
func (h *Held) leave(handed bool) {
	close(h.stop)
	<-h.watched
	select {
	case <-h.lost:
	default:
		h.Valid()
	}
	e := h.event(history.Release)
	e.Handed = handed
	h.actor.log.Add(e)
}

// left records that what ended the lease has returned.
func (h *Held) left(err error) {
	freed := h.event(history.Freed)
	if err != nil {
		freed.Error, freed.Left = err.Error(), errors.Is(err, errLeft)
	}
	h.actor.log.Add(freed)
}

// Release releases the lock and returns the error of the subject.
func (h *Held) Release(ctx context.Context) error {
	h.leave(false)
	err := h.actor.call(ctx, "release", func() error { return h.lease.Release(ctx) })
	h.left(err)
	return err
}
