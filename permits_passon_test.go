package redlock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// W2, S3: A waiter for two permits is first in the queue, and one permit is released. It cannot use that, so it passes it
// on to a waiter for one.
func TestAWaiterForTwoPermitsPassesOnTheOneThatIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 3)
		var locks []redlock.Lock
		for i := range 3 {
			c := w.connect(t, i, redlock.LostPoll(time.Hour))
			if i == 0 {
				require.NoError(t, c.Enroll(t.Context()))
			}
			c.Status(t.Context())
			locks = append(locks, c.Semaphore("x", 2))
		}
		first, err := locks[1].Acquire(t.Context())
		require.NoError(t, err)
		second, err := locks[1].Acquire(t.Context())
		require.NoError(t, err)
		r := &roll{t: t}
		two := arrives(r, 0, locks[0].WithPermits(2))
		one := arrives(r, 1, locks[2])
		began := time.Now()
		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, <-one.ended)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.NoError(t, second.Release(t.Context()))
		require.NoError(t, <-two.ended)
	})
}

// The same where nobody wants one: the two who want more do not pass it to each other all the time.
func TestWaitersForTwoPermitsDoNotPassOneRoundAndRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 3)
		var refusals atomic.Int32
		counts := func(cfg *redlock.Config) { cfg.Hooks.Refused = func([]string, error) { refusals.Add(1) } }
		var locks []redlock.Lock
		for i := range 3 {
			c := w.connect(t, i, redlock.LostPoll(time.Hour), counts)
			if i == 0 {
				require.NoError(t, c.Enroll(t.Context()))
			}
			c.Status(t.Context())
			locks = append(locks, c.Semaphore("x", 2))
		}
		first, err := locks[2].Acquire(t.Context())
		require.NoError(t, err)
		second, err := locks[2].Acquire(t.Context())
		require.NoError(t, err)
		r := &roll{t: t}
		one, other := arrives(r, 0, locks[0].WithPermits(2)), arrives(r, 1, locks[1].WithPermits(2))
		before := refusals.Load()
		require.NoError(t, first.Release(t.Context()))
		time.Sleep(3 * time.Second)
		require.LessOrEqual(t, refusals.Load()-before, int32(8))
		began := time.Now()
		require.NoError(t, second.Release(t.Context()))
		require.NoError(t, <-one.ended)
		require.NoError(t, <-other.ended)
		require.Less(t, time.Since(began), 100*time.Millisecond)
	})
}
