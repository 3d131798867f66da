package redlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// A3, R1: A process stood still while the nodes answered a renewal, and looks at the time before it has read the answers.
// It calls no node silent before it has looked once more. A node that is silent then is, the first time.
func TestARenewalOfAProcessThatStoodStillReadsTheAnswersFirst(t *testing.T) {
	for name, c := range map[string]struct {
		still, answered time.Duration
		failures        int64
	}{
		"it stood still":                  {nodeTimeout / 5, nodeTimeout / 50, 0},
		"it stood still, for a moment":    {time.Microsecond, nodeTimeout / 50, 0},
		"it stood still, nobody answered": {nodeTimeout / 5, nodeTimeout / 4, 1},
		"it did not stand still":          {0, nodeTimeout / 50, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 1)
				clock := &leaping{Clock: redlock.SystemClock()}
				var failures atomic.Int64
				client := w.connect(t, 0, func(cfg *redlock.Config) {
					cfg.Clock = clock
					cfg.Hooks.ExtendFailed = func(redlock.LeaseInfo, error) { failures.Add(1) }
				})
				require.NoError(t, client.Enroll(t.Context()))
				l, err := client.Mutex("x").WithTTL(9 * time.Second).Acquire(t.Context())
				require.NoError(t, err)
				hold := func(by int) {
					for _, s := range w.servers {
						s.links[0].hold(replies, by)
					}
				}
				time.Sleep(2 * time.Second)
				hold(+1)
				time.Sleep(time.Second + nodeTimeout - time.Nanosecond) // the renewal began a third of the TTL after the acquire
				clock.slept.Store(int64(c.still))
				time.Sleep(c.answered)
				hold(-1)
				time.Sleep(nodeTimeout / 10)
				require.Equal(t, c.failures, failures.Load())
				require.True(t, l.Valid())
			})
		})
	}
}

// R1: A lease that was acquired late has less than a third of its TTL left, or little more. It is renewed at once.
func TestALeaseThatWasAcquiredLateIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		c, other := all[0], all[1]
		for _, s := range w.servers {
			s.slow(0, 200*time.Millisecond)
		}
		time.Sleep(time.Minute) // long enough to have measured the round trips
		held, err := other.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		_, err = c.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld) // from now on it asks one node first
		require.NoError(t, held.Release(t.Context()))
		synctest.Wait()
		// Of the other two, one is silent for a moment: a third round trip follows.
		silent := w.servers[(redlock.ProbeFor(c, "x")+1)%3].links[0]
		silent.hold(replies, 1)
		began := time.Now()
		l, err := c.Mutex("x").WithTTL(time.Second).Acquire(t.Context())
		require.NoError(t, err)
		require.Greater(t, time.Since(began), 600*time.Millisecond)
		silent.hold(replies, -1)
		time.Sleep(2 * time.Second)
		require.True(t, l.Valid(), "%v", context.Cause(l.Context()))
		require.NoError(t, l.Release(t.Context()))
	})
}

// R3: Servers that answer more slowly than NodeTimeout still renew. A renewal that they have not answered is not sent again: on
// the same connection the second could only be later, and many leases would keep the servers busy with nothing else.
func TestARenewalThatIsAnsweredLateCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		var extended, failed atomic.Int32
		c := w.connect(t, 0, func(cfg *redlock.Config) {
			cfg.Hooks.Extended = func(redlock.LeaseInfo, time.Duration, time.Duration) { extended.Add(1) }
			cfg.Hooks.ExtendFailed = func(redlock.LeaseInfo, error) { failed.Add(1) }
		})
		require.NoError(t, c.Enroll(t.Context()))
		l, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(5 * time.Second) // the first renewal, which all nodes have granted
		before := extended.Load()
		for _, s := range w.servers {
			s.slow(0, 2*nodeTimeout)
		}
		time.Sleep(time.Minute)
		require.NoError(t, context.Cause(l.Context()))
		renewed := extended.Load() - before
		require.GreaterOrEqual(t, renewed, int32(15))
		require.LessOrEqual(t, failed.Load(), renewed+1)

		// A server that falls silent is asked again once its connection has ended.
		for _, s := range w.servers {
			s.slow(0, 3*time.Second)
		}
		time.Sleep(4 * time.Second)
		for _, s := range w.servers {
			s.slow(0, 0)
		}
		time.Sleep(10 * time.Second)
		require.NoError(t, context.Cause(l.Context()))
		require.NoError(t, l.Release(t.Context()))
	})
}

// R3: A renewal that could still be won late holds up no other one, if that can be won without the node that is silent.
func TestARenewalThatMayBeWonLateHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		l, err := all[0].Mutex("x").WithTTL(1200 * time.Millisecond).Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(500 * time.Millisecond) // the first renewal, which all nodes have granted
		silent, breaks := w.servers[1].links[0], w.servers[2].links[0]
		silent.hold(replies, 1)
		breaks.hold(replies, 1)
		time.Sleep(400 * time.Millisecond) // the second one, which one node grants
		breaks.hold(replies, -1)
		breaks.reset()
		time.Sleep(900 * time.Millisecond) // the connection to the silent node still stands
		require.NoError(t, context.Cause(l.Context()))
		silent.hold(replies, -1)
		require.NoError(t, l.Release(t.Context()))
	})
}

// R3: The pauses between the attempts to renew cost no lease that has time left when a quorum votes again.
func TestAnOutageThatEndsBeforeALeaseDoesEndsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		up := make(chan string, 16)
		c := w.connect(t, 0, func(cfg *redlock.Config) { cfg.Hooks.NodeUp = func(node string) { up <- node } })
		require.NoError(t, c.Enroll(t.Context()))
		var leases []*redlock.Lease
		for i := range 30 {
			l, err := c.Mutex(fmt.Sprint("job/", i)).Acquire(t.Context())
			require.NoError(t, err)
			leases = append(leases, l)
		}
		synctest.Wait() // all hooks were called
		for len(up) > 0 {
			<-up
		}
		away := []*link{w.servers[0].links[0], w.servers[1].links[0]}
		for _, l := range away {
			l.hold(requests, 1)
			l.hold(replies, 1)
		}
		time.Sleep(leases[0].Remaining() - time.Second)
		for _, l := range away {
			l.hold(requests, -1)
			l.hold(replies, -1)
		}
		for range away { // it takes the client some time to connect again
			<-up
		}
		left := leases[0].Remaining()
		require.Greater(t, left, 300*time.Millisecond, "the test has leases that end too soon")
		time.Sleep(left)
		for _, l := range leases {
			require.NoError(t, context.Cause(l.Context()), "%v were left when the nodes had come back", left)
		}
	})
}
