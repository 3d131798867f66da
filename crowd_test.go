package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// What a crowd wants of one client.
var crowds = map[string]func(c *redlock.Client, i int) redlock.Lock{
	"locks":   func(c *redlock.Client, i int) redlock.Lock { return c.Mutex(fmt.Sprint("x", i)) },
	"fair":    func(c *redlock.Client, i int) redlock.Lock { return c.Mutex(fmt.Sprint("x", i)).Fair() },
	"readers": func(c *redlock.Client, _ int) redlock.Lock { return c.RWMutex("x").Reader() },
}

// comes has so many goroutines acquire at once. It returns how to wait until all have returned.
func comes(size int, acquire func(i int)) (wait func()) {
	var all sync.WaitGroup
	for i := range size {
		all.Go(func() { acquire(i) })
	}
	return all.Wait
}

// busy has each command of a client take so long on every server.
func (w *world) busy(takes time.Duration) {
	for _, s := range w.servers {
		s.takes.Store(int64(takes))
	}
}

// A crowd in one process must not make its own requests wait so long that rounds end without their answers.
func TestACrowdGetsItsLocksFromSlowServers(t *testing.T) {
	for kind, lock := range crowds {
		for _, try := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/try=%v", kind, try), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, clients := enrolled(t, 2)
					c := w.connect(t, 1, func(cfg *redlock.Config) {
						cfg.Hooks.Refused = func(_ []string, err error) { assert.NotErrorIs(t, err, redlock.ErrNoQuorum) }
					})
					c.Status(t.Context())
					before, err := clients[0].RWMutex("x").Writer().Acquire(t.Context())
					require.NoError(t, err)
					acquire := func(i int) {
						_, err := lock(c, i).Acquire(t.Context())
						assert.NoError(t, err)
					}
					if try {
						acquire = func(i int) {
							_, err := lock(c, i).TryAcquire(t.Context())
							assert.NoError(t, err)
						}
						require.NoError(t, before.Release(t.Context()))
						synctest.Wait()
						w.busy(time.Millisecond)
						comes(300, acquire)()
					} else {
						wait := comes(300, acquire)
						time.Sleep(5 * time.Second) // those who want this name wait
						w.busy(time.Millisecond)
						require.NoError(t, before.Release(t.Context()))
						wait()
					}
					w.busy(0)
				})
			})
		}
	}
}

// Readers of one process that get in together do not outbid each other: they are sent in the order of their ballots.
func TestReadersOfOneProcessDoNotOutbidEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, clients := enrolled(t, 2)
		var byWriter, outbid atomic.Int64
		c := w.connect(t, 1, func(cfg *redlock.Config) {
			cfg.Hooks.Refused = func(_ []string, err error) {
				if saysHeld(t, err) { // on one server perhaps, which its release has not reached
					byWriter.Add(1)
				} else {
					outbid.Add(1)
				}
			}
		})
		writer, err := clients[0].RWMutex("x").Writer().Acquire(t.Context())
		require.NoError(t, err)
		wait := comes(300, func(int) {
			_, err := c.RWMutex("x").Reader().Acquire(t.Context())
			assert.NoError(t, err)
		})
		time.Sleep(5 * time.Second)
		require.GreaterOrEqual(t, byWriter.Load(), int64(300))
		require.NoError(t, writer.Release(t.Context()))
		wait()
		require.Zero(t, outbid.Load())
	})
}

// saysHeld reports whether a node said so.
func saysHeld(t *testing.T, err error) bool {
	var round *redlock.RoundError
	return assert.ErrorAs(t, err, &round) &&
		slices.ContainsFunc(round.Err.WrappedErrors(), func(err error) bool { return errors.Is(err, redlock.ErrHeld) })
}

// Servers that are far away, and not slow, get as many requests at once as there are. An acquire that asks one node first, or
// is refused in its light form, takes two round trips and is not late.
func TestACrowdIsNotHeldUpByTheDistance(t *testing.T) {
	for _, kind := range []string{"free", "contended"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const roundTrip, size = 100 * time.Millisecond, 1000
				w, clients := enrolled(t, 2)
				for _, s := range w.servers {
					s.slow(1, roundTrip)
				}
				far := clients[1]
				time.Sleep(time.Minute) // until it knows the distance
				if kind != "free" {
					var leases [size]*redlock.Lease
					comes(size, func(i int) {
						var err error
						leases[i], err = clients[0].Mutex(fmt.Sprint("x", i)).Acquire(t.Context())
						assert.NoError(t, err)
					})()
					comes(size, func(i int) {
						ctx, cancel := context.WithTimeout(t.Context(), 20*roundTrip)
						defer cancel()
						_, err := far.Mutex(fmt.Sprint("x", i)).Acquire(ctx)
						assert.ErrorIs(t, err, redlock.ErrHeld)
					})()
					comes(size, func(i int) {
						_, err := far.Mutex(fmt.Sprint("x", i)).TryAcquire(t.Context())
						assert.ErrorIs(t, err, redlock.ErrHeld) // so it was contended a moment ago
					})()
					comes(size, func(i int) { assert.NoError(t, leases[i].Release(t.Context())) })()
				}
				began := time.Now()
				comes(size, func(i int) {
					_, err := far.Mutex(fmt.Sprint("x", i)).Acquire(t.Context())
					assert.NoError(t, err)
				})()
				require.LessOrEqual(t, time.Since(began), 14*roundTrip) // 64, 128, 256, ... at once
			})
		})
	}
}

// farAway is a client that knows how far away its servers are. Locks of the same fence slot could outbid each other, so it has
// no fencing tokens.
func farAway(t *testing.T, roundTrip time.Duration) *redlock.Client {
	w := virtual(t, 3, 1)
	for _, s := range w.servers {
		s.slow(0, roundTrip)
	}
	far := w.connect(t, 0, func(cfg *redlock.Config) { cfg.NoFence = true })
	require.NoError(t, far.Enroll(t.Context()))
	time.Sleep(time.Minute)
	return far
}

// Few attempts may be under way in between: a crowd that comes again is admitted at once, and after a pause as at first.
func TestACrowdThatComesAgainIsAdmittedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const roundTrip, size = 100 * time.Millisecond, 300
		far := farAway(t, roundTrip)
		burst := func() (took time.Duration) {
			began := time.Now()
			comes(size, func(i int) {
				l, err := far.Mutex(fmt.Sprint("x", i)).Acquire(t.Context())
				assert.NoError(t, err)
				assert.NoError(t, l.Release(t.Context()))
			})()
			took = time.Since(began)
			l, err := far.Mutex("alone").Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
			return took
		}
		for range 10 { // each admits half of those that had to wait in the one before
			burst()
		}
		for range 5 {
			require.Less(t, burst(), 3*roundTrip) // an acquire and a release
		}
		time.Sleep(5 * time.Second)
		require.Greater(t, burst(), 3*roundTrip)
	})
}

// A client that is busy all the time, and never as busy as it once was, is not held up by what it is allowed then.
func TestASteadyLoadIsNotHeldUpByWhatACrowdLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const roundTrip, size = 100 * time.Millisecond, 200
		far := farAway(t, roundTrip)
		var all sync.WaitGroup
		acquire := func(name int) {
			l, err := far.Mutex(fmt.Sprint("x", name)).Acquire(t.Context())
			assert.NoError(t, err)
			all.Go(func() { assert.NoError(t, l.Release(t.Context())) })
		}
		comes(2*size, acquire)()
		for i := range 15 * size { // so that there are always some 200 under way
			all.Go(func() {
				began := time.Now()
				acquire(2*size + i)
				assert.Less(t, time.Since(began), roundTrip+10*time.Millisecond)
			})
			time.Sleep(roundTrip / size)
		}
		all.Wait()
	})
}

// The error of a call that ends before a node was asked says why none was. What is known of the lock is better.
func TestACallThatEndsInACrowdSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, clients := enrolled(t, 2)
		held, err := clients[0].Mutex("held").Acquire(t.Context())
		require.NoError(t, err)
		defer held.Release(t.Context())
		w.busy(20 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var crowded atomic.Int64
		comes(500, func(i int) {
			_, err := clients[1].Mutex(fmt.Sprint("x", i)).Acquire(ctx)
			if err != nil && assert.ErrorIs(t, err, redlock.ErrNoQuorum) && assert.ErrorIs(t, err, context.DeadlineExceeded) &&
				assert.NotErrorIs(t, err, redlock.ErrHeld) {
				crowded.Add(1)
			}
		})()
		require.Positive(t, crowded.Load())
		w.busy(0)
		time.Sleep(5 * time.Second) // until the servers have answered
		require.Zero(t, redlock.UnderWay(clients[1]))
	})
}

// Whenever callers give up, none leaves its place in the admission behind.
func TestNobodyLeavesAPlaceInTheCrowdBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, clients := enrolled(t, 2)
		w.busy(time.Millisecond)
		for round := range uint64(10) {
			comes(300, func(i int) {
				patience := time.Duration(rand.New(rand.NewPCG(round, uint64(i))).Int64N(int64(300 * time.Millisecond)))
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if l, err := clients[1].Mutex(fmt.Sprint("x", i)).Acquire(ctx); err == nil {
					_ = l.Release(t.Context()) // it may be late too
				}
			})()
		}
		w.busy(0)
		time.Sleep(5 * time.Second) // until the servers have answered
		require.Zero(t, redlock.UnderWay(clients[1]))
	})
}

func TestCloseEndsAlsoThoseWhoAreNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, clients := enrolled(t, 2)
		w.busy(50 * time.Millisecond)
		var closed atomic.Int64
		wait := comes(150, func(i int) {
			var err error
			if i%2 == 0 {
				_, err = clients[1].Mutex(fmt.Sprint("x", i)).Acquire(t.Context())
			} else {
				_, err = clients[1].Mutex(fmt.Sprint("x", i)).TryAcquire(t.Context())
			}
			if err != nil && assert.ErrorIs(t, err, redlock.ErrClosed) {
				closed.Add(1)
			}
		})
		synctest.Wait()
		require.Greater(t, redlock.UnderWay(clients[1]), 80)
		require.NoError(t, clients[1].Close())
		wait()
		require.Greater(t, closed.Load(), int64(80))
		require.Zero(t, redlock.UnderWay(clients[1]))
		w.busy(0)
	})
}

// Callers that wait for less than NodeTimeout, and come again, get their locks too.
func TestACrowdWithoutPatienceGetsItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, clients := enrolled(t, 2)
		w.busy(time.Millisecond)
		comes(1000, func(i int) {
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout*4/5)
				_, err := clients[1].Mutex(fmt.Sprint("x", i)).Acquire(ctx)
				cancel()
				if err == nil {
					return
				}
			}
			t.Error("it never got its lock")
		})()
		w.busy(0)
	})
}
