package redlock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// In virtual time, with the simulator's servers and links: a place lasts some three seconds with the defaults.
const placeLasts = 3 * time.Second

// arrives begins an Acquire of a fair lock, and returns when it has had the time to enter the queues.
func arrives(r *roll, number int, lock redlock.Lock) arrival {
	a := r.join(number, lock)
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	return a
}

// dies cuts a client off for ever.
func (w *world) dies(t *testing.T, client int) {
	for _, s := range w.servers {
		s.links[client].hold(requests, +1)
		s.links[client].hold(replies, +1)
		t.Cleanup(func() {
			s.links[client].hold(requests, -1)
			s.links[client].hold(replies, -1)
		})
	}
}

// fairClients starts servers with these clients, which all know them.
func fairClients(t *testing.T, servers, clients int) (w *world, all []*redlock.Client) {
	w = virtual(t, servers, clients)
	for id := range clients {
		all = append(all, w.connect(t, id))
	}
	require.NoError(t, all[0].Enroll(t.Context()))
	for _, c := range all {
		c.Status(t.Context())
	}
	return w, all
}

// O3: A dead waiter at the head costs the others its place's life, once.
func TestADeadWaiterAtTheHeadCostsTheOthersItsPlaceOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 4)
		held, err := c[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		r := &roll{t: t}
		dead := arrives(r, 0, c[1].Mutex("x").Fair())
		second, third := arrives(r, 1, c[2].Mutex("x").Fair()), arrives(r, 2, c[3].Mutex("x").Fair())
		w.dies(t, 1)
		began := time.Now()
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-second.ended)
		require.Less(t, time.Since(began), placeLasts)
		began = time.Now()
		require.NoError(t, <-third.ended)
		require.Less(t, time.Since(began), 10*time.Millisecond)
		require.Equal(t, []int{1, 2}, r.order())
		dead.cancel()
		<-dead.ended
	})
}

// O3: A waiter that has gone and could not leave its queues hears of releases in the name of its client. Those behind it
// hear of them all the same, a round trip later.
func TestAWaiterThatHasGoneDoesNotSwallowTheReleasesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 3)
		holds := func(c *redlock.Client, name string) *redlock.Lease {
			l, err := c.Mutex(name).Acquire(t.Context())
			require.NoError(t, err)
			return l
		}
		x, y := holds(c[0], "x"), holds(c[0], "y")
		r := &roll{t: t}
		listens := arrives(r, 0, c[1].Mutex("y").Fair())
		gone := w.servers[0].placesOf("y")[0] + "0" // another waiter of the same client
		for _, s := range w.servers {               // has this if its connection ended before that waiter could leave
			s.mu.Lock()
			_, err := s.redis.ZAdd("redlock:wait:x", 1, gone)
			s.mu.Unlock()
			require.NoError(t, err)
		}
		for i := range 3 {
			waiter := arrives(r, i+1, c[2].Mutex("x"))
			began := time.Now()
			require.NoError(t, x.Release(t.Context()))
			require.NoError(t, <-waiter.ended)
			require.Less(t, time.Since(began), 20*time.Millisecond)
			x = holds(c[0], "x")
		}
		require.NoError(t, y.Release(t.Context()))
		require.NoError(t, <-listens.ended)
	})
}

// O3: A thousand dead waiters lose their places together.
func TestAThousandDeadWaitersLoseTheirPlacesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 1, 3) // one server: in ours, a rank takes as long as the set is large
		held, err := c[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		r := &roll{t: t}
		var dead []arrival
		for range fifth(1000) {
			dead = append(dead, r.join(0, c[1].Mutex("x").Fair()))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, w.servers[0].placesOf("x"), fifth(1000))
		waiter := arrives(r, 1, c[2].Mutex("x").Fair())
		w.dies(t, 1)
		began := time.Now()
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-waiter.ended)
		require.Less(t, time.Since(began), placeLasts+time.Second, "a look a second later finds that they are gone")
		for _, a := range dead {
			a.cancel()
			<-a.ended
		}
	})
}

// placesOf is the waiters of a fair lock, in the order of their tickets.
func (s *server) placesOf(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	members, _ := s.redis.ZMembers("redlock:fair:ticket:" + name)
	return members
}

// O3: A waiter that gives up leaves at once, also if it is the next one, and again and again.
func TestAWaiterThatTimesOutAgainAndAgainStallsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 3)
		held, err := c[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		r := &roll{t: t}
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
			_, err := c[1].Mutex("x").Fair().Acquire(ctx)
			cancel()
			require.ErrorIs(t, err, redlock.ErrHeld)
			synctest.Wait()
			for _, s := range w.servers {
				require.Empty(t, s.placesOf("x"))
			}
		}
		head := arrives(r, 0, c[1].Mutex("x").Fair())
		waiter := arrives(r, 1, c[2].Mutex("x").Fair())
		began := time.Now()
		head.cancel() // it may just have been told
		require.NoError(t, held.Release(t.Context()))
		<-head.ended
		require.NoError(t, <-waiter.ended)
		require.Less(t, time.Since(began), 50*time.Millisecond)
	})
}

// O2: The order does not depend on clocks. Here most servers' clocks are set back, so that a later call seems to have
// come earlier.
func TestTheOrderOfArrivalDoesNotDependOnClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 3)
		held, err := c[0].Mutex("x").WithTTL(30 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		r := &roll{t: t}
		first := arrives(r, 0, c[1].Mutex("x").Fair())
		for _, s := range w.servers {
			s.step(-time.Hour)
		}
		c[2].Status(t.Context())
		time.Sleep(6 * time.Second) // its clock is read every five seconds
		second := arrives(r, 1, c[2].Mutex("x").Fair())
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-first.ended)
		require.NoError(t, <-second.ended)
		require.Equal(t, []int{0, 1}, r.order())
	})
}

// O2, O3: One server's clock steps: forward, so that all places there seem to be over; or back, so that they seem to
// last.
func TestOneClockThatStepsNeitherChangesTheOrderNorStallsAnybody(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w, c := fairClients(t, 3, 4)
			held, err := c[0].Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			r := &roll{t: t}
			first := arrives(r, 0, c[1].Mutex("x").Fair())
			dead := arrives(r, 9, c[3].Mutex("x").Fair())
			second := arrives(r, 1, c[2].Mutex("x").Fair())
			w.servers[1].step(step)
			w.dies(t, 3)
			third := arrives(r, 2, c[2].Mutex("x").Fair())
			time.Sleep(placeLasts)
			began := time.Now()
			require.NoError(t, held.Release(t.Context()))
			for _, a := range []arrival{first, second, third} {
				require.NoError(t, <-a.ended)
			}
			require.Equal(t, []int{0, 1, 2}, r.order())
			require.Less(t, time.Since(began), placeLasts)
			dead.cancel()
			<-dead.ended
		})
	}
}

// O2: A node that forgot its queue knows it again before it may grant, because waiters write their places there while
// it is in quarantine. So no newcomer gets a quorum with it.
func TestANodeThatForgotItsQueueKnowsItAgainBeforeItGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 3)
		held, err := c[0].Mutex("x").WithTTL(20 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		r := &roll{t: t}
		first := arrives(r, 0, c[1].Mutex("x").Fair())
		for _, s := range w.servers[:2] { // one after the other, so that the lease stays
			s.flush()
			time.Sleep(45 * time.Second)
			require.Len(t, s.placesOf("x"), 1)
		}
		second := arrives(r, 1, c[2].Mutex("x").Fair())
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-first.ended)
		require.NoError(t, <-second.ended)
		require.Equal(t, []int{0, 1}, r.order())
	})
}

// O3: A release tells the next waiter, which then asks once: two round trips, as with the plain lock.
func TestAFairHandOverTakesTwoRoundTrips(t *testing.T) {
	for _, roundTrip := range []time.Duration{time.Millisecond, 150 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 5, 2)
			noBand := func(cfg *redlock.Config) { cfg.ClockBand = -1 }
			c := []*redlock.Client{w.connect(t, 0, noBand), w.connect(t, 1, noBand)}
			for _, s := range w.servers {
				s.slow(0, roundTrip)
				s.slow(1, roundTrip)
			}
			require.NoError(t, c[0].Enroll(t.Context()))
			c[1].Status(t.Context())
			time.Sleep(time.Minute) // long enough to have measured the round trips
			held, err := c[0].Mutex("x").Fair().Acquire(t.Context())
			require.NoError(t, err)
			for i := range 20 {
				got := make(chan *redlock.Lease)
				go func() {
					l, err := c[(i+1)%2].Mutex("x").Fair().Acquire(t.Context())
					if err != nil {
						panic(err)
					}
					got <- l
				}()
				time.Sleep(3*time.Second + time.Duration(i)*17*time.Millisecond)
				began := time.Now()
				go func(l *redlock.Lease) { _ = l.Release(t.Context()) }(held)
				held = <-got
				require.LessOrEqual(t, time.Since(began), 2*roundTrip, "hand-over %d", i)
			}
			require.NoError(t, held.Release(t.Context()))
		})
	}
}

// O3: A waiter that reaches fewer nodes than a quorum cannot use its turn. It keeps nobody from theirs who reaches
// others.
func TestAWaiterWithoutAQuorumKeepsNobodyFromItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 3)
		held, err := c[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		r := &roll{t: t}
		first := arrives(r, 0, c[1].Mutex("x").Fair())
		second := arrives(r, 1, c[2].Mutex("x").Fair())
		w.servers[2].end()
		w.servers[1].links[1].hold(requests, +1)
		w.servers[1].links[1].hold(replies, +1)
		require.NoError(t, held.Release(t.Context()))
		began := time.Now()
		require.NoError(t, <-second.ended)
		require.Less(t, time.Since(began), placeLasts+2*time.Second)
		w.servers[1].links[1].hold(requests, -1)
		w.servers[1].links[1].hold(replies, -1)
		require.NoError(t, <-first.ended)
	})
}

// O3: A waiter whose acquisitions all come too late for it lets others have their turn.
func TestAWaiterThatIsAlwaysTooLateKeepsNobodyFromItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 3)
		good := w.connect(t, 0)
		late := w.connect(t, 1, func(cfg *redlock.Config) { cfg.MinValidity = 9 * time.Second })
		next := w.connect(t, 2)
		require.NoError(t, good.Enroll(t.Context()))
		late.Status(t.Context())
		next.Status(t.Context())
		held, err := good.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		r := &roll{t: t}
		first := arrives(r, 0, late.Mutex("x").Fair())
		second := arrives(r, 1, next.Mutex("x").Fair())
		for _, s := range w.servers {
			s.slow(1, 200*time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		require.NoError(t, held.Release(t.Context()))
		began := time.Now()
		require.NoError(t, <-second.ended)
		require.Less(t, time.Since(began), 5*time.Second)
		first.cancel()
		<-first.ended
	})
}

// readSteadily has readers come and go, so that there is always one, until stop is called. It returns how many have come.
func readSteadily(readers []redlock.Lock, stay time.Duration) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var came atomic.Int64
	for i, lock := range readers {
		all.Go(func() {
			time.Sleep(time.Duration(i) * stay / time.Duration(len(readers)))
			for {
				l, err := lock.Acquire(ctx)
				if err != nil {
					return
				}
				came.Add(1)
				time.Sleep(stay)
				_ = l.Release(context.Background())
			}
		})
	}
	time.Sleep(2 * stay)
	return func() int {
		cancel()
		all.Wait()
		return int(came.Load())
	}
}

// S2, O3: Eight readers that come and go without a pause do not keep a fair writer out, nor does it keep readers out. A writer that dies or gives up keeps readers out for no longer than its place lasts.
func TestAFairWriterIsNotStarvedByReaders(t *testing.T) {
	const stay = 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 7)
		var readers []redlock.Lock
		for i := range 8 {
			readers = append(readers, c[i%4].RWMutex("x").Reader())
		}
		stop := readSteadily(readers, stay)
		for i := range 5 {
			began := time.Now()
			l, err := c[4+i%2].RWMutex("x").Writer().Fair().Acquire(soon(t))
			require.NoError(t, err)
			require.Less(t, time.Since(began), 3*stay, "no reader that comes later gets in")
			time.Sleep(stay)
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(stay)
		}
		require.GreaterOrEqual(t, stop(), 8*(2+5), "readers have their turns between")

		// Two writers at a time, one behind the other.
		stop = readSteadily(readers, stay)
		var writers sync.WaitGroup
		for _, c := range c[4:6] {
			writers.Go(func() {
				for range 5 {
					l, err := c.RWMutex("x").Writer().Fair().Acquire(soon(t))
					if assert.NoError(t, err) {
						time.Sleep(stay)
						assert.NoError(t, l.Release(t.Context()))
					}
				}
			})
		}
		writers.Wait()
		stop()

		reader, err := readers[0].Acquire(soon(t))
		require.NoError(t, err)
		r := &roll{t: t}
		for _, dies := range []bool{false, true} {
			writer := arrives(r, 0, c[6].RWMutex("x").Writer().Fair())
			_, err = readers[1].TryAcquire(soon(t))
			require.ErrorIs(t, err, redlock.ErrHeld)
			began := time.Now()
			if dies {
				w.dies(t, 6)
			} else {
				writer.cancel()
				require.Error(t, <-writer.ended)
			}
			other, err := readers[1].Acquire(soon(t))
			require.NoError(t, err)
			if dies {
				require.Less(t, time.Since(began), placeLasts)
				writer.cancel()
				<-writer.ended
			} else {
				require.Less(t, time.Since(began), 10*time.Millisecond)
			}
			require.NoError(t, other.Release(t.Context()))
		}
		require.NoError(t, reader.Release(t.Context()))
	})
}

// S2: When the last reader leaves, nothing is reserved for a fair writer. Its intent keeps the free lock for it, also if
// it is far away, and readers ask at that moment.
func TestAFreeLockIsKeptForAFairWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 3)
		reader, err := c[0].RWMutex("x").Reader().Acquire(soon(t))
		require.NoError(t, err)
		writer := arrives(&roll{t: t}, 0, c[1].RWMutex("x").Writer().Fair())
		for _, s := range w.servers {
			s.links[1].hold(replies, +1) // its messages too
		}
		require.NoError(t, reader.Release(t.Context()))
		_, err = c[2].RWMutex("x").Reader().TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrHeld)
		for _, s := range w.servers {
			s.links[1].hold(replies, -1)
		}
		require.NoError(t, <-writer.ended)
		reader, err = c[2].RWMutex("x").Reader().TryAcquire(soon(t))
		require.NoError(t, err, "the intent has gone with the writer")
		require.NoError(t, reader.Release(t.Context()))
	})
}

// W2, O3: What is released is reserved for the first waiter, which polls and is dead. A waiter of a fair lock behind it is told,
// as any other is, and gets the lock when the reservation has ended.
func TestAFairWaiterBehindADeadOneThatPolledIsTold(t *testing.T) {
	for name, lock := range map[string]func(*redlock.Client) redlock.Lock{
		"a mutex":  func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
		"a reader": func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() },
		"a permit": func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 1) },
	} {
		t.Run("behind "+name, func(t *testing.T) {
			for range 5 {
				synctest.Test(t, func(t *testing.T) {
					w, c := enrolled(t, 2)
					held, err := lock(c[0]).Acquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, held.Extend(t.Context()))
					for _, s := range w.servers {
						s.mu.Lock()
						_, err := s.redis.ZAdd("redlock:wait:x", 1, "next:"+strange+":poll")
						s.mu.Unlock()
						require.NoError(t, err)
					}
					waiter := awaits(t, c[1].Mutex("x").Fair())
					released := time.Now()
					require.NoError(t, held.Release(t.Context()))
					require.NotNil(t, <-waiter.got)
					require.Less(t, time.Since(released), 300*time.Millisecond) // the reservation lasts 200 ms
				})
			}
		})
	}
}

// O3: An operator deletes a key of the queue, as the error of fair.lua says. The living write their places again, and the dead
// do not: their places end all the same.
func TestADeadWaiterGoesAlsoIfTheKeyWithItsLifeWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		var attempts atomic.Int64
		c := w.connect(t, 0, func(cfg *redlock.Config) {
			cfg.Hooks.Acquired = func(_ redlock.LeaseInfo, _ time.Duration, made int) { attempts.Store(int64(made)) }
		})
		other := w.connect(t, 1)
		require.NoError(t, c.Enroll(t.Context()))
		other.Status(t.Context())
		held, err := c.Mutex("x").Fair().Acquire(t.Context())
		require.NoError(t, err)
		dead := arrives(&roll{t: t}, 1, other.Mutex("x").Fair())
		w.dies(t, 1)
		dead.cancel()
		for _, s := range w.servers {
			s.tell("SET", "redlock:fair:until:x", "another program's")
			s.tell("DEL", "redlock:fair:until:x")
		}
		require.NoError(t, held.Release(t.Context()))
		l, err := acquireWithin(t, c.Mutex("x").Fair(), 2*placeLasts)
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		require.Less(t, attempts.Load(), int64(20))
	})
}

// A waiter's grants come only after its rounds are over, because its leases are too short for its nodes. It has its turn, and
// cannot use it: others have theirs.
func TestAWaiterWhoseRoundsEndBeforeTheirGrantsComeKeepsNobodyFromItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 2)
		held, err := c[1].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		for _, s := range w.servers {
			s.slow(0, 180*time.Millisecond)
		}
		r := &roll{t: t}
		far := r.join(0, c[0].Mutex("x").Fair().WithTTL(200*time.Millisecond)) // its rounds end after 50 ms
		time.Sleep(2 * time.Second)
		near := arrives(r, 1, c[1].Mutex("x").Fair())
		require.NoError(t, held.Release(t.Context()))
		select {
		case err := <-near.ended:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "it waits for ever")
		}
		far.cancel()
		<-far.ended
	})
}
