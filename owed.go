package redlock

import (
	"errors"
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

// A debt is a release that no server has confirmed.
type debt struct {
	call
	t0   Instant // when its round began
	sent bool    // it may have reached a server, whose answer was lost
	// round is the release as it was sent first, if the node's vote in it is open; see paid.
	round *round
}

// owe notes that a release is owed until a server has answered it. n.mu is held.
func (n *node) owe(d debt) {
	if len(n.owed) >= maxOwed {
		n.owed[0] = debt{} // the array outlives it for a while: drop what it refers to
		n.owed = n.owed[1:]
	}
	n.owed = append(n.owed, d)
}

// owes reports whether any release is owed.
func (n *node) owes() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.owed) > 0
}

// owedCall is the release as it is sent again, so long after it was made. Its minimum hold has gone on (H2).
//
// One that handed the lock to a waiter of its own process reserved the key for nobody where that waiter's acquire followed it
// on the same connection (W1). Sent again, it has nothing behind it. So it tells the first waiter of the queue (W2): the plan
// that sends it has no silentAt.
func (p *protocol) owedCall(c call, after time.Duration) call {
	if c.script != p.release {
		return c
	}
	c.args = slices.Clone(c.args)
	if len(c.args) > 2 {
		c.args[2] = max(0, c.args[2].(int64)-after.Milliseconds())
	}
	return c
}

// resendOwed queues the oldest releases that are owed, at most so many. n.mu is held.
func (n *node) resendOwed(now Instant, most int) {
	n.dropExpired(now)
	n.retried = now
	most = min(most, len(n.owed))
	for _, d := range n.owed[:most] {
		again := plan{call: n.protocol.owedCall(d.call, now.Sub(d.t0)), t0: d.t0, pays: &d, answered: paid}
		n.queue = append(n.queue, request{round: n.newRound(again)})
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

// paid counts the answer to a release that was sent again as the vote of the round that sent it first. So a caller that
// awaits that round learns that the keys are gone, and not only that a connection broke (L1). If an answer was lost, keys
// that are not there prove nothing: the release whose answer it was may have deleted them.
func paid(again *round, node int, a answer, _ verdict, _ bool) {
	d := again.pays
	if d.round == nil {
		return
	}
	if d.sent && a.vote == denied {
		a = answer{vote: unknown, err: errAnswerLost}
	}
	d.round.record(node, a)
}

var errAnswerLost = errors.New("the connection broke before it answered, and it no longer has the lock")

// debt is what is owed if the node does not answer this release, and is about to be asked again: its vote stays open.
func (r *round) debt(sent bool) debt {
	if r.pays == nil {
		return debt{r.call, r.t0, sent, r}
	}
	d := *r.pays // not what was sent again: its minimum hold is counted anew each time
	d.sent = d.sent || sent
	return d
}

// staysOpen notes why the node has not answered yet.
func (r *round) staysOpen(node int, why error) {
	if r.pays != nil {
		r = r.pays.round
	}
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tally.votes[node] == pending {
		r.answers[node].err = why
	}
}

// neverPaid counts as unknown the votes of the releases that are owed: the node has ended.
func (n *node) neverPaid(why error) {
	n.mu.Lock()
	owed := n.owed
	n.owed = nil // enqueue may still add to it
	n.mu.Unlock()
	for _, d := range owed {
		if d.round != nil {
			d.round.record(n.index, answer{vote: unknown, err: why})
		}
	}
}
