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

// waitersOf are the members of the key's queue on this server, in order of arrival.
func (s *server) waitersOf(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	members, _ := s.redis.ZMembers("redlock:wait:" + key)
	return members
}

// tells has the server send a waiter the message that the key is reserved for it.
func (s *server) tells(waiter, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redis.Publish("redlock:released:"+waiter, key)
}

// W1, W2: A release hands the lock to a waiter of its own process, whose acquire is already on its way. The key that is
// being released refuses that acquire on one node, and it is won without that node. So the lock's key is free there, and the
// winner's release will find nothing there. A waiter of another process that is in that node's queue is told all the same.
func TestAWinnerPassesOnWhatItsProcessReleasedAfterItsAcquireWasSent(t *testing.T) {
	for name, answers := range map[string]time.Duration{
		"that node has refused it":       10 * time.Millisecond,
		"that node has yet to refuse it": 100 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 2)
				a, b := w.connect(t, 0, redlock.LostPoll(time.Hour)), w.connect(t, 1, redlock.LostPoll(time.Hour))
				require.NoError(t, a.Enroll(t.Context()))
				b.Status(t.Context())
				for _, s := range w.servers {
					require.NoError(t, s.redis.Set("x", strange))
				}
				winner, other := linesUp(t.Context(), a, "x"), linesUp(t.Context(), b, "x")
				first := w.servers[redlock.ProbeFor(a, "x")]
				queue := first.waitersOf("x")
				require.Len(t, queue, 2)
				for _, s := range w.servers {
					if s != first {
						s.redis.Del("x")
					}
				}
				held, err := a.Mutex("x").TryAcquire(t.Context())
				require.NoError(t, err)

				// The first node is free. The other process asks all, and enters the queue of a node that the holder has.
				first.redis.Del("x")
				_, err = first.redis.ZRem("redlock:wait:x", queue[0])
				require.NoError(t, err)
				first.tells(queue[1], "x")
				time.Sleep(50 * time.Millisecond)
				synctest.Wait()
				var late *server
				for _, s := range w.servers {
					if s != first && len(s.waitersOf("x")) > 0 {
						require.Equal(t, queue[1:], s.waitersOf("x"))
						late = s
					}
				}
				require.NotNil(t, late)

				// The first node reserves the lock for this process, whose waiter asks that node and the late one.
				late.links[0].lag[replies].Store(int64(answers))
				require.NoError(t, first.redis.Set("x", queue[0]))
				first.tells(queue[0], "x")
				time.Sleep(time.Millisecond)
				synctest.Wait()
				require.NoError(t, held.Release(t.Context()))
				require.NoError(t, (<-winner).Release(t.Context()))
				began := time.Now()
				require.NoError(t, (<-other).Release(t.Context()))
				require.Less(t, time.Since(began), 200*time.Millisecond)
			})
		})
	}
}

// W1, W2: A lock that was renewed is on all nodes, and goes to a waiter of the same process. That one does not ask a node which
// is slow for this process. A waiter of another process, for which it is not, is in the queue of just that node.
func TestALockThatStaysInItsProcessIsNotSilentlyFreeOnANodeThatIsSlowForIt(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, nodes, 2)
			a, b := w.connect(t, 0, redlock.LostPoll(time.Hour)), w.connect(t, 1, redlock.LostPoll(time.Hour))
			require.NoError(t, a.Enroll(t.Context()))
			b.Status(t.Context())
			first := redlock.ProbeFor(b, "x")
			w.servers[first].slow(0, 50*time.Millisecond)
			time.Sleep(time.Minute) // long enough to have measured the round trips
			require.NotEqual(t, first, redlock.ProbeFor(a, "x"))
			held, err := a.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, held.Extend(t.Context()))
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
			require.Len(t, w.having("x"), nodes)
			other, next := linesUp(t.Context(), b, "x"), linesUp(t.Context(), a, "x")
			require.Len(t, w.servers[first].waitersOf("x"), 1)

			require.NoError(t, held.Release(t.Context()))
			held = <-next
			time.Sleep(100 * time.Millisecond) // the other process has asked, and waits where this lease is
			began := time.Now()
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, (<-other).Release(t.Context()))
			require.Less(t, time.Since(began), 100*time.Millisecond)
		})
	}
}
