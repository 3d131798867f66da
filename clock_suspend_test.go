package redlock

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine has clocks as Linux keeps them, and can be suspended.
type machine struct {
	mono, asleep, stepped time.Duration
	pauses                func() time.Duration // how long a goroutine waits before it reads a clock
	looks                 int
	noBootTime            bool
}

const bootedBefore = 1234 * time.Hour // the machine had run for so long, and had slept

func (m *machine) suspends() *suspends {
	return newSuspends(func() (time.Duration, bool) {
		m.mono += m.pauses()
		m.looks++
		return bootedBefore + m.mono + m.asleep, !m.noBootTime
	}, func() time.Duration {
		m.mono += m.pauses()
		return m.mono
	})
}

// now is what systemClock.Now makes of these clocks.
func (m *machine) now(s *suspends) time.Duration {
	m.mono += m.pauses()
	wall := m.mono + m.asleep + m.stepped
	m.mono += m.pauses()
	mono := m.mono
	return mono + s.by(mono, wall)
}

func unpaused() time.Duration { return time.Microsecond }

func TestASuspendCountsAtTheFirstReadingAfterIt(t *testing.T) {
	m := &machine{pauses: unpaused}
	s := m.suspends()
	m.now(s)
	for range 1000 {
		m.mono += 100 * time.Microsecond
		m.asleep += 5 * time.Second // no clock was read meanwhile
		require.InDelta(t, m.mono+m.asleep, m.now(s), float64(20*time.Microsecond))
	}
}

func TestWithoutASuspendBootTimeIsReadOnceInAMillisecond(t *testing.T) {
	m := &machine{pauses: unpaused}
	s := m.suspends()
	began, looks := m.mono, m.looks
	for m.mono-began < time.Second {
		m.now(s)
	}
	require.InDelta(t, 1000, m.looks-looks, 10)
}

// Somebody sets the wall clock back by exactly what the machine slept, before anything reads a clock.
func TestASuspendThatTheWallClockHidesCountsWithinAMillisecond(t *testing.T) {
	m := &machine{pauses: unpaused}
	s := m.suspends()
	m.now(s)
	m.asleep, m.stepped = time.Minute, -time.Minute
	woke := m.mono
	for m.now(s) < time.Minute {
		require.Less(t, m.mono-woke, lookInterval+10*time.Microsecond)
	}
}

// Whatever the wall clock does, and wherever goroutines have to wait, the clock never goes back nor ahead of the truth,
// and the wall clock's steps do not count.
func TestTheSystemClockNeverGoesBack(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		m := &machine{pauses: func() time.Duration {
			if random.IntN(20) == 0 {
				return time.Duration(random.Int64N(int64(10 * time.Millisecond)))
			}
			return time.Duration(random.Int64N(1000))
		}}
		s := m.suspends()
		var latest time.Duration
		for range 1000 {
			switch random.IntN(20) {
			case 0:
				m.asleep += time.Duration(random.Int64N(int64(time.Minute)))
			case 1:
				m.stepped += time.Duration(random.Int64N(int64(time.Hour))) - 30*time.Minute
			case 2:
				m.mono += time.Duration(random.Int64N(int64(time.Second)))
			case 3:
				m.noBootTime = !m.noBootTime
			}
			now := m.now(s)
			if now < latest || now > m.mono+m.asleep {
				t.Fatalf("seed %d: it says %v after %v, and the truth is %v", seed, now, latest, m.mono+m.asleep)
			}
			latest = now
		}
	}
}

// The readings of many goroutines are in order wherever the goroutines are. The race detector watches.
func TestManyGoroutinesReadOneClock(t *testing.T) {
	clock := SystemClock()
	var mu sync.Mutex // guards latest
	var latest Instant
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5000 {
				mu.Lock()
				before := latest
				mu.Unlock()
				now := clock.Now()
				if now < before {
					t.Errorf("%v is before %v", now, before)
					return
				}
				mu.Lock()
				latest = max(latest, now)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// On this machine the clock is not behind CLOCK_BOOTTIME itself.
func TestTheSystemClockKeepsUpWithBootTime(t *testing.T) {
	if _, ok := bootTime(); !ok {
		require.Nil(t, suspended)
		require.GreaterOrEqual(t, time.Since(origin), time.Duration(SystemClock().Now()))
		return
	}
	for range 10_000 {
		boot, _ := bootTime()
		if now := time.Duration(SystemClock().Now()); now < boot-suspended.zero-lookPrecision {
			t.Fatalf("it says %v after CLOCK_BOOTTIME had said %v", now, boot-suspended.zero)
		}
	}
}

func BenchmarkClock(b *testing.B) {
	for b.Loop() {
		SystemClock().Now()
	}
}
