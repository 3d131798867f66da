package redlock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/redlock"
)

// fails records the error that a call returned instead of a lease, and judges it.
func (o *oracle) fails(a *call, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.calls, a)
	a.ended = time.Now()
	w := o.world
	said, _, _ := strings.Cut(err.Error(), "\n")
	w.trace("client %d gives up on %s after %v: %.100s", a.worker.id+1, a.names, a.ended.Sub(a.began), said)
	isClosed := errors.Is(err, redlock.ErrClosed)
	if errors.Is(err, redlock.ErrInvalid) && a.worker.id+1 != w.has.differs || isClosed && !w.has.closes {
		o.violate("no such error", "%v", err)
	}
	o.frees(nil)
	if !a.quiet {
		return
	}
	o.past = append(o.past, a)
	if isClosed || a.worker.id+1 == w.has.mute {
		return
	}
	// A caller that gives up before all nodes can have answered cannot know whether there is an outage. It does not ask
	// them while it waits behind others of its process.
	if errors.Is(err, redlock.ErrNoQuorum) && a.ended.Sub(o.firstHere(a)) > 4*w.slow() {
		o.violate(wrongKind, "client %d was told of an outage, but every node was there: %v", a.worker.id+1, err)
	}
	if errors.Is(err, redlock.ErrHeld) && !o.wanted(a) && !isStale(err) {
		o.violate(wrongKind, "client %d was told that %s was held, but nobody else wanted it: %v", a.worker.id+1, a.names, err)
	}
}

// firstHere is since when, at the latest, nobody else of its process wanted any of the call's names. o.mu is held.
func (o *oracle) firstHere(a *call) time.Time {
	since := a.began
	for _, other := range o.past {
		if other.client == a.client && other.shares(a) && other.ended.After(since) {
			since = other.ended
		}
	}
	for other := range o.calls {
		if other.client == a.client && other.shares(a) && other.began.Before(a.began) {
			since = a.ended
		}
	}
	return since
}

// isStale reports whether nodes denied because they had granted a larger fencing token, by a clock that was ahead, and this
// caller gave up before it could try again with a larger one.
func isStale(err error) bool {
	var denial *redlock.Denial
	return errors.As(err, &denial) && denial.Reason == redlock.ReasonStale
}

// wanted reports whether somebody else had one of the call's names, was acquiring it, or may have left a key. o.mu is
// held.
func (o *oracle) wanted(a *call) bool {
	if o.world.has.stays {
		return true // by what stays on one server, as far as a caller can tell who gives up soon
	}
	left := a.began.Add(-o.world.ttl*3/10 - 100*time.Millisecond) // by then it is gone, and so is a reservation
	for _, others := range [][]*call{o.past, slices.Collect(keysOf(o.calls))} {
		for _, other := range others {
			isAnother := other.worker != a.worker || other.client != a.client || other.ended.After(a.began) // its own minimum hold
			if other != a && other.shares(a) && isAnother &&
				(other.ended.IsZero() || other.ended.After(left)) {
				return true
			}
		}
	}
	return false
}

func keysOf(calls map[*call]bool) func(func(*call) bool) {
	return func(yield func(*call) bool) {
		for a := range calls {
			if !yield(a) {
				return
			}
		}
	}
}

func (a *call) shares(other *call) bool {
	return slices.ContainsFunc(a.names, func(name string) bool { return slices.Contains(other.names, name) })
}

// released records what Release returned, for a lease that was valid or was not.
func (o *oracle) released(a *call, valid bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.calls, a)
	a.ended = o.keptUntil(a.names)
	if !a.quiet {
		return
	}
	o.past = append(o.past, a)
	if valid && err != nil && !errors.Is(err, redlock.ErrClosed) {
		o.violate(wrongKind, "client %d released %s, which was valid, and was told: %v", a.worker.id+1, a.names, err)
	}
}

const (
	// maxFree is how long a lock may stay free while it has a waiter and nothing is wrong. It is twice that where a
	// client may send no message after its release, or where something stays on one server: a waiter learns that within
	// about a second, and not that a message is lost besides. A waiter that nobody tells looks by itself after 0.5 to 1.5 s
	// (W2). So who is late here was not told, but of those who were not told, only the few with a long pause are late here.
	maxFree = 1200 * time.Millisecond
	// maxOvertaken is how many callers that came later may get the lock before a waiter.
	maxOvertaken = 24
)

// passes records that the call got its lease, and judges whether the waiters, this one included, came in time. o.mu is
// held.
func (o *oracle) passes(a *call) {
	o.tooLong()
	for other := range o.calls {
		if other == a || !other.waits(o) || !other.shares(a) {
			continue
		}
		if other.began.Before(a.began) {
			other.overtaken++
			bound := maxOvertaken
			if slices.Contains(sharedNames, other.names[0]) {
				bound *= 2 // after each writer, all readers that wait by then get in (S3)
			}
			if other.overtaken > bound && other.quiet {
				o.violate(outOfTurn, "client %d has waited for %s for %v, and %d that came later got it", other.worker.id+1, other.names,
					time.Since(other.began), other.overtaken)
				other.overtaken = -1 << 30
			}
		}
	}
}

// waits reports whether the call is a waiter. o.mu is held.
func (a *call) waits(o *oracle) bool {
	return !a.trying && !a.granted && a.ended.IsZero() && a.worker.id+1 != o.world.has.mute
}

// tooLong judges for how long the waiters could have had their locks. o.mu is held.
func (o *oracle) tooLong() {
	bound := maxFree
	if o.world.has.mute != 0 || o.world.has.stays {
		bound *= 2
	}
	for a := range o.calls {
		if !a.quiet || !a.waits(o) || o.isTaken(a) {
			continue
		}
		invariant, bound := o.staysFree(a, bound)
		if free := time.Since(a.free); free > bound {
			o.violate(invariant, "client %d waits for %s, which was free for %v", a.worker.id+1, fmt.Sprint(a.names), free)
		}
	}
}

func (o *oracle) isTaken(a *call) bool {
	for _, held := range o.leases {
		if held.shares(a) {
			return true
		}
	}
	return false
}

// frees records that this call's lease is over; nil: that a call ended without one. o.mu is held.
func (o *oracle) frees(ended *call) {
	if ended == nil {
		o.tooLong()
		return
	}
	for a := range o.calls {
		if a != ended && a.shares(ended) {
			a.free = o.keptUntil(a.names)
		}
	}
}
