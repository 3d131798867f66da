package redlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// leaping is the system's clock, ahead by the length of a suspend. So is CLOCK_BOOTTIME when the machine wakes and no
// timer has fired.
type leaping struct {
	redlock.Clock
	slept atomic.Int64
}

func (l *leaping) Now() redlock.Instant {
	return l.Clock.Now().Add(time.Duration(l.slept.Load()))
}

func TestALeaseIsNotValidAfterASuspendThoughNoTimerFired(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		clock := &leaping{Clock: redlock.SystemClock()}
		c, ctx := open(t, f, func(cfg *redlock.Config) { cfg.Clock = clock }), soon(t)
		l, err := c.Mutex("x").WithoutRenewal().Acquire(ctx) // a renewal may be due after the first leap
		require.NoError(t, err)
		require.True(t, l.Valid())
		clock.slept.Store(int64(5 * time.Second)) // of ten
		require.True(t, l.Valid())
		require.Less(t, l.Remaining(), 5*time.Second)
		clock.slept.Store(int64(11 * time.Second))
		require.False(t, l.Valid())
		require.Zero(t, l.Remaining())
		require.ErrorIs(t, l.Extend(ctx), redlock.ErrLost)
	})
}
