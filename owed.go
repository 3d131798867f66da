package redlock

import (
	"slices"
	"time"
)

// The releases that are owed to a node (L3): no server has confirmed them. They are sent again until a server answers
// them, or until the keys have expired without them.

const (
	// maxOwed bounds the releases that are owed to a node that is away. Above it the oldest are dropped; their keys
	// expire by themselves.
	maxOwed      = 1 << 17
	owedInterval = time.Second // how often a refused release is sent again
	maxRetried   = 1 << 12     // how many of them at once
	// lateness is the longest time from sending a command until it may reach a server. A kernel goes on sending what a
	// closed connection had accepted, for somewhat less than that.
	lateness = 2 * time.Minute
)

// A debt is a release that no server has confirmed. Its round is over: the node's vote in it is unknown.
type debt struct {
	call
	t0 Instant // when its round began
}

// owe notes that a release is owed until a server has answered it. n.mu is held.
func (n *node) owe(r *round) {
	if len(n.owed) >= maxOwed {
		n.owed[0] = debt{} // the array outlives it for a while: drop what it refers to
		n.owed = n.owed[1:]
	}
	n.owed = append(n.owed, debt{n.protocol.owedCall(r.call), r.t0})
}

// owes reports whether any release is owed.
func (n *node) owes() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.owed) > 0
}

// owedCall is the release as it is sent again. One that handed the lock to a waiter of its own process reserved the key
// for nobody, because that waiter's acquire followed it on the same connection (W1). Sent again, it has nothing behind
// it, so it tells the first waiter of the queue (W2). That is a hint and costs the few others nothing that also reserve
// for nobody.
func (p *protocol) owedCall(c call) call {
	if c.script == p.release && c.args[1] == millis(0) {
		c.args = slices.Clone(c.args)
		c.args[1] = millis(reservationTime)
	}
	return c
}

// resendOwed queues the oldest releases that are owed, at most so many. n.mu is held.
func (n *node) resendOwed(now Instant, most int) {
	n.dropExpired(now)
	n.retried = now
	most = min(most, len(n.owed))
	for _, d := range n.owed[:most] {
		n.queue = append(n.queue, request{round: n.newRound(plan{call: d.call, t0: d.t0})})
	}
	if n.owed = slices.Delete(n.owed, 0, most); len(n.owed) == 0 {
		n.owed = nil
	}
}

// dropExpired drops the releases of keys that must have expired by themselves: each was written for at most MaxTTL, and
// no later than lateness after its release was made. n.mu is held.
func (n *node) dropExpired(now Instant) {
	cfg := &n.cfg
	oldest := now.Add(-cfg.MaxTTL - driftOf(cfg.MaxTTL, cfg.Drift) - lateness)
	expired := 0
	for expired < len(n.owed) && n.owed[expired].t0 < oldest {
		expired++
	}
	if n.owed = slices.Delete(n.owed, 0, expired); len(n.owed) == 0 {
		n.owed = nil
	}
}
