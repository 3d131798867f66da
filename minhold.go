package redlock

import "time"

// The minimum ownership: a lock that stays taken for a time, however short the work was.

// WithMinHold keeps the lock taken for at least d after it was acquired: nobody else gets it sooner, in this process or
// another. Release, [Client.Close] and a lost lease end the lease at once, but leave the lock taken for the rest of that
// time. So does a crash, because the nodes have the lock for d from the beginning. Only [Client.ForceRelease] ends it
// sooner. An Acquire that fails keeps nothing.
//
// Use it for work that must run once an interval: each process calls [Lock.TryDo] at each tick. Choose d longer than
// the processes' ticks are apart, and shorter than the interval. Otherwise work that is done in a moment would run again
// in the process that ticks a little later.
//
// No node keeps a lock for longer than [Config.MaxTTL], so d must be shorter by 1 % and four NodeTimeouts; if it is not,
// acquiring the lock is [ErrInvalid]. Leases are valid, renewed and lost as without it. Release returns nil when a quorum
// keeps the lock for the rest. A waiting Acquire gets it when d is over.
func (l Lock) WithMinHold(d time.Duration) Lock {
	return l.with(func(s *spec) {
		s.minHold = d
		s.millis = millis(max(s.ttl, s.keptFor()))
		switch maxTTL := s.client.cfg.MaxTTL; {
		case s.err != nil:
		case d <= 0:
			s.err = invalid("WithMinHold", "%v is not positive", d)
		case d > maxTTL || s.keptFor() > maxTTL:
			s.err = invalid("WithMinHold", "%v and what is added for a round and the clocks is above MaxTTL (%v), "+
				"for which nodes keep a lock at the most; raise MaxTTL on every client of these nodes", d, maxTTL)
		}
	})
}

// keptFor is how long the keys must live from when an acquire writes them, so that they live until minHold after the
// acquisition. A round that asks one node first takes up to two NodeTimeouts, and the wait for its clocks (C2) up to two
// more. 0: there is no minimum hold.
func (s *spec) keptFor() time.Duration {
	if s.minHold <= 0 {
		return 0
	}
	cfg := &s.client.cfg
	return s.minHold + driftOf(s.minHold, cfg.Drift) + 4*cfg.NodeTimeout
}

// rest is how long the keys must live from now on, for the minimum hold; 0: no longer.
func (o *ownership) rest(now Instant) time.Duration {
	left := o.least.Sub(now)
	if o.least == 0 || left <= 0 {
		return 0
	}
	return left + driftOf(left, o.client.cfg.Drift)
}

// keyMillis is how long the keys are to live when they are written now.
func (o *ownership) keyMillis(now Instant) any {
	if o.least == 0 {
		return o.lock.millis
	}
	return millis(max(o.lock.ttl, o.rest(now)))
}
