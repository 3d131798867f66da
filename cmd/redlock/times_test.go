package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a refusal tells to give is not refused, and a lease that is long enough needs no --kill-after.
func TestTimesThatAreTooShortOrTooLong(t *testing.T) {
	t.Parallel()
	check := func(ttl, killAfter time.Duration, given bool) (*runOptions, error) {
		o := &runOptions{killAfter: killAfter}
		o.given = func(string) bool { return given }
		return o, o.checkTimes(ttl, 2*time.Minute)
	}
	for ttl := shortestTTL; ttl < time.Minute; ttl += 7 * time.Millisecond {
		o, err := check(ttl, 0, false)
		require.NoError(t, err, "%v", ttl)
		require.Equal(t, min(2*time.Second, ttl/4), o.killAfter)
		_, err = check(ttl, 0, true)
		require.NoError(t, err, "%v: killed at once", ttl)
		_, err = check(ttl, ttl/2, true)
		require.ErrorContains(t, err, "is too long for --ttl")
	}
	for _, ttl := range []time.Duration{1, time.Millisecond, shortestTTL - 1} {
		_, err := check(ttl, 0, false)
		require.ErrorContains(t, err, "is too short to end a command in; give 100ms or more")
	}
}

// Where it is not known how long a lease can be, no remedy holds. Then what is told to give is given, and not refused.
func TestWhatHelpsAgainstATooLongKillAfterIsPossible(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		killAfter, ttl, longest, maxHold time.Duration
		says                             string // "": it is not refused
	}{
		{6 * time.Second, 10 * time.Second, 0, 0, ""},
		{6 * time.Second, 10 * time.Second, 30 * time.Second, 0, "for --ttl 10s: give --kill-after 4.8s or less, or a longer --ttl, up to 30s"},
		{6 * time.Second, 5 * time.Second, 5 * time.Second, 0, "for --ttl 5s: give --kill-after 2.3s or less"},
		{2 * time.Second, 10 * time.Second, 30 * time.Second, 3 * time.Second, "for --max-hold 3s: give --kill-after 1.35s or less, or a longer --max-hold, up to 10s"},
		{2 * time.Second, 4 * time.Second, 30 * time.Second, 3 * time.Second, "for --max-hold 3s: give --kill-after 1.35s or less"},
	} {
		o := &runOptions{killAfter: c.killAfter, kind: kindOfLock{maxHold: c.maxHold}}
		o.given = func(string) bool { return true }
		err := o.checkTimes(c.ttl, c.longest)
		if c.says == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, "--kill-after "+c.killAfter.String()+" is too long "+c.says)
		o.killAfter = longestKillAfter(o.kind.length(c.ttl)).Truncate(time.Millisecond)
		require.NoError(t, o.checkTimes(c.ttl, c.longest))
	}
}

// From start to start. Where a run takes longer than the interval, the next one begins at a later multiple of it.
func TestTheNextRunBeginsAtAMultipleOfTheInterval(t *testing.T) {
	t.Parallel()
	for since, want := range map[time.Duration]time.Duration{
		0: time.Minute, 10 * time.Second: 50 * time.Second, 59 * time.Second: time.Second,
		time.Minute: time.Minute, 61 * time.Second: 59 * time.Second, 10*time.Minute + 15*time.Second: 45 * time.Second,
	} {
		require.Equal(t, want, toNext(time.Minute, since), since)
	}
}
