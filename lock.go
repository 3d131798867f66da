package redlock

import (
	"context"
	"errors"
	"time"
)

// A Lock describes a lock: what is locked and how. It holds nothing; copying it is free, and one Lock may be
// acquired by many goroutines. Get one from [Client.Mutex].
type Lock struct{ spec *spec }

// A spec is what a Lock describes. It is not written after it was made.
type spec struct {
	client  *Client
	res     *resource
	ttl     time.Duration
	millis  any           // of ttl, boxed once for redigo
	maxHold time.Duration // 0: none
	renew   bool
	again   bool  // Reentrant
	err     error // why it cannot be acquired
}

// Mutex is a lock that one lease at a time can hold. Over several names it is had for all of them or for
// none, in one round, and two such locks that share a name exclude each other whatever their order.
//
// A name is any string of up to 1024 bytes, used as it is. A bad name shows as [ErrInvalid] when the lock is
// acquired.
func (c *Client) Mutex(name string, more ...string) Lock {
	res := newResource(c.cfg.Prefix, name, more)
	return Lock{&spec{
		client: c,
		res:    res,
		ttl:    c.cfg.TTL,
		millis: c.ttlMillis,
		renew:  true,
		err:    c.cfg.checkNames(res.names),
	}}
}

// with returns the lock with something changed.
func (l Lock) with(change func(*spec)) Lock {
	if l.spec == nil {
		return l
	}
	s := *l.spec
	change(&s)
	return Lock{&s}
}

// WithTTL sets the length of the lock's leases instead of [Config.TTL]: from 10ms to [Config.MaxTTL].
func (l Lock) WithTTL(ttl time.Duration) Lock {
	return l.with(func(s *spec) {
		s.ttl, s.millis = ttl, millis(ttl)
		if err := s.client.cfg.checkTTL("WithTTL", ttl); err != nil && s.err == nil {
			s.err = err
		}
	})
}

// WithMaxHold ends the lock's leases after this time, however long the work takes: they are not renewed past
// it, and are then lost as if a renewal had failed.
func (l Lock) WithMaxHold(d time.Duration) Lock {
	return l.with(func(s *spec) {
		s.maxHold = d
		if d <= 0 && s.err == nil {
			s.err = invalid("WithMaxHold", "%v is not positive", d)
		}
	})
}

// WithoutRenewal makes leases that end after their TTL unless [Lease.Extend] is called.
func (l Lock) WithoutRenewal() Lock {
	return l.with(func(s *spec) { s.renew = false })
}

// Acquire waits until it has the lock, or until ctx ends. The error is then ctx.Err(), joined with the last
// [*RoundError], which tells a lock that was held ([ErrHeld]) from nodes that were away ([ErrNoQuorum]).
// Other errors are [ErrInvalid] and [ErrClosed].
//
// Those who wait in one process are served in the order in which they came. Acquiring a lock that ctx
// already holds is an error at once, unless it is [Lock.Reentrant]: it would wait for itself.
func (l Lock) Acquire(ctx context.Context) (*Lease, error) {
	if lease, err := l.check(ctx); lease != nil || err != nil {
		return lease, err
	}
	c := l.spec.client
	begun := c.cfg.Clock.Now()
	if err := c.lines.enter(ctx, l.spec.res.line, c.ending); err != nil {
		return nil, err
	}
	defer c.lines.leave(l.spec.res.line)

	var w waiting
	defer w.end(c)
	w.begin(c, l.spec.res)
	for {
		lease, r, err := c.attempt(ctx, l.spec, w.how)
		w.attempts++
		if lease != nil {
			if r.deniedBy() != 0 {
				c.watch.contend(l.spec.res)
			}
			c.acquired(lease, begun, w.attempts)
			return lease, nil
		}
		if err == nil {
			c.learn(r)
			c.refused(l.spec, r, w.how.probe != nil)
			err = w.wait(ctx, c, l.spec, r)
		}
		if err != nil {
			return nil, w.failure(err, r, l.spec)
		}
	}
}

// maxBallots is how often TryAcquire raises a ballot that some node refused: others may raise it too.
const maxBallots = 8

// TryAcquire asks for the lock once, without waiting: one round, at most NodeTimeout. The error is a
// [*RoundError] that is [ErrHeld] or [ErrNoQuorum], or else ctx.Err(), [ErrInvalid] or [ErrClosed].
//
// A round is repeated at once where nothing but a ballot was in its way. Two who try at the same moment may
// both be told ErrHeld.
func (l Lock) TryAcquire(ctx context.Context) (*Lease, error) {
	if lease, err := l.check(ctx); lease != nil || err != nil {
		return lease, err
	}
	c := l.spec.client
	begun := c.cfg.Clock.Now()
	for attempts := 1; ; attempts++ {
		lease, r, err := c.attempt(ctx, l.spec, approach{claim: ""})
		if lease != nil {
			c.acquired(lease, begun, attempts)
			return lease, nil
		}
		if err != nil {
			return nil, err
		}
		c.learn(r)
		if r.onlyStale() && attempts < maxBallots {
			continue
		}
		c.refused(l.spec, r, false)
		return nil, r.refusal(l.spec.res.names, c.nodes, false)
	}
}

// check says whether the lock can be acquired under ctx at all, or returns another lease of one that ctx carries.
func (l Lock) check(ctx context.Context) (*Lease, error) {
	switch {
	case l.spec == nil:
		return nil, invalid("Lock", "it is the zero Lock; get one from Client.Mutex")
	case l.spec.err != nil:
		return nil, l.spec.err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case l.spec.client.isClosed():
		return nil, ErrClosed
	}
	for c := carriedBy(ctx); c != nil; c = c.outer {
		held := c.lease.hold
		name, both := l.spec.shares(held.lock)
		if !both || held.cause() != nil {
			continue
		}
		if !l.spec.again {
			return nil, invalid("ctx", "it already holds %q, so this would wait for itself for ever; "+
				"use the lease that it carries, or Reentrant", name)
		}
		if !l.spec.within(held.lock) {
			return nil, invalid("ctx", "it already holds %q, but not all of %s, so this would wait for itself for ever; "+
				"acquire all names at once", name, quoted(l.spec.res.names))
		}
		if lease := c.lease.reenter(ctx); lease != nil {
			return lease, nil
		}
	}
	return nil, nil
}

func (c *Client) acquired(l *Lease, begun Instant, attempts int) {
	if hook := c.cfg.Hooks.Acquired; hook != nil {
		hook(l.hold.info(), c.cfg.Clock.Now().Sub(begun), attempts)
	}
}

func (c *Client) refused(s *spec, r *round, probed bool) {
	if hook := c.cfg.Hooks.Refused; hook != nil {
		hook(s.res.names, r.refusal(s.res.names, c.nodes, probed))
	}
}

// learn keeps the next ballot above those that were met (F2).
func (c *Client) learn(r *round) {
	answers, _ := r.snapshot()
	for _, a := range answers {
		if a.denial != nil && a.denial.highest > 0 {
			c.saw(a.denial.highest)
		}
	}
}

// failure is what Acquire returns: the end of ctx comes with what was in the way until then.
func (w *waiting) failure(err error, r *round, s *spec) error {
	if r == nil || errors.Is(err, ErrClosed) {
		return err
	}
	if _, t := r.snapshot(); t.verdict() == undecided && w.last != nil {
		r = w.last // the last round was cut short, and tells less than the one before
	}
	return errors.Join(err, r.refusal(s.res.names, s.client.nodes, w.how.probe != nil))
}
