package redlock

import "time"

// Hooks are told what happens, for metrics and traces. Nil funcs are skipped.
//
// They are called one after the other, in the order in which things happened, on a goroutine that does nothing but
// call them and write the log. A hook may therefore block, or call [Client.Close], without delaying any lease; it is
// told late, and by then the state may be another. Up to 4096 calls and lines of the log wait for a slow one; what
// comes then is dropped, counted ([Client.Dropped]) and logged. Close waits for what is queued, no longer than
// NodeTimeout.
type Hooks struct {
	// Acquired: a lease was won. waited is the time since Acquire was called, attempts the rounds it took.
	Acquired func(l LeaseInfo, waited time.Duration, attempts int)
	// Refused: an attempt of Acquire failed, or a TryAcquire; err is its [*RoundError], which is ErrHeld or ErrNoQuorum.
	Refused func(names []string, err error)
	// Extended: a renewal succeeded; left is the new validity, took the time of the round.
	Extended func(l LeaseInfo, left, took time.Duration)
	// ExtendFailed: a renewal found no quorum. It is tried again until the validity ends.
	ExtendFailed func(l LeaseInfo, err error)
	// Released: the lease's owner let go; err is what Release returned.
	Released func(l LeaseInfo, err error)
	// Lost: the lease ended before it was released; err wraps ErrLost.
	Lost func(l LeaseInfo, err error)
	// NodeUp: a connection to the node opened. NodeDown: it broke, or could not be opened.
	NodeUp   func(node string)
	NodeDown func(node string, err error)
}

// LeaseInfo describes a lease to a hook, without keeping it alive.
type LeaseInfo struct {
	Names []string
	Token string
	Fence uint64
}

func (h *Hooks) none() bool {
	return h.Acquired == nil && h.Refused == nil && h.Extended == nil && h.ExtendFailed == nil &&
		h.Released == nil && h.Lost == nil && h.NodeUp == nil && h.NodeDown == nil
}

// later are hooks that queue the call of the given ones, and are nil where those are.
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
	return later
}

func (n *notifier) ofLease(hook func(LeaseInfo, error)) func(LeaseInfo, error) {
	if hook == nil {
		return nil
	}
	return func(l LeaseInfo, err error) { n.post(func() { hook(l, err) }) }
}
