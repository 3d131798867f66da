package redlock

import (
	"slices"
	"time"
)

// The releases that a node is owed (A5, L1): nobody has confirmed them, so they are sent until somebody does, or until
// there is nothing left to delete.

const (
	// maxOwed bounds the releases kept for a node that is away. The oldest are dropped beyond it; their
	// keys expire by themselves.
	maxOwed      = 1 << 17
	owedInterval = time.Second // a release that was refused is tried again
	maxRetried   = 1 << 12     // how many of them at once
	// lateness is how much later than it was sent a command may reach a server: kernels go on sending what a
	// closed connection had accepted for somewhat less than that.
	lateness = 2 * time.Minute
)

// A debt is a release that no server has confirmed. Its round is over: the node's vote in it is unknown.
type debt struct {
	call
	t0 Instant // the round's
}

// owe keeps a release until a server has answered it. n.mu is held.
func (n *node) owe(r *round) {
	if len(n.owed) >= maxOwed {
		n.owed[0] = debt{} // the array stays, for a while
		n.owed = n.owed[1:]
	}
	n.owed = append(n.owed, debt{r.call, r.t0})
}

// resendOwed queues up to most of the releases that are owed, the oldest first. n.mu is held.
func (n *node) resendOwed(now Instant, most int) {
	n.dropExpired(now)
	n.retried = now
	most = min(most, len(n.owed))
	for _, d := range n.owed[:most] {
		n.queue = append(n.queue, request{round: n.client.newRound(plan{call: d.call, t0: d.t0})})
	}
	if n.owed = slices.Delete(n.owed, 0, most); len(n.owed) == 0 {
		n.owed = nil
	}
}

// dropExpired drops the releases of keys that have expired by themselves: none was given more than MaxTTL, and not later
// than lateness after the release was made. n.mu is held.
func (n *node) dropExpired(now Instant) {
	cfg := &n.client.cfg
	oldest := now.Add(-cfg.MaxTTL - driftOf(cfg.MaxTTL, cfg.Drift) - lateness)
	expired := 0
	for expired < len(n.owed) && n.owed[expired].t0 < oldest {
		expired++
	}
	if n.owed = slices.Delete(n.owed, 0, expired); len(n.owed) == 0 {
		n.owed = nil
	}
}
