package redlock

import "context"

// The contexts that end with a lease, and carry it.

// Context returns a context that carries this lease and has the values of the context given to Acquire, but not its
// cancellation. It ends when the lease is released or lost or the client is closed, and at the latest shortly before
// the validity ends (by a fiftieth of the TTL, 20ms at most). [context.Cause] is then [ErrReleased], [ErrLost] or
// [ErrClosed] by [errors.Is]. Every call returns the same context.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	made := l.ctx
	l.mu.Unlock()
	if made != nil {
		return made
	}
	values := context.WithoutCancel(l.parent)
	outer := carriedBy(values) // it asks the user's context, so not under mu
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.own, l.cancel = context.WithCancelCause(valued{l.ownership.context(), values})
		l.ctx = carry(l.own, l, values, outer)
		if l.released.Load() {
			l.cancel(ErrReleased)
		}
	}
	return l.ctx
}

// A valued context ends when the embedded one does, and has the values of another one, which never ends.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key) // package context asks it by a key of its own, to end children with their parent
}

// With returns a context that carries the lease and has the values of ctx. It ends when ctx ends, or when the lease
// ends; in that case with the lease's cause, as [Lease.Context] does. Until then the lease keeps it, about a kilobyte, unless ctx
// never ends: so give it a ctx that ends with the work, such as that of a request.
func (l *Lease) With(ctx context.Context) context.Context {
	if c := carriedBy(ctx); c != nil && c.lease == l && c.done == ctx.Done() {
		return ctx // it ends with the lease already. Another one would keep the lease reachable by its ownership
	}
	l.Context()
	if ctx.Done() == nil { // it never ends, so nothing would forget what ends with both before the lease ends
		// Made of one that ends, a context of the user's may say how that ended, if context.Cause asks it.
		return carry(valued{l.own, context.WithoutCancel(ctx)}, l, ctx, carriedBy(ctx))
	}
	// To take a context off its parent is to call the parent's methods, which may be the user's code: they may block, and
	// call this lease. So what the lease ends is a child of between, and that is taken off ctx on a goroutine of its own.
	between, takeOff := context.WithCancel(ctx)
	both, cancel := context.WithCancelCause(between)
	leave := l.ownership.join(l.own, cancel)               // Context has set own, and nothing changes it again
	context.AfterFunc(both, func() { leave(); takeOff() }) // a lease may have many contexts; it must not collect them
	return carry(both, l, ctx, carriedBy(ctx))
}

// context ends when the ownership ends. The contexts of its leases are derived from it.
func (o *ownership) context() context.Context {
	o.mu.Lock()
	if o.ctx == nil {
		o.ctx, o.cancel = context.WithCancelCause(context.Background())
	}
	ctx, cancel, ended := o.ctx, o.cancel, o.ended
	o.mu.Unlock()
	if ended != nil {
		cancel(ended)
	}
	return ctx
}

// joints are what ends contexts that end with a lease, and also with another context, of which each was made.
type joints map[*context.CancelCauseFunc]struct{}

func (j joints) end(cause error) {
	for cancel := range j {
		(*cancel)(cause)
	}
}

// join has cancel called with the cause when this context of a lease ends, until leave is called. It is called by whoever
// ends the lease, before anything is sent (L1). context.AfterFunc would call it on a goroutine of its own, perhaps later.
// cancel must not call code of the user's.
func (o *ownership) join(own context.Context, cancel context.CancelCauseFunc) (leave func()) {
	o.mu.Lock()
	ended := o.ended
	if ended == nil {
		if o.joints == nil {
			o.joints = make(map[context.Context]joints)
		}
		if o.joints[own] == nil {
			o.joints[own] = make(joints)
		}
		o.joints[own][&cancel] = struct{}{}
	}
	o.mu.Unlock()
	// A lease of several may have ended alone. It calls endJoints after its context has ended, so one of the two sees that.
	if cause := context.Cause(own); cause != nil {
		cancel(cause)
	} else if ended != nil {
		cancel(ended)
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if delete(o.joints[own], &cancel); len(o.joints[own]) == 0 {
			delete(o.joints, own)
		}
	}
}

// endJoints ends what was joined to this context of a lease. It has ended, and the ownership goes on.
func (o *ownership) endJoints(own context.Context) {
	o.mu.Lock()
	ending := o.joints[own]
	delete(o.joints, own)
	o.mu.Unlock()
	ending.end(context.Cause(own))
}

// A carried lease is one that a context carries, so that an Acquire under it finds the lease.
type carried struct {
	lease *Lease
	under context.Context // the context before the lease was put in; it does not end with the lease
	done  <-chan struct{} // of the context into which the lease was put; it ends with the lease
	outer *carried        // the next lease further out; nil: none
}

// LeaseFrom returns the innermost lease that ctx carries: the one that [Lock.Do], [Lock.TryDo], [Guard], [Lease.With] or
// [Lease.Context] put there last. ok is false if there is none. The lease may have ended.
func LeaseFrom(ctx context.Context) (lease *Lease, ok bool) {
	if c := carriedBy(ctx); c != nil {
		return c.lease, true
	}
	return nil, false
}

type carriedKey struct{}

func carry(ctx context.Context, l *Lease, under context.Context, outer *carried) context.Context {
	return context.WithValue(ctx, carriedKey{}, &carried{lease: l, under: under, done: ctx.Done(), outer: outer})
}

func carriedBy(ctx context.Context) *carried {
	c, _ := ctx.Value(carriedKey{}).(*carried)
	return c
}

// outside is the context that ctx was before it carried a lease of this ownership. It does not end with the lease, so a
// call that ends the lease does not end its own wait.
func (o *ownership) outside(ctx context.Context) context.Context {
	for c := carriedBy(ctx); c != nil; c = c.outer {
		if c.lease.ownership == o {
			ctx = c.under
		}
	}
	return ctx
}

// bounding is what bounds the wait of a call under ctx that ends this ownership: outside, with the deadline of ctx. If
// something else than the lease has ended ctx already, that is ctx itself. What is made under the lease ends with it, so
// once it has ended, a cancellation cannot be told from that. stop is called when the wait is over.
func (o *ownership) bounding(ctx context.Context) (bounds context.Context, stop context.CancelFunc) {
	carries, ended := false, ctx.Err() != nil
	for c := carriedBy(ctx); c != nil; c = c.outer {
		if c.lease.ownership == o {
			carries = true
			ended = ended && context.Cause(ctx) != context.Cause(c.lease.own)
		}
	}
	if !carries || ended {
		return ctx, func() {}
	}
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(o.outside(ctx), deadline)
	}
	return o.outside(ctx), func() {}
}
