package redlock

import (
	"context"
	"errors"
)

// Do acquires the lock as [Lock.Acquire] does, runs fn, and releases the lock when fn returns or panics. fn's context
// has the values of ctx, and also carries the lease, so that an Acquire under it finds the lease. It ends when ctx or
// the lease ends.
//
// The release is waited for also if ctx has ended, as at the end of a program: for a round trip, or NodeTimeout if nodes are
// away. So a process that exits when Do has returned leaves no lock behind on nodes that are up.
//
// If fn did not run, the error is Acquire's. Otherwise it is fn's error, joined with
//   - [ErrLost] if the lease was lost while fn ran, also after [Lease.Downgrade]: another holder may have worked at the same
//     time;
//   - [ErrClosed] if the client was closed while fn ran.
//
// If fn downgrades the lease, fn's context ends. The reader's lease has a context of its own, and fn releases it: Do does not.
//
// A release that is not confirmed is logged and is no error: fn ran under a valid lease, and the lock expires by
// itself.
func (l Lock) Do(ctx context.Context, fn func(context.Context, *Lease) error) error {
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// TryDo is [Lock.Do] without waiting: it acquires as [Lock.TryAcquire] does. If that says [ErrHeld], because another has
// the lock or ctx itself holds it, fn does not run and there is no error. ran says whether fn ran. If several ask for a
// free lock at the same moment, exactly one runs.
func (l Lock) TryDo(ctx context.Context, fn func(context.Context, *Lease) error) (ran bool, err error) {
	lease, err := l.acquireIf(ctx, Skip)
	if lease == nil {
		return false, err
	}
	return true, lease.run(ctx, fn)
}

// DoValue is [Lock.Do] for a function with a result. It returns the function's result also if there is an error.
func DoValue[T any](ctx context.Context, l Lock, fn func(context.Context, *Lease) (T, error)) (T, error) {
	var value T
	err := l.Do(ctx, func(ctx context.Context, lease *Lease) (err error) {
		value, err = fn(ctx, lease)
		return err
	})
	return value, err
}

// run calls fn under the lease, and releases the lease also if fn panics.
func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	defer func() {
		l.ownership.checkExpiry()
		cause := l.ownership.cause()
		asReader := l.endAsReader()
		released := l.Release(context.WithoutCancel(l.ownership.outside(ctx)))
		var ended error // how the lease ended while fn ran
		switch {
		case errors.Is(cause, ErrClosed):
			ended = cause
		case errors.Is(released, ErrLost):
			ended = released
		case asReader != nil:
			ended = asReader
		case released != nil:
			l.ownership.client.cfg.Logger.Warn("redlock: release not confirmed", "names", l.ownership.lock.res.names, "error", released)
		}
		if ended != nil && !errors.Is(err, ended) { // fn may have returned the cause of its context
			err = join(err, ended)
		}
	}()
	return fn(l.With(ctx), l)
}

// IfHeld says what a guarded function does if another has its lock. The zero value is Wait.
type IfHeld uint8

const (
	Wait IfHeld = iota // wait until the lock is free or the context ends
	Fail               // return ErrHeld
	Skip               // return nil without running
)

// Guard returns a function that calls fn under the lock that lock returns for the argument. Its errors are those of
// [Lock.Do], and [ErrInvalid] if ifHeld is none of [Wait], [Fail] and [Skip].
//
//	charge := redlock.Guard(
//		func(o Order) redlock.Lock { return client.Mutex("order/" + o.ID) },
//		chargeOrder, redlock.Skip)
func Guard[A any](lock func(A) Lock, fn func(context.Context, A) error, ifHeld IfHeld) func(context.Context, A) error {
	return func(ctx context.Context, arg A) error {
		lease, err := lock(arg).acquireIf(ctx, ifHeld)
		if lease == nil {
			return err
		}
		return lease.run(ctx, func(ctx context.Context, _ *Lease) error { return fn(ctx, arg) })
	}
}

// acquireIf acquires the lock as a guarded function does. No lease and no error: it is held, and is skipped.
func (l Lock) acquireIf(ctx context.Context, ifHeld IfHeld) (*Lease, error) {
	switch ifHeld {
	case Wait:
		return l.Acquire(ctx)
	case Fail:
		return l.TryAcquire(ctx)
	case Skip:
		lease, err := l.TryAcquire(ctx)
		if errors.Is(err, ErrHeld) {
			return nil, nil
		}
		return lease, err
	default:
		return nil, invalid("ifHeld", "%d is none of Wait, Fail and Skip", ifHeld)
	}
}
