package redlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Lease is a lock that is held: for a time, renewed by itself unless the lock says otherwise. It ends when
// it is released or the client is closed, or before another could own the lock. Its methods are safe for
// concurrent use.
//
// Keep the Lease, or a context that it gave, for as long as the lock is needed: a garbage-collected Lease stops
// renewing.
type Lease struct {
	ownership *ownership
	cleanup   runtime.Cleanup

	parent context.Context // whose values Context carries

	mu sync.Mutex // guards the rest; the hold's is taken under it
	// own ends with the lease and does not know it: the hold may reach own, but must not reach the lease.
	own    context.Context
	ctx    context.Context // own, with the lease in it
	cancel context.CancelCauseFunc
	last   bool  // it was released when no other lease of the hold was left
	lost   error // why the hold had been lost, if others were left

	released atomic.Bool // written under mu
}

func newLease(ctx context.Context, l *spec, token any, ballot uint64, reached nodeSet, now, until Instant) *Lease {
	o := &ownership{client: l.client, lock: l, token: token.(string), tokenArg: token, ballot: ballot, reached: reached, place: -1, leases: 1}
	if l.maxHold > 0 {
		o.limit = now.Add(l.maxHold)
		until = min(until, o.limit)
	}
	if l.minHold > 0 {
		o.least = now.Add(l.minHold)
	}
	o.until.Store(int64(until))
	lease := &Lease{ownership: o, parent: ctx}
	if l.renew {
		lease.cleanup = runtime.AddCleanup(lease, (*ownership).abandon, o)
	}
	o.start(now)
	return lease
}

// Context carries the values of the context given to Acquire, not its cancellation, and this lease. It ends
// when the lease is released, or before its validity does; [context.Cause] is then an error that is
// [ErrReleased], [ErrLost] or [ErrClosed]. It is made at the first call.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		values := context.WithoutCancel(l.parent)
		l.own, l.cancel = context.WithCancelCause(valued{l.ownership.context(), values})
		l.ctx = carry(l.own, l, values)
		if l.released.Load() {
			l.cancel(ErrReleased)
		}
	}
	return l.ctx
}

// A valued context ends when one does and has the values of another, which never ends.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key) // by which package context finds what a child ends with
}

// With returns a context that carries the lease as well as all that ctx does. It ends when ctx does, or when
// the lease does, with the lease's cause.
func (l *Lease) With(ctx context.Context) context.Context {
	l.Context()
	both, cancel := context.WithCancelCause(ctx)
	own := l.own // set by Context, and never again
	stop := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	context.AfterFunc(both, func() { stop() }) // a lease may see many contexts come and go
	return carry(both, l, ctx)
}

// Valid reports whether the lock is surely still held, by the clock as it is now: it is right also when
// timers were late or the machine was suspended. Ask it just before what must not be done twice, and let the
// resource check [Lease.Fence]: the process may still be stopped between the answer and the deed.
func (l *Lease) Valid() bool {
	return !l.released.Load() && !l.ownership.over.Load() && l.ownership.client.cfg.Clock.Now() < l.ownership.validUntil()
}

// Remaining is how long the lease is still valid if it is not renewed; 0 if it is not valid.
func (l *Lease) Remaining() time.Duration {
	if l.released.Load() || l.ownership.over.Load() {
		return 0
	}
	return max(0, l.ownership.validUntil().Sub(l.ownership.client.cfg.Clock.Now()))
}

// Fence is the fencing token: a number that is unique for the lock's names, and larger than that of every lease
// whose acquisition had returned before this one began. A resource that refuses smaller numbers than it has seen is safe
// from a holder that does not know yet that it has lost the lock. It is 0 with [Config.NoFence].
func (l *Lease) Fence() uint64 { return l.ownership.ballot }

// Token is the owner token under which the nodes hold the lock: 32 hexadecimal digits, random, new for each
// attempt. Whoever knows it can release the lock.
func (l *Lease) Token() string { return l.ownership.token }

// Names are the names that are locked.
func (l *Lease) Names() []string { return slices.Clone(l.ownership.lock.res.names) }

// Extend renews the lease now: after it the lease has its whole TTL, less drift and the time it took. The
// lease is lost if enough nodes say that it is no longer ours. [ErrNoQuorum] leaves it as it is, valid for
// what remains. An expired lease is never taken again: the error is then [ErrLost].
//
// The errors of the nodes come in a [*RoundError]. Other errors are [ErrReleased], [ErrClosed] and ctx.Err(),
// after which the renewal may still have happened.
func (l *Lease) Extend(ctx context.Context) error {
	o := l.ownership
	o.checkExpiry()
	if err := o.cause(); err != nil {
		return err
	}
	if l.released.Load() {
		return ErrReleased
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r := o.client.renew(o)
	for _, n := range o.client.nodes {
		n.send(r, false)
	}
	switch r.await(ctx, &o.client.timers, o.client.cfg.nodeTimeout(o.lock.ttl)) {
	case undecided:
		return ctx.Err()
	case won: // and prolonged
		o.checkExpiry()
		return o.cause()
	}
	// A lost round may be lost for good: that is told by those who have not answered.
	patience := r.t0.Add(o.client.cfg.nodeTimeout(o.lock.ttl)).Sub(o.client.cfg.Clock.Now())
	if err := r.until(ctx, &o.client.timers, nil, patience, (*tally).refusedOrNever); err != nil {
		return err
	}
	if _, votes := r.snapshot(); votes.refused() {
		o.lose(r.error(ErrLost, o.lock.res.names, o.client.nodes, ""))
		return o.cause()
	}
	return r.error(ErrNoQuorum, o.lock.res.names, o.client.nodes, "")
}

// Release ends the lease and tells all nodes, unless other leases of a re-entered lock ([Lock.Reentrant]) still hold it.
// It returns:
//   - nil when a quorum of the nodes deleted the lock, or other leases still hold it;
//   - [ErrLost] when a quorum no longer had it, or the lease was lost before;
//   - [ErrNoQuorum] when neither is known, because nodes are away. The lock then expires by itself, and nodes that come
//     back within that time are still told.
//
// The last two come in a [*RoundError] where nodes were asked. It waits for nodes that are up, no longer than
// NodeTimeout.
//
// ctx bounds the wait alone, never the sending: if it ends first, the error is ctx.Err(). Release can be called any
// number of times, and each call that waited for the answers returns the same.
func (l *Lease) Release(ctx context.Context) error {
	o := l.ownership
	for c := carriedBy(ctx); c != nil; c = c.outer {
		if c.lease.ownership == o { // this very call ends ctx, or another lease's did, but not the wait for the answer
			ctx = c.under
		}
	}
	if last, lost := l.leave(); !last {
		return lost
	}
	if o.client.begin() { // so that Close tells the hook too
		defer o.client.finish()
	}
	first := o.end(ErrReleased)
	r := o.sendRelease()
	err := o.awaitRelease(ctx, r)
	if first {
		if hook := o.client.cfg.Hooks.Released; hook != nil {
			hook(o.info(), err)
		}
	}
	return err
}

func (o *ownership) awaitRelease(ctx context.Context, r *round) error {
	if err := o.cause(); errors.Is(err, ErrLost) {
		return err
	}
	c := o.client
	var err error
	switch r.await(ctx, &c.timers, c.cfg.NodeTimeout) {
	case undecided:
		return ctx.Err()
	case lost: // what that means is told by those who have not answered
		final := func(t *tally) bool { _, final := t.released(); return final }
		if err := r.until(ctx, &c.timers, nil, r.t0.Add(c.cfg.NodeTimeout).Sub(c.cfg.Clock.Now()), final); err != nil {
			return err
		}
		err = o.unconfirmed(r)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unreleased == nil { // the first word stays: answers go on to come in, and would tell another story
		o.unreleased = err
	}
	return o.unreleased
}

// unconfirmed is what the votes of a release prove that no quorum granted in time.
func (o *ownership) unconfirmed(r *round) error {
	_, votes := r.snapshot()
	switch proof, _ := votes.released(); proof {
	case won:
		return nil // late
	case lost:
		return r.error(ErrLost, o.lock.res.names, o.client.nodes, "")
	default:
		return r.error(ErrNoQuorum, o.lock.res.names, o.client.nodes, "")
	}
}

// cause is why the lease ended, or nil.
func (o *ownership) cause() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// A carried lease is found in a context by those who would acquire under it.
type carried struct {
	lease *Lease
	under context.Context // what the lease was put into; it does not end with the lease
	outer *carried
}

type carriedKey struct{}

func carry(ctx context.Context, l *Lease, under context.Context) context.Context {
	return context.WithValue(ctx, carriedKey{}, &carried{lease: l, under: under, outer: carriedBy(ctx)})
}

func carriedBy(ctx context.Context) *carried {
	c, _ := ctx.Value(carriedKey{}).(*carried)
	return c
}
