package redlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
)

// Re-entry: several leases share one ownership. The nodes have one owner token for all of them.

// within reports whether the other lock has all names of this one, as the same kind of lock, and as many permits.
func (s *spec) within(other *spec) bool {
	if !s.res.share.like(other.res.share) || s.res.share.wantsMore(other.res.share) {
		return false
	}
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
	// The ownership reaches the context of this lease, and that context may reach the lease that it re-entered. So if this
	// lease is dropped, its context must end too. Otherwise the outer lease would never be garbage-collected.
	own, cancel := again.own, again.cancel
	again.cleanup = runtime.AddCleanup(again, func(o *ownership) {
		o.leaveToTick(func() { cancel(ErrReleased); o.endJoints(own) })
		o.abandon()
	}, l.ownership)
	return again
}

// leave ends only this lease. first reports whether nothing had released it before, and last whether it was the last
// one of the ownership. If it was not, lost is why the ownership had been lost, or nil.
func (l *Lease) leave() (first, last bool, lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released.Swap(true) {
		return false, l.last, l.lost
	}
	l.cleanup.Stop() // also if the lease was lost: the clean-up holds a reference to the ownership
	if l.last = l.ownership.dropLease(); l.last {
		return true, true, nil
	}
	if err := l.ownership.cause(); errors.Is(err, ErrLost) {
		l.lost = err
	}
	if l.cancel != nil {
		l.cancel(ErrReleased)
		l.ownership.endJoints(l.own)
	}
	return true, false, l.lost
}
