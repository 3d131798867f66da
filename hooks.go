package redlock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Hooks are functions that the client calls when something happens, for metrics and traces. Nil functions are skipped.
//
// One goroutine makes all these calls and writes the log, one after the other, in the order in which things happened.
// So a hook may block, or call [Client.Close], and no lease, renewal or connection waits for it. A call may come late,
// when the state has already changed. Up to 4096 calls and log lines queue behind a slow one. Further ones are dropped,
// counted ([Client.Dropped]) and logged. Close waits for what is queued, no longer than NodeTimeout. A hook that panics
// ends the process, as a panic of any goroutine does.
type Hooks struct {
	// Acquired: Acquire, TryAcquire or Adopt got a lease. waited is the time since the call, attempts how many rounds it took.
	Acquired func(l LeaseInfo, waited time.Duration, attempts int)
	// Refused: a round of Acquire failed, or a TryAcquire. err is a [*RoundError] that is [ErrHeld] or [ErrNoQuorum]. names
	// are the lock's; do not change them.
	Refused func(names []string, err error)
	// Extended: a renewal succeeded. left is the new validity, took the time of the round.
	Extended func(l LeaseInfo, left, took time.Duration)
	// ExtendFailed: a renewal found no quorum. It is tried again until the validity ends, unless err is [ErrLost]. If the
	// nodes answer late, Extended follows for the same renewal.
	ExtendFailed func(l LeaseInfo, err error)
	// Released: the owner released or detached the lease. err is what Release or Detach returned. l is as it was when the lease
	// ended, before the nodes were asked.
	Released func(l LeaseInfo, err error)
	// Lost: the lease was lost before it was released. err is [ErrLost]. Not called for leases that Close ended.
	Lost func(l LeaseInfo, err error)
	// NodeUp: a connection to the node opened. NodeDown: it broke, or could not be opened.
	NodeUp   func(node string)
	NodeDown func(node string, err error)
	// Traced: a call of Acquire, TryAcquire, Extend, Release, Detach or Adopt has ended, or a renewal by the client. ctx
	// has the values of the context given to the call, or to the Acquire of the renewed lease, so a span that is made
	// from it joins the caller's trace. It never ends. Calls that ask no node are left out: wrong ones, re-entries,
	// and a Release after the first.
	Traced func(ctx context.Context, op Operation)
}

// LeaseInfo describes a lease to a hook. It does not keep the [Lease] alive.
type LeaseInfo struct {
	Names []string // the lock's names; do not change them
	Token string   // see [Lease.Token]
	Fence uint64   // see [Lease.Fence]
	// Held is how long the lease had been held when this was said. 0: it was just acquired, or it was not.
	Held time.Duration
	// Left is how much longer it was valid then, if it was not renewed. 0: it had ended.
	Left time.Duration
	// At is when that was, by this machine's wall clock: a hook is called later. Nothing in the lock depends on that clock. It
	// is zero if nothing was acquired.
	At time.Time
	// Reader: it shares the lock with other readers ([RWMutex.Reader]).
	Reader bool
	// Permits is how many permits of a [Client.Semaphore] it has, and Of how many there are. 0: the lock is no semaphore.
	Permits, Of int
}

// String shows what the lease is of, and not its owner token, which is a secret.
func (l LeaseInfo) String() string {
	return fmt.Sprintf("lease of %s, fencing token %d", listed(l.Names), l.Fence)
}

// LogValue is String, so that it shows no owner token in a log. JSON of it does.
func (l LeaseInfo) LogValue() slog.Value { return slog.StringValue(l.String()) }

// An Operation is an acquisition, a renewal or a release that has ended, for traces. It holds no secret except the
// owner token ([LeaseInfo.Token]).
type Operation struct {
	Op string // acquire, extend, release, detach or adopt
	// Lease is what the operation was about. Token and Fence are empty if nothing was acquired.
	Lease LeaseInfo
	// Begun is when it began, by this machine's wall clock. Nothing in the lock depends on that clock.
	Begun time.Time
	Took  time.Duration
	// Err is what the call returned, or why the renewal failed; nil: it succeeded.
	Err error
	// Rounds are the attempts of an acquisition, in order. After many, these are the first one and the last ones, and
	// RoundsLeftOut says how many are missing in between.
	Rounds        []Attempt
	RoundsLeftOut int
	// Renewal numbers the renewals that the client made of this lease by itself, from 1. 0: the program called
	// [Lease.Extend], or this is no renewal.
	Renewal int
}

// An Attempt is one round of an acquisition. Between two attempts an Acquire waits.
type Attempt struct {
	Begun time.Time
	Took  time.Duration
	// Err is nil if the lock was acquired, a [*RoundError] if the round was refused, or what ended the call meanwhile.
	Err error
	// Granted, Denied and Unknown are the votes when the attempt ended. A node that was not asked is unknown.
	Granted, Denied, Unknown int
}

func (h *Hooks) none() bool {
	return h.Acquired == nil && h.Refused == nil && h.Extended == nil && h.ExtendFailed == nil &&
		h.Released == nil && h.Lost == nil && h.NodeUp == nil && h.NodeDown == nil && h.Traced == nil
}

// later returns hooks that queue the calls of the given ones. Where a given hook is nil, so is the returned one.
func (n *notifier) later(hooks Hooks) (later Hooks) {
	if hook := hooks.Acquired; hook != nil {
		later.Acquired = func(l LeaseInfo, waited time.Duration, attempts int) {
			n.post(func() { hook(l, waited, attempts) })
		}
	}
	if hook := hooks.Refused; hook != nil {
		later.Refused = func(names []string, err error) { n.post(func() { hook(names, err) }) }
	}
	if hook := hooks.Extended; hook != nil {
		later.Extended = func(l LeaseInfo, left, took time.Duration) { n.post(func() { hook(l, left, took) }) }
	}
	later.ExtendFailed = n.ofLease(hooks.ExtendFailed)
	later.Released = n.ofLease(hooks.Released)
	if hook := hooks.Lost; hook != nil {
		later.Lost = func(l LeaseInfo, err error) { n.postFree(func() { hook(l, err) }) }
	}
	if hook := hooks.NodeUp; hook != nil {
		later.NodeUp = func(node string) { n.postFree(func() { hook(node) }) }
	}
	if hook := hooks.NodeDown; hook != nil {
		later.NodeDown = func(node string, err error) { n.postFree(func() { hook(node, err) }) }
	}
	if hook := hooks.Traced; hook != nil {
		later.Traced = func(ctx context.Context, op Operation) { n.post(func() { hook(ctx, op) }) }
	}
	return later
}

func (n *notifier) ofLease(hook func(LeaseInfo, error)) func(LeaseInfo, error) {
	if hook == nil {
		return nil
	}
	return func(l LeaseInfo, err error) { n.post(func() { hook(l, err) }) }
}

// A story is what the hooks are told of one lease, in order. A lease is renewed, and can be lost, before the call that
// acquired it has told Hooks.Acquired: its goroutine may stand still. What comes first then waits for that.
type story struct {
	mu    sync.Mutex // guards the rest
	waits bool       // Acquired was not told
	calls []func()   // what has happened since
}

// begin tells Acquired, and what has waited for it.
func (s *story) begin(acquired func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	acquired() // like all calls of hooks, it is only queued
	for _, call := range s.calls {
		call()
	}
	s.waits, s.calls = false, nil
}

func (s *story) tell(call func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits {
		s.calls = append(s.calls, call)
		return
	}
	call()
}

// tell tells this hook of the lease, if there is one.
func (o *ownership) tell(hook func(LeaseInfo, error), err error) {
	o.tellOf(o.infoFor(hook), hook, err)
}

// tellOf tells it of the lease as it was.
func (o *ownership) tellOf(info LeaseInfo, hook func(LeaseInfo, error), err error) {
	if hook != nil {
		o.story.tell(func() { hook(info, err) })
	}
}

// infoFor is what to tell this hook, if there is one.
func (o *ownership) infoFor(hook func(LeaseInfo, error)) (info LeaseInfo) {
	if hook != nil {
		info = o.info()
	}
	return info
}
