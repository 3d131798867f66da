package redlock

import (
	"context"
	"errors"
)

// Do runs fn while holding the lock, waiting for it as [Lock.Acquire] does. fn's context carries all that
// ctx does, ends when the lease does, and holds the lease for those who acquire under it. Do releases when
// fn returns, and when it panics.
//
// The error is fn's, joined with [ErrLost] where the lease was lost while fn ran: then what fn did may have
// happened at the same time as another holder's work; or with [ErrClosed] where the client was closed
// meanwhile. Where fn did not run, it is Acquire's. That the release did not reach a quorum is logged and not
// returned: the work was done under a valid lease, which expires by itself.
func (l Lock) Do(ctx context.Context, fn func(context.Context, *Lease) error) error {
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// TryDo is Do without waiting: if the lock is held by another, or by ctx itself, fn does not run and there is no
// error. ran says whether fn ran. Of several that ask for a free lock at the same moment, one runs.
func (l Lock) TryDo(ctx context.Context, fn func(context.Context, *Lease) error) (ran bool, err error) {
	lease, err := l.TryAcquire(ctx)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, lease.run(ctx, fn)
}

// DoValue is [Lock.Do] for a function with a result. The result is returned also with an error.
func DoValue[T any](ctx context.Context, l Lock, fn func(context.Context, *Lease) (T, error)) (T, error) {
	var value T
	err := l.Do(ctx, func(ctx context.Context, lease *Lease) (err error) {
		value, err = fn(ctx, lease)
		return err
	})
	return value, err
}

// run calls fn under the lease and releases it, whatever becomes of fn.
func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	defer func() {
		l.ownership.checkExpiry()
		cause := l.ownership.cause()
		released := l.Release(ctx)
		switch {
		case errors.Is(cause, ErrClosed):
			err = join(err, cause)
		case released == nil:
		case errors.Is(released, ErrLost):
			err = join(err, released)
		default:
			l.ownership.client.cfg.Logger.Warn("redlock: release not confirmed", "names", l.ownership.lock.res.names, "error", released)
		}
	}()
	return fn(l.With(ctx), l)
}

// IfHeld says what a guarded function does when its lock is held by another.
type IfHeld uint8

const (
	Wait IfHeld = iota // wait until the lock is free or the context ends
	Fail               // return ErrHeld
	Skip               // return nil without having run
)

// Guard wraps fn so that each call runs under the lock that its argument asks for.
//
//	charge := redlock.Guard(
//		func(o Order) redlock.Lock { return client.Mutex("order/" + o.ID) },
//		chargeOrder, redlock.Skip)
func Guard[A any](lock func(A) Lock, fn func(context.Context, A) error, ifHeld IfHeld) func(context.Context, A) error {
	return func(ctx context.Context, arg A) error {
		work := func(ctx context.Context, _ *Lease) error { return fn(ctx, arg) }
		switch ifHeld {
		case Wait:
			return lock(arg).Do(ctx, work)
		case Fail:
			lease, err := lock(arg).TryAcquire(ctx)
			if err != nil {
				return err
			}
			return lease.run(ctx, work)
		case Skip:
			_, err := lock(arg).TryDo(ctx, work)
			return err
		default:
			return invalid("ifHeld", "%d is none of Wait, Fail and Skip", ifHeld)
		}
	}
}
