package redlock_test

import (
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
