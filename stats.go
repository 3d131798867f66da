package redlock

import "time"

// Stats are what one client holds and waits for at one moment.
type Stats struct {
	// Held is how many locks the client holds. A lock that was re-entered counts once.
	Held int
	// Waiters is how many calls of Acquire are under way, with those that are about to get a free lock. Those of
	// TryAcquire are not counted.
	Waiters int
	// OldestHold is how long the lock has been held that was acquired first. 0: none is held.
	OldestHold time.Duration
	// LeastRemaining is how much longer the lease is valid that would end first if nothing were renewed. 0: none is held.
	// A renewed lease has two thirds of its TTL left or more; much less means that renewals fail.
	LeastRemaining time.Duration
	// Dropped is [Client.Dropped].
	Dropped uint64
}

// Quorum is how many nodes must grant: Config.Quorum, or a majority of the nodes. If fewer vote, as [Client.Status]
// tells, no lock is granted or renewed. It asks no node.
func (c *Client) Quorum() int { return c.need }

// Stats counts what the client holds and waits for. It asks no node and blocks nothing; with 100 000 leases it takes
// some milliseconds. It may be called at any time. After Close nothing is held.
func (c *Client) Stats() Stats {
	s := Stats{Waiters: int(c.acquiring.Load()), Dropped: c.Dropped()}
	now := c.cfg.Clock.Now()
	for _, o := range c.scheduler.all() {
		left := o.validUntil().Sub(now)
		if o.over.Load() || left <= 0 {
			continue
		}
		if s.Held == 0 || left < s.LeastRemaining {
			s.LeastRemaining = left
		}
		s.Held++
		s.OldestHold = max(s.OldestHold, now.Sub(o.acquired))
	}
	return s
}
