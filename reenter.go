package redlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
)

// Re-entry: several leases share one ownership. The nodes have one owner token for all of them.

// Reentrant returns the lock in a form that its holder can acquire again. Under a context that carries a lease of all
// its names (from [Lock.Do], [Lease.With] or [Lease.Context]), Acquire and TryAcquire return another lease of the lock
// that is held already, without asking any node. The leases share the owner token, the fencing token and the validity.
// The first lease also decides the TTL, the renewal and the longest and the minimum hold.
//
// The leases may be released in any order. Each lease's context ends with that lease. The last one to be released
// releases the lock.
//
// Re-entry is counted in this process and known only by the context. A goroutine without the context has to wait like
// any other client.
func (l Lock) Reentrant() Lock {
	return l.with(func(s *spec) { s.reentrant = true })
}

// within reports whether the other lock has all names of this one.
func (s *spec) within(other *spec) bool {
	for _, name := range s.res.names {
		if !slices.Contains(other.res.names, name) {
			return false
		}
	}
	return true
}

// shares finds a name that both locks have.
func (s *spec) shares(other *spec) (string, bool) {
	if s.client != other.client {
		return "", false
	}
	for _, name := range s.res.names {
		for _, theirs := range other.res.names {
			if name == theirs {
				return name, true
			}
		}
	}
	return "", false
}

// reenter returns another lease of the same ownership, or nil if that has ended.
func (l *Lease) reenter(ctx context.Context) *Lease {
	if !l.ownership.addLease() {
		return nil
	}
	again := &Lease{ownership: l.ownership, parent: ctx}
	again.Context()
	// The ownership reaches the context of this lease, and that context may reach the lease that it re-entered. So the
	// clean-up must also end the context. Otherwise the outer lease would never be garbage-collected.
	cancel := again.cancel
	again.cleanup = runtime.AddCleanup(again, func(o *ownership) { cancel(ErrReleased); o.abandon() }, l.ownership)
	return again
}

// addLease counts another lease, unless the ownership has ended or its last lease is being released.
func (o *ownership) addLease() bool {
	o.checkExpiry()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil || o.leases == 0 {
		return false
	}
	o.leases++
	return true
}

// dropLease counts one lease less, and reports whether that was the last one.
func (o *ownership) dropLease() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leases--
	return o.leases == 0
}

// leave ends only this lease. last reports whether it was the last one of the ownership. If not, lost is why the
// ownership had been lost, or nil.
func (l *Lease) leave() (last bool, lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released.Swap(true) {
		return l.last, l.lost
	}
	l.cleanup.Stop() // also if the lease was lost: the clean-up holds a reference to the ownership
	if l.last = l.ownership.dropLease(); l.last {
		return true, nil
	}
	if err := l.ownership.cause(); errors.Is(err, ErrLost) {
		l.lost = err
	}
	if l.cancel != nil {
		l.cancel(ErrReleased)
	}
	return false, l.lost
}
