package redlock

import (
	"context"
	"errors"
	"slices"
)

// An RWMutex is a lock that any number of readers can hold, or one writer. It is a value that never changes and holds
// nothing. Get one from [Client.RWMutex].
type RWMutex struct{ writer Lock }

// RWMutex returns a lock for readers and writers.
//
//   - While there is a reader, no writer gets in, and while there is a writer, nobody else does.
//   - Each reader has a lease of its own. A reader that dies keeps writers out until its lease is over, and no longer.
//   - A writer that waits keeps new readers out. If it dies, they are kept out for three seconds at most. So are they if
//     several writers wait and all of them give up, after the last attempt of any writer.
//   - After a writer, the first waiter has its turn. If that is a reader, the readers that wait get in with it.
//
// So neither readers nor writers wait for ever. There are two exceptions, in which readers that come and go all the time may
// overtake a writer again and again: it is far away, with round trips of 300ms, say, and they are near; or it is a
// [Client.Mutex] of several names, and several of these have readers. Far away, a writer that is [Lock.Fair] has its turn
// sooner; several names it does not help.
//
// A context that carries a lease of the lock cannot acquire it again: a reader that waits for itself to write, or that
// wants to read once more behind a writer that waits for it, would wait for ever. That is [ErrInvalid]; see
// [Lock.Reentrant] and [Lease.Downgrade]. [Lock.TryAcquire] does not wait, and gets another reader if no writer waits.
func (c *Client) RWMutex(name string) RWMutex { return RWMutex{c.Mutex(name)} }

// Reader returns the lock of a reader. [Lock.WithMinHold] is [ErrInvalid] for it.
func (m RWMutex) Reader() Lock { return m.writer.shared(sharing{reader: true}) }

// Writer returns the lock of a writer. It is the same as [Client.Mutex] of the name.
func (m RWMutex) Writer() Lock { return m.writer }

// Downgrade makes a reader of a writer, without a moment in which another writer could get in. It ends this lease, with
// the cause [ErrReleased], and returns the reader's, which has the same owner token, fencing token and validity, and is
// renewed by the same rules. To release this lease afterwards does nothing. Other readers get in from then on, node by
// node.
//
// Downgrade waits until a quorum of the nodes has been told, no longer than NodeTimeout or until ctx ends. The reader's
// lease is valid also if that fails; its renewals tell the nodes again.
//
// Errors are [ErrInvalid] if the lease is not of one name, is no writer's, was re-entered ([Lock.Reentrant]) or has a
// minimum hold; and [ErrLost], [ErrReleased] or [ErrClosed] if it has ended.
func (l *Lease) Downgrade(ctx context.Context) (*Lease, error) {
	o := l.ownership
	c := o.client
	switch {
	case o.lock.res.isShared():
		return nil, invalid("Downgrade", "the lease is no writer's")
	case len(o.lock.res.names) > 1:
		return nil, invalid("Downgrade", "the lease has several names; a reader has one")
	case o.lock.minHold > 0:
		return nil, invalid("Downgrade", "the lease has a minimum hold, in which nobody else may get in")
	}
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.finish()
	ctx, stop := o.bounding(ctx) // it may end with the writer's lease
	defer stop()
	o.checkExpiry()
	reader, err := l.becomeReader()
	if err != nil {
		return nil, err
	}
	if c.isClosed() { // L2: Close may have ended all leases just before this one began
		reader.ownership.end(ErrClosed)
		reader.ownership.sendRelease()
		return nil, ErrClosed
	}
	r, err := reader.ownership.beginRenewal()
	if err != nil {
		return nil, err
	}
	if r.await(ctx, &c.timers, c.cfg.nodeTimeout(o.lock.ttl)) == lost && r.isByTime() {
		reader.ownership.renewalFailed(r)
	}
	if err := reader.endedOr(nil); err != nil {
		return nil, err
	}
	return reader, nil
}

// endAsReader is how the reader's lease that this one has become was lost, or ended by Close; nil: it was not, or there is none.
func (l *Lease) endAsReader() error {
	l.mu.Lock()
	reader := l.reader
	l.mu.Unlock()
	if reader == nil {
		return nil
	}
	reader.checkExpiry()
	reader.mu.Lock()
	defer reader.mu.Unlock()
	switch {
	case !errors.Is(reader.ended, ErrReleased):
		return reader.ended
	case errors.Is(reader.unreleased, ErrLost): // that is what the release found
		return reader.unreleased
	default:
		return nil
	}
}

// becomeReader ends the writer's lease and begins the reader's, which no node knows yet. Each node where the writer
// has the key takes it for the reader's: it keeps other writers out until it expires, and so for as long as the lease
// is valid. A renewal of the reader puts its entry in the place of the key, and a release of the reader deletes
// either (S4).
func (l *Lease) becomeReader() (*Lease, error) {
	o := l.ownership
	c := o.client
	lock := Lock{o.lock}.shared(sharing{reader: true}).spec
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released.Load() {
		return nil, ErrReleased
	}
	o.mu.Lock()
	if o.ended != nil || o.leases != 1 {
		defer o.mu.Unlock()
		if o.ended != nil {
			return nil, o.ended
		}
		return nil, invalid("Downgrade", "the lease was re-entered, and the others still write")
	}
	now := c.cfg.Clock.Now()
	if o.acquire != nil {
		o.grantedIn(o.acquire)
	}
	entry := lock.res.share.entry(o.token(), nil)
	reader := &ownership{client: c, lock: lock, tokenArg: entry, ballot: o.ballot, limit: o.limit, ticket: o.ticket,
		acquired: o.acquired, written: o.written, traced: o.traced, reached: o.reached, place: -1, leases: 1}
	reader.until.Store(o.until.Load())
	reader.had.Store(o.had.Load())
	reader.proven.Store(o.proven.Load())
	reader.kept = slices.Clone(o.kept)
	reader.acquire, reader.plants, reader.planted, reader.taking = o.acquire, o.plants, o.planted, o.taking
	o.reader, l.reader = reader, reader
	// The writer sends nothing any more, not even a release: what it has is the reader's now.
	o.leases = 0
	o.release = c.newRound(plan{call: c.protocol.releaseCall(o.lock.res.keys, o.tokenArg, 0, 0), t0: now})
	o.endLocked(ErrReleased)
	c.scheduler.drop(o)
	l.released.Store(true)
	l.cleanup.Stop()
	lease, _ := startLease(l.parent, reader)
	return lease, nil
}
