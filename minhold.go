package redlock

import "time"

// The minimum hold (H): a lock that stays taken for a time, even if the work was shorter.

// WithMinHold returns the lock with a minimum hold: after it was acquired, nobody else gets it for at least d, in this
// process or another. Release, [Client.Close] and a lost lease end the lease at once, but the lock stays taken for the
// rest of d. The same goes for a crash, because the nodes have the lock for d from the beginning. Only
// [Client.ForceRelease] and [Client.ReleaseToken] end it sooner. An Acquire that fails keeps nothing.
//
// Use it for work that must run once in an interval: each process calls [Lock.TryDo] at each tick. Choose d longer than
// the time between the ticks of different processes, by three NodeTimeouts: while a node does not answer, a TryDo can take
// so long. If d is too short, work that is done quickly runs again in a process that ticks a little later.
//
// And choose d shorter than the interval. The nodes keep the lock for a little longer than d: after a release by
// [Config.Drift] times what was left of d, and 2ms; after a crash by Drift times d, 2ms and five NodeTimeouts. A tick that
// comes before that is over does not run.
//
// A node keeps a lock no longer than [Config.MaxTTL]. So d, plus [Config.Drift] times d, 2ms and five NodeTimeouts,
// must not be above MaxTTL. A d that is, or that is not positive, shows as [ErrInvalid] when the lock is acquired.
// Leases are valid, renewed and lost as without a minimum hold. Release returns nil if a quorum keeps the lock for the
// rest. An Acquire that waits gets the lock when d is over.
func (l Lock) WithMinHold(d time.Duration) Lock {
	return l.with(func(s *spec) {
		s.minHold = d
		s.millis = millis(max(s.ttl, s.keptFor()))
		switch maxTTL := s.client.cfg.MaxTTL; {
		case s.err != nil:
		case s.res.isShared():
			s.err = invalid("WithMinHold", "it is for a mutex, and not for a lock that several share")
		case d <= 0:
			s.err = invalid("WithMinHold", "%v is not positive", d)
		case d < time.Microsecond:
			s.err = checkUnit("WithMinHold", d)
		case d > maxTime:
			s.err = invalid("WithMinHold", "%v is above %v, the longest that MaxTTL may be", d, maxTime)
		case d > maxTTL || s.keptFor() > maxTTL:
			enough := s.keptFor().Truncate(time.Second) + time.Second
			s.err = invalid("WithMinHold", "%v, plus what is added for a round and the clocks, is above MaxTTL (%v), "+
				"the longest that nodes keep a lock; give %v or less, or raise MaxTTL "+raiseMaxTTL, d, maxTTL, s.longestMinHold(), enough)
		}
	})
}

// longestMinHold is the longest minimum hold for which MaxTTL leaves room, in whole milliseconds; 0: there is none.
func (s *spec) longestMinHold() time.Duration {
	cfg := &s.client.cfg
	room := float64(cfg.MaxTTL-driftFloor-s.acquisitionTime()) / (1 + cfg.Drift)
	return max(0, time.Duration(room)).Truncate(time.Millisecond)
}
