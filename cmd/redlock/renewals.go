package main

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// A renewalNotice says on standard error that the lease cannot be renewed, once for each outage, and when it can again. It
// knows why, for whoever reports the loss.
type renewalNotice struct {
	stderr io.Writer // nil: it says nothing

	mu    sync.Mutex     // guards the rest
	lease *redlock.Lease // nil: there is none
	why   string         // the nodes and their reasons when a renewal failed last; "": the last one succeeded
}

// watch begins with the lease. stop ends that; after it has returned, nothing more is printed.
func (r *renewalNotice) watch(lease *redlock.Lease) (stop func()) {
	r.set(lease)
	return func() { r.set(nil) }
}

func (r *renewalNotice) set(lease *redlock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease, r.why = lease, ""
}

// extended is a hook of the client.
func (r *renewalNotice) extended(l redlock.LeaseInfo, _, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOf(l) || r.why == "" {
		return
	}
	r.why = ""
	r.say("the lease is renewed again")
}

// failed is a hook of the client. It leaves a lock that was taken away to whoever reports that.
func (r *renewalNotice) failed(l redlock.LeaseInfo, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOf(l) || errors.Is(err, redlock.ErrLost) {
		return
	}
	first := r.why == ""
	r.why = nodesAndCauses(err)
	if left := r.lease.Remaining(); first && left > 0 {
		r.say("the lease cannot be renewed (%s); %v of it are left", r.why, left.Round(100*time.Millisecond))
	}
}

// isOf reports whether a hook is about the lease that is watched: it may be called late. r.mu is held.
func (r *renewalNotice) isOf(l redlock.LeaseInfo) bool {
	return r.lease != nil && r.lease.Token() == l.Token
}

func (r *renewalNotice) say(format string, args ...any) {
	if r.stderr != nil {
		say(r.stderr, format, args...)
	}
}

// because is why the last renewal failed, in brackets; "": it did not.
func (r *renewalNotice) because() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" {
		return ""
	}
	return " (" + r.why + ")"
}
