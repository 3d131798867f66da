package redlock

import (
	"sync/atomic"
	"time"
)

// suspends knows for how long the machine was suspended since origin. Linux alone tells, by CLOCK_BOOTTIME, and reading
// that is a system call, where Go reads its other clocks in the vDSO: 4.5 µs instead of 0.2 on a busy virtual machine
// (BenchmarkClock measures what is left). An acquire and its release read the clock 17 times; with 256 goroutines, which
// share some readings, 5 times.
//
// So CLOCK_BOOTTIME is read only if there may have been a suspend. The kernel counts one by moving the wall clock and
// CLOCK_BOOTTIME ahead of the monotonic clock together (__timekeeping_inject_sleeptime in kernel/time/timekeeping.c).
// While the wall clock is as far ahead of the monotonic clock as at the last look, there was no suspend, unless somebody
// has set the wall clock back by just as much. This is why there is a look every lookInterval in any case.
type suspends struct {
	boot func() (time.Duration, bool) // CLOCK_BOOTTIME; false: there is none
	mono func() time.Duration         // the monotonic clock, since origin
	zero time.Duration                // what boot said at origin
	last atomic.Pointer[look]
}

// A look is a reading of CLOCK_BOOTTIME.
type look struct {
	at     time.Duration // the monotonic clock before it; no caller relies on it for longer than lookInterval
	apart  time.Duration // how far the wall clock was ahead of the monotonic clock
	asleep time.Duration // for how long the machine had been suspended by then, or a little less
}

const (
	lookInterval = time.Millisecond
	// lookPrecision is how far two readings of the wall clock and the monotonic clock may differ, because they are read
	// one after the other, and how much time a look may take.
	lookPrecision = 20 * time.Microsecond
)

var suspended = newSuspends(bootTime, func() time.Duration { return time.Since(origin) })

// newSuspends is called at origin, or later: CLOCK_BOOTTIME less zero is then less than the time since origin.
func newSuspends(boot func() (time.Duration, bool), mono func() time.Duration) *suspends {
	s := &suspends{boot: boot, mono: mono}
	zero, ok := boot()
	if !ok {
		return nil
	}
	s.zero = zero
	return s
}

// by is for how long the machine was suspended before this reading of the monotonic and of the wall clock, both since
// origin. It never gets less.
func (s *suspends) by(mono, wall time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	last := s.last.Load()
	if last != nil && mono-last.at < lookInterval && (wall-mono-last.apart).Abs() < lookPrecision {
		return last.asleep
	}
	return s.look(last, mono, wall)
}

// look reads CLOCK_BOOTTIME.
func (s *suspends) look(last *look, mono, wall time.Duration) time.Duration {
	next := look{at: mono - lookInterval, apart: wall - mono} // if no reading is precise, the next caller looks again
	for range 3 {
		before := s.mono()
		boot, ok := s.boot()
		after := s.mono()
		if !ok {
			break
		}
		next.asleep = max(next.asleep, boot-s.zero-after)
		if after-before < lookPrecision {
			next.at = mono
			break
		}
	}
	for {
		if last != nil { // what a caller was told is stored, so that no later one is told less
			next.asleep = max(next.asleep, last.asleep)
		}
		if s.last.CompareAndSwap(last, &next) {
			return next.asleep
		}
		last = s.last.Load()
	}
}
