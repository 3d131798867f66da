package main

import (
	"time"

	"github.com/quorumlock/redlock"
)

// A kindOfLock is which kind of lock run takes. The zero value is a mutex, which is also the writer of a lock with
// readers.
type kindOfLock struct {
	fair      bool
	read      bool
	semaphore int
	atLeast   time.Duration
}

// check checks the flags against each other.
func (k *kindOfLock) check(keys int, wantsPermits bool) error {
	switch {
	case k.atLeast < 0:
		return usage("--at-least %v is negative", k.atLeast)
	case wantsPermits && k.semaphore < 1:
		return usage("--semaphore %d: give the number of permits, 1 or more", k.semaphore)
	case k.read && wantsPermits:
		return usage("--read and --semaphore are two kinds of lock; give one")
	case !k.read && !wantsPermits:
		return nil
	case keys > 1:
		return usage("--read and --semaphore take one KEY")
	case k.fair:
		return usage("--fair is for a lock that nobody shares; leave out --read and --semaphore")
	case k.atLeast > 0:
		return usage("--at-least is for a lock that nobody shares; leave out --read and --semaphore")
	}
	return nil
}

// lock is the lock on these keys.
func (k *kindOfLock) lock(client *redlock.Client, keys []string) redlock.Lock {
	switch {
	case k.read:
		return client.RWMutex(keys[0]).Reader()
	case k.semaphore > 0:
		return client.Semaphore(keys[0], k.semaphore)
	}
	l := client.Mutex(keys[0], keys[1:]...)
	if k.fair {
		l = l.Fair()
	}
	if k.atLeast > 0 {
		l = l.WithMinHold(k.atLeast)
	}
	return l
}
