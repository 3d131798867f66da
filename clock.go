package redlock

import "time"

// An Instant is a reading of a [Clock], in nanoseconds since an origin of that clock's own. Instants of
// different clocks, and of different processes, cannot be compared.
type Instant int64

// Add returns the instant d after i.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// A Clock tells how time passes for this process. It must never go back, must run true within
// [Config.Drift], and should go on while the machine is suspended: a lease expires on the servers
// whether or not its holder is awake. Now is called concurrently.
//
// Nothing in this package reads the wall clock.
type Clock interface {
	Now() Instant
}

// SystemClock is the clock used where [Config.Clock] is nil. On Linux it is the later of Go's monotonic
// clock and CLOCK_BOOTTIME, so that suspend counts; Go's own clock stands still in suspend
// (golang/go#24595). Elsewhere it is Go's monotonic clock.
func SystemClock() Clock { return systemClock{} }

type systemClock struct{}

// origin is where Instants of the system clock count from. time.Since reads the monotonic clock alone.
var origin = time.Now()

// bootOrigin is the boot-time clock when origin was read.
var bootOrigin, haveBootTime = bootTime()

func (systemClock) Now() Instant {
	now := time.Since(origin)
	if haveBootTime {
		if boot, ok := bootTime(); ok {
			now = max(now, boot-bootOrigin)
		}
	}
	return Instant(now)
}
