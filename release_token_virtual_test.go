package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// takings are the two calls that take a lock from its holder.
var takings = map[string]func(context.Context, *redlock.Client, *redlock.Lease) error{
	"ForceRelease": func(ctx context.Context, c *redlock.Client, _ *redlock.Lease) error { return c.ForceRelease(ctx, "x") },
	"ReleaseToken": func(ctx context.Context, c *redlock.Client, l *redlock.Lease) error {
		return c.ReleaseToken(ctx, "x", l.Token())
	},
}

// The operator is cut off from one node, and far from another one. A renewal comes between the two releases that arrive: it is
// extended by a quorum, and plants the key where it was gone (R2).
func TestALeaseThatARenewalTakesBackIsReleasedByForceAgain(t *testing.T) {
	for call, release := range takings {
		for renewals, want := range map[int]error{1: nil, 100: redlock.ErrNoQuorum} {
			t.Run(call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, all := enrolled(t, 2)
					time.Sleep(10 * time.Second)
					l, err := all[0].Mutex("x").Acquire(t.Context())
					require.NoError(t, err)
					w.spread(t, l)
					w.servers[2].links[1].hold(requests, +1)
					defer w.servers[2].links[1].hold(requests, -1)
					w.servers[1].links[1].lag[requests].Store(int64(40 * time.Millisecond))
					released := make(chan error, 1)
					go func() { released <- release(t.Context(), all[1], l) }()
					for ended := false; !ended; {
						select {
						case err = <-released:
							ended = true
						case <-time.After(time.Millisecond):
							if renewals > 0 && len(w.having("x")) == 2 { // one of the two was released
								require.NoError(t, l.Extend(t.Context()))
								renewals--
							}
						}
					}
					if want != nil {
						require.ErrorIs(t, err, want)
						require.ErrorContains(t, err, "its holder goes on, and takes it back")
						require.True(t, l.Valid())
						return
					}
					require.NoError(t, err)
					time.Sleep(20 * time.Second)
					require.False(t, l.Valid())
					require.Empty(t, w.having("x"))
				})
			})
		}
	}
}

// R2: A lease is on a bare quorum, because it was not renewed yet, and one of its nodes does not answer the operator. Its next
// renewal keeps that node, and takes those that never had it. So nobody may be told that the lock is free.
func TestWhatItsHolderCanTakeBackIsNotSaidToBeReleased(t *testing.T) {
	locks := map[string]func(*redlock.Client) redlock.Lock{
		"mutex":  func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
		"reader": func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() },
		"permit": func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 2) },
	}
	for kind, lock := range locks {
		for _, nodes := range []int{3, 5, 7} {
			t.Run(fmt.Sprintf("%s on %d nodes", kind, nodes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := virtual(t, nodes, 2)
					holder, operator := w.connect(t, 0), w.connect(t, 1)
					require.NoError(t, holder.Enroll(t.Context()))
					operator.Status(t.Context())
					l, err := lock(holder).Acquire(t.Context())
					require.NoError(t, err)
					synctest.Wait()
					having := w.having("x")
					require.Len(t, having, nodes/2+1)
					having[0].links[1].hold(requests, +1)
					err = operator.ForceRelease(t.Context(), "x")
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
					require.ErrorContains(t, err, "release it again when all nodes answer")
					require.Len(t, w.having("x"), 1, "the others have let it go")
					require.NoError(t, l.Extend(t.Context()), "which is why")
					synctest.Wait()
					having[0].links[1].hold(requests, -1)
					require.NoError(t, operator.ForceRelease(t.Context(), "x"))
					synctest.Wait()
					require.Empty(t, w.having("x"))
					require.ErrorIs(t, l.Extend(t.Context()), redlock.ErrLost)
				})
			})
		}
	}
}

// The nodes that answer had it, and are so many that the others are no quorum: it is released, though a node is away.
func TestALockIsReleasedByForceThoughANodeIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		w.servers[2].stop()
		l, err := all[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, all[1].ForceRelease(t.Context(), "x"))
		require.ErrorIs(t, l.Extend(t.Context()), redlock.ErrLost)
	})
}

// S4: The operator looks, and then the writer becomes a reader, before the release by force comes.
func TestAWriterThatBecomesAReaderMeanwhileIsReleasedByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		l, err := all[0].RWMutex("x").Writer().Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context()))
		synctest.Wait()
		for _, s := range w.servers {
			s.slow(1, 40*time.Millisecond)
		}
		began := time.Now()
		_, err = all[1].Inspect(t.Context(), "x")
		require.NoError(t, err)
		looks := time.Since(began)
		released := make(chan error, 1)
		go func() { released <- all[1].ForceRelease(t.Context(), "x") }()
		time.Sleep(looks + 10*time.Millisecond) // it has looked, and its release is on its way
		reader, err := l.Downgrade(t.Context())
		require.NoError(t, err)
		require.NoError(t, <-released)
		synctest.Wait()
		require.Empty(t, w.having("x"))
		require.ErrorIs(t, reader.Extend(t.Context()), redlock.ErrLost)
	})
}

// S4: A writer becomes a reader, of which some nodes have not heard. It is one owner, and those that answered have let it go.
func TestAReaderOfWhomNotAllHaveHeardIsReleasedByForce(t *testing.T) {
	// ReleaseToken leaves the reader's entry, and deletes a quorum of strings.
	for call, release := range takings {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 5, 2)
				holder, operator := w.connect(t, 0), w.connect(t, 1)
				require.NoError(t, holder.Enroll(t.Context()))
				operator.Status(t.Context())
				writer, err := holder.RWMutex("x").Writer().Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, writer.Extend(t.Context()))
				synctest.Wait()
				for _, s := range w.servers[1:] {
					s.links[0].hold(requests, +1)
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				reader, err := writer.Downgrade(ended)
				require.NoError(t, err)
				synctest.Wait()
				require.NotEmpty(t, w.servers[0].sharers("x"))
				w.servers[4].links[1].hold(requests, +1)
				require.NoError(t, release(t.Context(), operator, reader))
				for _, s := range w.servers[1:] {
					s.links[0].hold(requests, -1)
				}
				time.Sleep(100 * time.Millisecond)
				require.ErrorIs(t, reader.Extend(t.Context()), redlock.ErrLost)
				w.servers[4].links[1].hold(requests, -1)
			})
		})
	}
}

// R2, S4: The operator is cut off from one node, and far from another one. When the third has released the writer's string, the
// writer becomes a reader, and takes that node back with an entry.
func TestAReaderThatTakesBackAWritersLockIsReleasedByForceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		l, err := all[0].RWMutex("x").Writer().Acquire(t.Context())
		require.NoError(t, err)
		w.spread(t, l)
		w.servers[2].links[1].hold(requests, +1)
		defer w.servers[2].links[1].hold(requests, -1)
		w.servers[1].links[1].lag[requests].Store(int64(40 * time.Millisecond))
		released := make(chan error, 1)
		go func() { released <- all[1].ForceRelease(t.Context(), "x") }()
		w.awaits("x", 2)
		w.servers[0].links[0].lag[requests].Store(int64(140 * time.Millisecond))
		reader, err := l.Downgrade(t.Context())
		require.NoError(t, err)
		require.NoError(t, <-released)
		require.Len(t, w.having("x"), 1, "those that answered have let it go")
		time.Sleep(time.Second)
		require.ErrorIs(t, reader.Extend(t.Context()), redlock.ErrLost)
	})
}

// What is on so few nodes that it cannot be a lease, or what another library wrote, nobody takes back.
func TestALeftoverIsReleasedByForceThoughANodeIsAway(t *testing.T) {
	for what, of := range map[string]struct {
		value string
		nodes []int
	}{
		"another library's": {"3f8a", []int{3, 5, 7}},
		"a dead client's":   {"0123456789abcdef0123456789abcdef:01234567:vm/1", []int{5, 7}},
	} {
		for _, nodes := range of.nodes {
			t.Run(fmt.Sprintf("%s on %d nodes", what, nodes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := virtual(t, nodes, 1)
					c := w.connect(t, 0)
					require.NoError(t, c.Enroll(t.Context()))
					w.servers[0].tell("SET", "x", of.value, "PX", 10000)
					w.servers[1].stop()
					require.NoError(t, c.ForceRelease(t.Context(), "x"))
					require.Empty(t, w.having("x"))
				})
			})
		}
	}
}

// R2: A lease is on a bare quorum, and all nodes answer. Its renewal comes between the two releases, takes the third node, and
// plants where it was gone.
func TestALeaseOnABareQuorumThatTakesTheRestIsReleasedByForceAgain(t *testing.T) {
	locks := map[string]func(*redlock.Client) redlock.Lock{
		"mutex":  func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
		"token":  func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
		"reader": func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() },
		"permit": func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 2) },
	}
	for kind, lock := range locks {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 2)
				l, err := lock(all[0]).Acquire(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				having := w.having("x")
				require.Len(t, having, 2)
				having[0].links[1].lag[requests].Store(int64(40 * time.Millisecond))
				released := make(chan error, 1)
				release := takings["ForceRelease"]
				if kind == "token" {
					release = takings["ReleaseToken"]
				}
				go func() { released <- release(t.Context(), all[1], l) }()
				w.awaits("x", 1)
				require.NoError(t, l.Extend(t.Context()))
				require.NoError(t, <-released)
				synctest.Wait()
				require.Empty(t, w.having("x"))
				require.ErrorIs(t, l.Extend(t.Context()), redlock.ErrLost)
			})
		})
	}
}

// One node is silent to the caller, another one falls silent when it has let the lock go and was planted again: nobody knows
// whether it is released.
func TestALookThatTooFewAnswerProvesNothing(t *testing.T) {
	for call, release := range takings {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 2)
				l, err := all[0].Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Extend(t.Context()))
				synctest.Wait()
				silence := func(s *server) func() {
					s.links[1].hold(requests, +1)
					return func() { s.links[1].hold(requests, -1) }
				}
				defer silence(w.servers[2])()
				w.servers[1].links[1].lag[requests].Store(int64(40 * time.Millisecond))
				released := make(chan error, 1)
				go func() { released <- release(t.Context(), all[1], l) }()
				w.awaits("x", 2)
				require.NoError(t, l.Extend(t.Context()))
				w.awaits("x", 3)
				w.awaits("x", 2)
				defer silence(w.servers[0])()
				require.ErrorIs(t, <-released, redlock.ErrNoQuorum)
				require.NoError(t, l.Extend(t.Context()), "which is why")
			})
		})
	}
}

// The context may carry a lease that is taken, and ends with it: not before it is known what became of the lock.
func TestAReleaseByForceUnderItsOwnLeaseGoesToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enrolled(t, 1)
		for range 2 {
			l, err := all[0].Mutex("x").Acquire(t.Context()) // on a bare quorum
			require.NoError(t, err)
			require.NoError(t, all[0].ForceRelease(l.Context(), "x"))
			<-l.Context().Done()
			l, err = all[0].Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, all[0].ReleaseToken(l.Context(), "x", l.Token()))
			<-l.Context().Done()
		}
	})
}

// R2: The releases of three nodes come one after the other, and a renewal after each of the first two. Each plants where the lock
// was gone. All nodes say that they deleted it.
func TestALeaseThatIsPlantedBehindEachReleaseIsReleasedByForceAgain(t *testing.T) {
	for call, release := range takings {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 2)
				l, err := all[0].Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				w.spread(t, l)
				w.servers[1].links[1].lag[requests].Store(int64(40 * time.Millisecond))
				w.servers[2].links[1].lag[requests].Store(int64(80 * time.Millisecond))
				released := make(chan error, 1)
				go func() { released <- release(t.Context(), all[1], l) }()
				for range 2 {
					w.awaits("x", 2)
					require.NoError(t, l.Extend(t.Context()))
					synctest.Wait()
				}
				require.NoError(t, <-released)
				synctest.Wait()
				require.Empty(t, w.having("x"))
				require.ErrorIs(t, l.Extend(t.Context()), redlock.ErrLost)
			})
		})
	}
}

// A2: The operator looks in the middle of an acquire, which then wins with a node that falls silent to the operator.
func TestAnAcquireThatWinsAfterTheLookMayBeALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		for _, s := range w.servers {
			s.slow(1, 40*time.Millisecond)
			s.slow(0, 2*time.Millisecond)
		}
		w.servers[2].links[0].hold(requests, +1) // it never hears of the acquire
		began := time.Now()
		_, err := all[1].Inspect(t.Context(), "x")
		require.NoError(t, err)
		looks := time.Since(began)
		w.servers[1].links[0].lag[requests].Store(int64(looks + 5*time.Millisecond))
		acquired := make(chan *redlock.Lease, 1)
		go func() {
			l, _ := all[0].Mutex("x").Acquire(t.Context())
			acquired <- l
		}()
		time.Sleep(3 * time.Millisecond)
		require.Len(t, w.having("x"), 1)
		released := make(chan error, 1)
		go func() { released <- all[1].ForceRelease(t.Context(), "x") }()
		time.Sleep(looks + 5*time.Millisecond) // its release is on its way
		w.servers[1].links[1].hold(requests, +1)
		l := <-acquired
		require.NotNil(t, l)
		w.servers[2].links[0].reset()
		w.servers[2].links[0].hold(requests, -1)
		w.servers[1].links[0].lag[requests].Store(0)
		require.ErrorIs(t, <-released, redlock.ErrNoQuorum)
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, l.Extend(t.Context()), "which is why")
		w.servers[1].links[1].hold(requests, -1)
	})
}
