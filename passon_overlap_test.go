package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// linesUp begins an Acquire, and returns when it has had the time to enter the queue.
func linesUp(ctx context.Context, c *redlock.Client, name string, more ...string) (got chan *redlock.Lease) {
	got = make(chan *redlock.Lease, 1)
	go func() {
		l, _ := c.Mutex(name, more...).Acquire(ctx)
		got <- l
	}()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	return got
}

// W1, W2: Two waiters of one process want x, and each wants another name too, which is held. None of them can use a
// release of x. The last one to find that out passes it on to a waiter of another process, whoever released it.
func TestWaitersOfOneProcessThatCannotUseAReleasePassItOn(t *testing.T) {
	for name, releaser := range map[string]int{"released by another process": 1, "released by their process": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 3)
				var c []*redlock.Client
				for i := range 3 {
					c = append(c, w.connect(t, i, redlock.LostPoll(time.Hour)))
				}
				require.NoError(t, c[0].Enroll(t.Context()))
				for _, client := range c {
					client.Status(t.Context())
				}
				others, err := c[1].Mutex("y", "z").Acquire(t.Context())
				require.NoError(t, err)
				x, err := c[releaser].Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				both, either := linesUp(t.Context(), c[0], "x", "y"), linesUp(t.Context(), c[0], "x", "z")
				next := linesUp(t.Context(), c[2], "x")

				began := time.Now()
				require.NoError(t, x.Release(t.Context()))
				require.NoError(t, (<-next).Release(t.Context()))
				require.Less(t, time.Since(began), 100*time.Millisecond)
				require.NoError(t, others.Release(t.Context()))
				for range 2 { // whoever has x first
					select {
					case l := <-both:
						require.NoError(t, l.Release(t.Context()))
					case l := <-either:
						require.NoError(t, l.Release(t.Context()))
					}
				}
			})
		})
	}
}
