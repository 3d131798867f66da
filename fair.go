package redlock

import "context"

// Fair returns the lock in a form that is acquired in order of arrival, across all processes. It has the same key and
// excludes the same holders as the lock without Fair; only the waiting differs.
//
// A waiter has arrived when a quorum of nodes has written it into the lock's queue: two round trips after the call
// began. Whoever arrives before another call begins gets the lock before it, as long as it lives and reaches the nodes
// that have it. Between calls at the same moment, any order is possible.
//
// A waiter that gives up leaves the queue at once. One that dies, or that is cut off or stopped for longer than that,
// keeps its place for about three seconds, and all such waiters lose their places together. If it comes back, it is
// again where it was.
//
// A lock with several names is in the queues of all of them, with one place. It waits until it is the first in all, and
// holds up those that arrived later and want only some of the names.
//
// TryAcquire fails with [ErrHeld] while somebody waits for the lock, and enters no queue. Who acquires the same name
// without Fair may overtake. So use Fair everywhere for a name, or nowhere.
//
// The writer of an [RWMutex] may be Fair among writers. While it waits for readers, it keeps out those that come later, as
// any writer does. For a reader and for a [Client.Semaphore], Fair shows as [ErrInvalid] when the lock is acquired.
//
// It costs more than the plain lock: each attempt asks all nodes, and a waiter asks again about every second.
func (l Lock) Fair() Lock {
	return l.with(func(s *spec) {
		s.fair = true
		if s.res.isShared() && s.err == nil {
			s.err = invalid("Fair", "it is not for readers and permits")
		}
	})
}

// acquireFair is Acquire for a fair lock. There is no local queue: all waiters, of this process and of others, are in
// the queues on the nodes.
func (s *spec) acquireFair(ctx context.Context, begun Instant, t *tracing) (*Lease, error) {
	c := s.client
	w := newFairWaiter(s, begun)
	defer w.end()
	var last *round // the last one that was not cut short
	denied := false // by some node, in this call
	for {
		lease, r, err := t.attempt(ctx, c, s, w.how())
		w.attempts++
		if lease != nil {
			c.acquired(lease, begun, w.attempts)
			return lease, nil
		}
		if err == nil {
			denied = denied || r.deniedBy() != 0
			last = r
			if err := c.heedRefusal(s, r); err != nil {
				return nil, err
			}
			err = w.wait(ctx, r)
		}
		if err != nil {
			return nil, s.failure(err, last, r, false, denied)
		}
	}
}

// isBehind reports whether the round was lost because waiters are ahead: no quorum is left without the nodes that have
// some.
func (c *Client) isBehind(r *round) bool {
	answers, _ := r.snapshot()
	nodes := 0
	for _, a := range answers {
		if a.denial != nil && a.denial.reason == behind {
			nodes++
		}
	}
	return len(answers)-nodes < c.need
}
