package redlock

// maxPermits bounds the permits of a semaphore, because a server does nothing else while it runs a script.
const maxPermits = 1000

// Semaphore returns a lock that so many leases at a time can hold: each takes one of the permits. Permits are slots
// with numbers, and a lease has the same slot on a quorum of the nodes. So there are never more leases than permits.
//
// permits is from 1 to 1000, otherwise acquiring is [ErrInvalid]. An acquire looks at all of them on every node:
// while a server does, for about 0.2ms with 100 permits and 2ms with 1000, it does nothing else. All clients should
// give the same number. If they do not, the largest one among the leases and clients that are still out bounds how many
// leases there are, and a refusal says what it is ([Denial.Permits]). Each node gives a permit to a client with a smaller
// number only while fewer than that are taken there. So after the number was made smaller, there may be more leases than
// that until those of clients with the larger number have ended.
//
// A name that is held as another kind of lock, as by [Client.Mutex], counts as held. A context that carries a lease
// of the semaphore cannot acquire another one, because both could wait for each other for ever: that is [ErrInvalid],
// unless the lock is [Lock.Reentrant]. [Lock.TryAcquire] does not wait, and gets another one if one is free. Take several
// permits at once with [Lock.WithPermits]. [Lock.WithMinHold] is [ErrInvalid].
func (c *Client) Semaphore(name string, permits int) Lock {
	return c.Mutex(name).shared(sharing{permits: permits, take: 1})
}

// WithPermits returns a semaphore whose leases have n of its permits instead of one: all of them or none. An Acquire
// of several permits may be overtaken by others that want fewer, of its own process too. n is from 1 to the number of
// permits; another n, or a lock that is no semaphore, shows as [ErrInvalid] when the lock is acquired.
func (l Lock) WithPermits(n int) Lock {
	return l.with(func(s *spec) {
		switch {
		case s.err != nil:
		case !s.res.share.isSemaphore():
			s.err = invalid("WithPermits", "the lock is no semaphore; get one from Client.Semaphore")
		case n < 1 || n > s.res.share.permits:
			s.err = invalid("WithPermits", "%d is not from 1 to %d, which is all there are", n, s.res.share.permits)
		default:
			share := *s.res.share
			share.take = n
			s.res = s.res.shared(&share)
		}
	})
}

// shared returns the lock in a form that several may have.
func (l Lock) shared(how sharing) Lock {
	return l.with(func(s *spec) {
		how.keys = shareKeys(s.res.keys[0].(string))
		s.res = s.res.shared(&how)
		if !how.isReader() && (how.permits < 1 || how.permits > maxPermits) && s.err == nil {
			s.err = invalid("permits", "%d is not from 1 to %d", how.permits, maxPermits)
		}
	})
}
