package redlock

import "time"

// Hooks are told what happens, for metrics and traces. Nil funcs are skipped. They are called from the
// client's own goroutines, several at once, and must return quickly: a hook that blocks delays renewals.
type Hooks struct {
	// Acquired: a lease was won. waited is the time since Acquire was called, attempts the rounds it took.
	Acquired func(l LeaseInfo, waited time.Duration, attempts int)
	// Refused: one attempt to acquire failed; err is its [*RoundError]'s kind, ErrHeld or ErrNoQuorum.
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
