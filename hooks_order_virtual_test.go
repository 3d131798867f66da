package redlock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// Hooks: a lease is renewed, or lost, before the goroutine that acquired it goes on. Acquired is told first all the same: who
// counts leases by the hooks would keep a lost one for ever.
func TestAcquiredIsToldBeforeWhatHappensToTheLease(t *testing.T) {
	for name, of := range map[string]struct {
		lock func(redlock.Lock) redlock.Lock
		told []string
	}{
		"renewed": {func(l redlock.Lock) redlock.Lock { return l }, []string{"acquired", "extended", "extended", "extended", "released"}},
		"lost":    {redlock.Lock.WithoutRenewal, []string{"acquired", "lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 1)
				var mu sync.Mutex // guards told
				var told []string
				tell := func(what string) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, what)
				}
				clock := &stopsIn{function: ".(*Client).acquired", stop: func() { time.Sleep(12 * time.Second) }}
				c := w.connect(t, 0, func(cfg *redlock.Config) {
					cfg.Clock = clock
					cfg.Hooks = redlock.Hooks{
						Acquired: func(redlock.LeaseInfo, time.Duration, int) { tell("acquired") },
						Extended: func(redlock.LeaseInfo, time.Duration, time.Duration) { tell("extended") },
						Lost:     func(redlock.LeaseInfo, error) { tell("lost") },
						Released: func(redlock.LeaseInfo, error) { tell("released") },
					}
				})
				require.NoError(t, c.Enroll(t.Context()))
				clock.armed.Store(true)
				l, err := of.lock(c.Mutex("x")).Acquire(t.Context())
				require.NoError(t, err)
				_ = l.Release(t.Context())
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, of.told, told)
			})
		})
	}
}

// Hooks: a renewal that gives no longer validity, because the lease's longest hold gives none, has succeeded all the same.
func TestARenewalThatALongestHoldBoundsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		told := make(chan time.Duration, 10)
		c := w.connect(t, 0, func(cfg *redlock.Config) {
			cfg.Hooks.Extended = func(_ redlock.LeaseInfo, left, _ time.Duration) { told <- left }
		})
		require.NoError(t, c.Enroll(t.Context()))
		l, err := c.Mutex("x").WithMaxHold(5 * time.Second).Acquire(t.Context()) // shorter than the TTL, 10 s
		require.NoError(t, err)
		for range 3 {
			time.Sleep(time.Second)
			require.NoError(t, l.Extend(t.Context()))
			synctest.Wait()
			select {
			case left := <-told:
				require.Equal(t, l.Remaining(), left)
			default:
				require.Fail(t, "it was not told")
			}
		}
		require.NoError(t, l.Release(t.Context()))
	})
}
