package redlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
)

// Re-entry: several leases of one hold. The nodes know of one.

// Reentrant lets those who hold the lock acquire it again: under a context that carries a lease of all its names
// (from [Lock.Do] or [Lease.With]), Acquire and TryAcquire return another lease of what is held already, with the
// same token, fence and end, without asking any node. The lock is let go when the last of its leases is released,
// in whatever order; each lease's own context ends when it is. What else the lock describes (TTL, renewal, longest
// hold) is that of the lease that was there first.
//
// That somebody holds the lock is counted in this process alone, and known by the context: a goroutine without it is
// another contender.
func (l Lock) Reentrant() Lock {
	return l.with(func(s *spec) { s.reentrant = true })
}

// within reports whether whoever holds the other lock has all of this one's names.
func (s *spec) within(other *spec) bool {
	for _, name := range s.res.names {
		if !slices.Contains(other.res.names, name) {
			return false
		}
	}
	return true
}

// shares finds a name that both locks lock.
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

// reenter is another lease of the same hold, or nil if that has ended.
func (l *Lease) reenter(ctx context.Context) *Lease {
	if !l.ownership.addLease() {
		return nil
	}
	again := &Lease{ownership: l.ownership, parent: ctx}
	again.Context()
	// Its context may reach the lease that it re-entered, and is reached from the hold, so it ends here too: else
	// neither would ever be noticed to be dropped.
	cancel := again.cancel
	again.cleanup = runtime.AddCleanup(again, func(o *ownership) { cancel(ErrReleased); o.abandon() }, l.ownership)
	return again
}

// addLease counts another lease, unless the hold has ended or is about to.
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

// dropLease counts one lease less, and reports whether none is left.
func (o *ownership) dropLease() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leases--
	return o.leases == 0
}

// leave ends this lease alone. It reports whether that leaves the hold to nobody, and else whether it was lost.
func (l *Lease) leave() (last bool, lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released.Swap(true) {
		return l.last, l.lost
	}
	l.cleanup.Stop() // also of a lease that was lost: until then it keeps the hold, and all that reaches
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
