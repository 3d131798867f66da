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
	permits   int // of the semaphore
	atLeast   time.Duration
	maxHold   time.Duration // 0: none
}

// check checks the flags against each other. given reports whether a flag was given.
func (k *kindOfLock) check(keys int, given func(flag string) bool) error {
	wantsPermits := given("semaphore")
	switch {
	case given("max-hold") && k.maxHold <= 0:
		return usage("--max-hold %v: give more than 0", k.maxHold)
	case k.maxHold > 0 && k.atLeast > k.maxHold:
		return usage("--at-least %v is longer than --max-hold %v: give --at-least %[2]v or less, or a longer --max-hold", k.atLeast, k.maxHold)
	case given("permits") && !wantsPermits:
		return usage("--permits is how many of the permits of --semaphore to take; give that too")
	case wantsPermits && k.semaphore >= 1 && (k.permits < 1 || k.permits > k.semaphore):
		return usage("--permits %d: give 1 to %d, which is all that --semaphore has", k.permits, k.semaphore)
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
func (k *kindOfLock) lock(client *redlock.Client, keys []string) (l redlock.Lock) {
	switch {
	case k.read:
		l = client.RWMutex(keys[0]).Reader()
	case k.semaphore > 0:
		l = client.Semaphore(keys[0], k.semaphore).WithPermits(k.permits)
	default:
		l = client.Mutex(keys[0], keys[1:]...)
	}
	if k.fair {
		l = l.Fair()
	}
	if k.atLeast > 0 {
		l = l.WithMinHold(k.atLeast)
	}
	if k.maxHold > 0 {
		l = l.WithMaxHold(k.maxHold)
	}
	return l
}

// length is how long a lease is at most without a renewal, if its TTL is ttl.
func (k *kindOfLock) length(ttl time.Duration) time.Duration {
	if k.maxHold > 0 {
		return min(ttl, k.maxHold)
	}
	return ttl
}
