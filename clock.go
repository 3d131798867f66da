package redlock

import "time"

// An Instant is a reading of a [Clock], in nanoseconds since an origin that the clock chooses. Instants of different
// clocks, or of different processes, cannot be compared.
type Instant int64

// Add returns the instant d after i.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// A Clock measures how time passes for this process. It must never go back, and its rate must be right within
// [Config.Drift]. It should go on while the machine is suspended, because a lease expires on the servers also while its
// holder sleeps. Now must be safe for concurrent use.
//
// No instant depends on the wall clock.
type Clock interface {
	Now() Instant
}

// SystemClock returns the clock that is used if [Config.Clock] is nil. On Linux it is the later of Go's monotonic clock
// and CLOCK_BOOTTIME, so the time of a suspend counts. Go's monotonic clock alone stops during a suspend
// (golang/go#24595). On other systems it is Go's monotonic clock. In a testing/synctest bubble it is the bubble's clock.
func SystemClock() Clock { return systemClock{} }

type systemClock struct{}

// origin is the zero of the system clock's Instants, and wallOrigin the same moment by the wall clock.
var (
	origin     = time.Now()
	wallOrigin = origin.Round(0)
)

// century makes Instants of a bubble positive, like all others.
const century = 100 * 365 * 24 * time.Hour

func (systemClock) Now() Instant {
	t := time.Now()
	now := t.Sub(origin) // by the monotonic clock
	if now < 0 {         // in a testing/synctest bubble, where it is the year 2000: only the bubble's clock counts
		return Instant(now + century)
	}
	return Instant(now + suspended.by(now, t.Round(0).Sub(wallOrigin)))
}
