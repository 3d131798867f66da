package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Lock describes a lock: what is locked, and how. It is a value that never changes and holds nothing. Copy it freely;
// any number of goroutines may acquire it. Get one from [Client.Mutex], [Client.RWMutex] or [Client.Semaphore]; to
// acquire the zero Lock is [ErrInvalid].
type Lock struct{ spec *spec }

// Mutex returns a lock that one lease at a time can hold. If it has several names, one round acquires all of them or
// none. Two locks that share a name exclude each other, in whatever order their names are.
//
// A name is any string of 1 to 1024 bytes, and is used as it is. Only keys that this library uses itself are not allowed;
// all of them begin with "redlock:". A lock has up to 1000 names, each of them once. A name that is not allowed shows as
// [ErrInvalid] when the lock is acquired.
func (c *Client) Mutex(name string, more ...string) Lock {
	res := newResource(c.cfg.Prefix, name, more)
	return Lock{&spec{
		client: c,
		res:    res,
		ttl:    c.cfg.TTL,
		millis: c.ttlMillis,
		renew:  true,
		owner:  c.waiters.owner,
		err:    c.cfg.checkNames(res.names),
	}}
}

// with returns a copy of the lock with something changed. The zero Lock stays as it is.
func (l Lock) with(change func(*spec)) Lock {
	if l.spec == nil {
		return l
	}
	s := *l.spec
	change(&s)
	return Lock{&s}
}

// WithTTL returns the lock with leases of this length instead of [Config.TTL]: from 10ms to [Config.MaxTTL]. Another
// length, or one that leaves no validity above [Config.MinValidity], shows as [ErrInvalid] when the lock is acquired.
func (l Lock) WithTTL(ttl time.Duration) Lock {
	return l.with(func(s *spec) {
		s.ttl, s.millis = ttl, millis(max(ttl, s.keptFor()))
		if err := s.client.cfg.checkTTL("WithTTL", ttl); err != nil && s.err == nil {
			s.err = err
		}
	})
}

// WithMaxHold returns the lock with leases that end at the latest after this time, also if the work takes longer: they
// are not renewed past it and are then lost, as after a failed renewal. A time that is not positive, or not above
// [Config.MinValidity], shows as [ErrInvalid] when the lock is acquired. Default: no limit.
func (l Lock) WithMaxHold(d time.Duration) Lock {
	return l.with(func(s *spec) {
		s.maxHold = d
		switch least := s.client.cfg.MinValidity; {
		case s.err != nil:
		case d <= 0:
			s.err = invalid("WithMaxHold", "%v is not positive", d)
		case d <= least:
			s.err = invalid("WithMaxHold", "%v leaves no more than MinValidity (%v)", d, least)
		default:
			s.err = checkUnit("WithMaxHold", d)
		}
	})
}

// WithOwner returns the lock with a label that says what it is held for, or by whom. Others see it with [Config.Owner]
// while they find the lock held: in [RoundError.Holder], in errors, in [Client.Inspect]. It is any text of up to 256
// bytes, so an address fits. It is stored on the nodes, and is no secret. A longer one shows as [ErrInvalid] when the
// lock is acquired. Default "": none.
func (l Lock) WithOwner(label string) Lock {
	return l.with(func(s *spec) {
		s.owner = withLabel(s.client.waiters.owner, label)
		if err := checkOwner("WithOwner", label); err != nil && s.err == nil {
			s.err = err
		}
	})
}

// WithoutRenewal returns the lock with leases that the client does not renew. They end after their TTL, unless
// [Lease.Extend] is called.
func (l Lock) WithoutRenewal() Lock {
	return l.with(func(s *spec) { s.renew = false })
}

// Acquire waits until it has the lock, or until ctx ends. If ctx ends, the error is ctx.Err(), joined with a
// [*RoundError] if it is known what was in the way: [ErrHeld] if another had the lock, [ErrNoQuorum] if too few nodes
// could vote.
//
// Two errors end the wait early, because waiting cannot help:
//   - [ErrInvalid] if ctx already holds one of the names, because the call would wait for itself; unless the lock is
//     [Lock.Reentrant] and ctx holds all of its names;
//   - an error in which [errors.As] finds a [*ConfigError], if so many nodes refuse this client's configuration that no
//     quorum is left: a [*RoundError], or a [*NodeError] where it is the groups of a [Sharded] that they refuse.
//
// Other errors are [ErrInvalid] and [ErrClosed]. Waiters of one client that want the same names are served in order of
// arrival; of a semaphore, those that want as many permits of as many.
func (l Lock) Acquire(ctx context.Context) (lease *Lease, err error) {
	s := l.spec
	if lease, err := l.check(ctx, false); lease != nil || err != nil {
		return lease, err
	}
	c := s.client
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.finish()
	t := c.traceAcquire(ctx, "acquire", s)
	c.acquiring.Add(1)
	defer func() {
		c.acquiring.Add(-1)
		t.acquired(lease, err)
	}()
	begun := c.cfg.Clock.Now()
	if s.fair {
		return s.acquireFair(ctx, begun, t)
	}
	for attempts := 0; ; {
		w := waiter{client: c, res: s.res, attempts: attempts}
		lease, err := s.contend(ctx, &w, begun, t)
		if err != errTurnLost {
			return lease, err
		}
		attempts = w.attempts
	}
}

var errTurnLost = errors.New("others in this process have their turn")

// contend waits for its turn in this process (W1), and then until it has the lock. The error is errTurnLost if it was
// granted the lock several times in a row, too late to be of use, and others queue behind it.
func (s *spec) contend(ctx context.Context, w *waiter, begun Instant, t *tracing) (lease *Lease, err error) {
	c := s.client
	// The last round that asked all nodes and was not cut short: of this call, or of one that was ahead of it.
	var last *round
	queues := !s.res.share.isReader() // readers are not in each other's way
	behind, turn := false, begun
	if queues {
		if behind, last, err = c.localQueues.join(ctx, s.res.queueKey, c.ending); err != nil {
			return nil, s.failure(err, last, nil, true, false)
		}
		defer func() { c.localQueues.leave(s.res.queueKey, lease != nil) }()
		if behind {
			turn = c.cfg.Clock.Now()
		}
	}
	if len(s.res.keys) > 1 {
		c.overlaps.several.Add(1)
		defer c.overlaps.several.Add(-1)
	}

	defer w.end()
	w.begin()
	denied := false // by some node, in this call
	wasted := 0     // rounds that asked all nodes and were won too late to be of use, one after another
	for {
		leave, err := c.awaitOverlaps(ctx, s.res)
		if err != nil {
			return nil, s.failure(err, last, nil, true, denied)
		}
		w.how.include = w.turn.reserved
		lease, r, err := t.attempt(ctx, c, s, w.how)
		leave()
		w.attempts++
		if lease != nil {
			w.won = r
			if r.deniedBy() != 0 {
				c.waiters.contend(s.res)
				c.waiters.meet(s.res, r)
			}
			c.acquired(lease, begun, w.attempts)
			return lease, nil
		}
		if err == nil {
			denied = denied || r.deniedBy() != 0
			if !r.alone() {
				last = r
				if queues {
					if wasted++; !r.isWasted() {
						wasted = 0
					}
					c.localQueues.wasRefused(s.res.queueKey, r)
				}
				c.waiters.meet(s.res, r)
			}
			if err := c.heedRefusal(s, r); err != nil {
				return nil, err
			}
			err = w.wait(ctx, r)
		}
		if err != nil {
			// If many give up at the same time, each has its turn for a moment, too short for an answer. What was in its way
			// until then was the caller ahead.
			behind = behind && !denied && c.cfg.Clock.Now().Sub(turn) < turn.Sub(begun)
			return nil, s.failure(err, last, r, behind, denied)
		}
		if wasted >= maxWasted && c.localQueues.isAwaited(s.res.queueKey) {
			return nil, errTurnLost
		}
	}
}

// check reports why the lock cannot be acquired under ctx, or re-enters a lock that ctx holds. A try does not wait, so
// to it a lock that ctx holds is held like any other, not an error in the program.
func (l Lock) check(ctx context.Context, try bool) (*Lease, error) {
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
	if err := l.spec.client.checkGroup(l.spec.res.names); err != nil {
		return nil, err
	}
	for c := carriedBy(ctx); c != nil; c = c.outer {
		held := c.lease.ownership
		name, both := l.spec.shares(held.lock)
		if !both {
			continue
		}
		held.checkExpiry()
		if held.cause() != nil {
			continue
		}
		if try && l.spec.res.isShared() && l.spec.res.share.like(held.lock.res.share) && !l.spec.reentrant {
			continue // they do not exclude each other, and a try does not wait
		}
		if !try && !l.spec.res.share.like(held.lock.res.share) {
			remedy := "release that first"
			if l.spec.res.share.isReader() && !held.lock.res.isShared() {
				remedy += ", or use Lease.Downgrade"
			}
			return nil, invalid("ctx", "it already holds %q as another kind of lock, so this would wait for itself for ever; "+
				"%s", name, remedy)
		}
		if try && !(l.spec.reentrant && l.spec.within(held.lock)) {
			return nil, &RoundError{Op: "acquire", Names: slices.Clone(l.spec.res.names), Need: l.spec.client.need, kind: ErrHeld,
				note: fmt.Sprintf("ctx itself holds %q", name)}
		}
		if !l.spec.reentrant {
			return nil, invalid("ctx", "it already holds %q, so this would wait for itself for ever; "+
				"use the lease that it carries, or Reentrant", name)
		}
		if share := l.spec.res.share; share.wantsMore(held.lock.res.share) {
			return nil, invalid("ctx", "it already holds %d of the permits of %q, and %d could wait for themselves for ever; "+
				"acquire all of them at once", held.lock.res.share.take, name, share.take)
		}
		if !l.spec.within(held.lock) {
			return nil, invalid("ctx", "it already holds %q, but not all of %s, so this would wait for itself for ever; "+
				"acquire all names at once", name, listed(l.spec.res.names))
		}
		if lease := c.lease.reenter(ctx); lease != nil {
			return lease, nil
		}
	}
	return nil, nil
}

func (c *Client) acquired(l *Lease, begun Instant, attempts int) {
	if hook := c.cfg.Hooks.Acquired; hook != nil {
		info, waited := l.ownership.info(), c.cfg.Clock.Now().Sub(begun)
		l.ownership.story.begin(func() { hook(info, waited, attempts) })
	}
}

// heedRefusal takes from a refused round of an Acquire what the next one needs, and tells the hook. An error means that
// further rounds cannot help.
func (c *Client) heedRefusal(s *spec, r *round) error {
	c.learn(r)
	c.refused(s, r)
	return c.refusedByConfig(s, r)
}

func (c *Client) refused(s *spec, r *round) {
	if hook := c.cfg.Hooks.Refused; hook != nil {
		hook(s.res.names, r.refusal(s.res.names, c.nodes))
	}
}

// Reentrant returns the lock in a form that its holder can acquire again. Under a context that carries a lease of all
// its names (from [Lock.Do], [Lease.With] or [Lease.Context]), Acquire and TryAcquire return another lease of the lock
// that is held already, without asking any node. The leases share the owner token, the fencing token and the validity.
// The first lease also decides the TTL, the renewal and the longest and the minimum hold. Of a semaphore, the lease that
// ctx carries must have as many permits as are asked for now.
//
// The leases may be released in any order. Each lease's context ends with that lease. The last one to be released
// releases the lock.
//
// Re-entry is counted in this process and known only by the context. A goroutine without the context has to wait like
// any other client.
func (l Lock) Reentrant() Lock {
	return l.with(func(s *spec) { s.reentrant = true })
}
