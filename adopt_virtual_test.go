package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// Adopt does not wait and ask again later, like a try. So where the servers have forgotten the script, it asks once more,
// behind its loading.
func TestAnAdopterLoadsAScriptThatTheServersForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		ticket := ticketOf(t, all[0].Mutex("x"))
		time.Sleep(time.Millisecond) // what Detach sent has arrived, and the next ballot is larger
		w.forgetScripts()
		taken, err := all[1].Adopt(t.Context(), ticket)
		require.NoError(t, err)
		require.NoError(t, taken.Release(t.Context()))
	})
}

// D4, D5: Of all that adopt one ticket at the same moment, one gets the lock, and the others take nothing from it.
func TestOfAllThatAdoptATicketOneGetsTheLock(t *testing.T) {
	for seed := range uint64(trials(20)) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 11))
			nodes, size := 3+random.IntN(3), 2+random.IntN(6)
			w := virtual(t, nodes, size)
			clients := make([]*redlock.Client, size)
			for i := range clients {
				for _, s := range w.servers {
					s.links[i] = newLink(seed*1000+uint64(i*10+s.index), time.Duration(random.Int64N(int64(nodeTimeout/8))))
				}
				clients[i] = w.connect(t, i)
			}
			require.NoError(t, clients[0].Enroll(t.Context()))
			for _, c := range clients {
				c.Status(t.Context())
			}
			w.hinder(random)
			for round := range 5 {
				ticket := ticketOf(t, clients[0].Mutex("x"))
				var mu sync.Mutex
				var winners []*redlock.Lease
				var all sync.WaitGroup
				for _, c := range clients {
					pause := time.Duration(random.Int64N(int64(5 * time.Millisecond)))
					all.Go(func() {
						time.Sleep(pause)
						l, err := c.Adopt(t.Context(), ticket)
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							winners = append(winners, l)
						} else {
							assert.ErrorIs(t, err, redlock.ErrHeld) // mostly ErrTicketUsed, which matches it
						}
					})
				}
				all.Wait()
				if !assert.Len(t, winners, 1, "seed %d: of %d on %d nodes, in round %d", seed, size, nodes, round) {
					return
				}
				require.NoError(t, winners[0].Extend(t.Context()))
				require.NoError(t, winners[0].Release(t.Context()))
			}
		})
		if t.Failed() {
			return
		}
	}
}

// D5: An adopter that hears too few nodes gives the ticket back, also where its own acquire arrived and the answer did
// not, also if its caller or its client ended. The next one adopts it. Nobody else gets in between.
func TestATicketSurvivesAnAdopterThatFails(t *testing.T) {
	for _, caller := range []string{"patient", "impatient", "closing"} {
		t.Run(caller, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 4)
				giver, first, second, third := w.connect(t, 0), w.connect(t, 1), w.connect(t, 2), w.connect(t, 3)
				require.NoError(t, giver.Enroll(t.Context()))
				for _, c := range []*redlock.Client{first, second, third} {
					c.Status(t.Context())
				}
				ticket := ticketOf(t, giver.Mutex("x").WithTTL(30*time.Second))
				stop := waits(t, third, "x")
				time.Sleep(time.Second)
				for _, s := range w.servers {
					s.links[1].hold(replies, +1)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if caller == "impatient" {
					go func() { time.Sleep(50 * time.Millisecond); cancel() }()
				}
				if caller == "closing" {
					go func() { time.Sleep(50 * time.Millisecond); _ = first.Close() }()
				}
				_, err := first.Adopt(ctx, ticket)
				require.ErrorIs(t, err, map[string]error{"patient": redlock.ErrNoQuorum, "impatient": context.Canceled, "closing": redlock.ErrClosed}[caller])
				time.Sleep(100 * time.Millisecond)
				for _, owner := range w.owners("x") {
					require.Equal(t, ticket.Token(), owner, "it has the lock again, on every node")
				}
				taken, err := second.Adopt(t.Context(), ticket)
				require.NoError(t, err)
				for _, s := range w.servers {
					s.links[1].hold(replies, -1)
				}
				time.Sleep(time.Minute)
				require.True(t, taken.Valid())
				for _, owner := range w.owners("x") {
					require.Equal(t, taken.Token(), owner)
				}
				require.NoError(t, taken.Release(t.Context()))
				stop()
			})
		})
	}
}

// D5: An adopter that has a quorum and fails all the same gives the keys back a little later. Others that looked meanwhile
// do not take the ticket for used, and release nothing of what comes back.
func TestATicketIsNotLostWhileAnAdopterThatFailsHasAQuorum(t *testing.T) {
	for _, back := range []string{"at once", "late"} {
		t.Run(back, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 3)
				giver, first, second := all[0], all[1], all[2]
				for _, s := range w.servers {
					s.slow(2, 100*time.Millisecond)
				}
				time.Sleep(time.Minute)
				ticket := ticketOf(t, giver.Mutex("x").WithTTL(30*time.Second))
				hold := func(direction, by int) {
					for _, s := range w.servers {
						s.links[1].hold(direction, by)
					}
				}
				first.Status(t.Context()) // it knows the clocks, and need not ask
				second.Status(t.Context())
				hold(replies, +1)
				ctx, cancel := context.WithCancel(t.Context())
				var failed sync.WaitGroup
				failed.Go(func() {
					_, err := first.Adopt(ctx, ticket)
					assert.ErrorIs(t, err, context.Canceled)
				})
				failed.Go(func() {
					time.Sleep(60 * time.Millisecond) // the second has looked, and its first look is on its way back
					if back == "late" {
						hold(requests, +1)
					}
					cancel()
					hold(replies, -1)
					// Until the second has looked again, NodeTimeout after it heard, and not until its releases arrive.
					time.Sleep(nodeTimeout + 120*time.Millisecond)
					if back == "late" {
						hold(requests, -1)
					}
				})
				taken, err := second.Adopt(t.Context(), ticket)
				failed.Wait()
				if back == "late" {
					require.ErrorIs(t, err, redlock.ErrTicketUsed)
					time.Sleep(time.Second)
					for _, owner := range w.owners("x") {
						require.Equal(t, ticket.Token(), owner)
					}
					taken, err = first.Adopt(t.Context(), ticket)
				}
				require.NoError(t, err)
				time.Sleep(time.Minute)
				for _, owner := range w.owners("x") {
					require.Equal(t, taken.Token(), owner)
				}
				require.NoError(t, taken.Release(t.Context()))
			})
		})
	}
}

// D5: Who gives up while it waits to ask again does not know whether the ticket was used: the other adopter may still fail.
func TestWhoGivesUpDoesNotSayThatATicketWasUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 3)
		ticket := ticketOf(t, all[0].Mutex("x"))
		time.Sleep(time.Millisecond) // so that the next ballots are larger
		for _, s := range w.servers {
			s.links[1].hold(replies, +1) // so the first has the keys of a quorum, and fails
		}
		var failed sync.WaitGroup
		failed.Go(func() {
			_, err := all[1].Adopt(t.Context(), ticket)
			assert.ErrorIs(t, err, redlock.ErrNoQuorum)
		})
		time.Sleep(nodeTimeout / 10)
		ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout/2)
		defer cancel()
		_, err := all[2].Adopt(ctx, ticket)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlock.ErrTicketUsed)
		failed.Wait()
		for _, s := range w.servers {
			s.links[1].hold(replies, -1)
		}
		time.Sleep(time.Second)
		taken, err := all[2].Adopt(t.Context(), ticket)
		require.NoError(t, err)
		require.NoError(t, taken.Release(t.Context()))
	})
}

// owners is what each server has for the key.
func (w *world) owners(key string) (owners []string) {
	for _, s := range w.servers {
		s.mu.Lock()
		owner, _ := s.redis.Get(key)
		s.mu.Unlock()
		owners = append(owners, owner)
	}
	return owners
}

// A ticket that comes too late takes nothing, and says so. Neither does one whose lock somebody has acquired since.
func TestATicketThatComesTooLateTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 3)
		giver, taker, third := w.connect(t, 0), w.connect(t, 1), w.connect(t, 2)
		require.NoError(t, giver.Enroll(t.Context()))
		l, err := giver.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		ticket, err := l.Detach(t.Context())
		require.NoError(t, err)
		require.NoError(t, giver.Close(), "the ticket needs its giver no more")
		time.Sleep(ticket.Expires() - time.Millisecond)
		_, err = third.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		time.Sleep(time.Second)
		_, err = taker.Adopt(t.Context(), ticket)
		require.ErrorIs(t, err, redlock.ErrTicketExpired)
		other, err := third.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.Greater(t, other.Fence(), l.Fence())
		_, err = taker.Adopt(t.Context(), ticket)
		require.ErrorIs(t, err, redlock.ErrTicketUsed)
		require.NoError(t, other.Extend(t.Context()))
		require.NoError(t, other.Release(t.Context()))
	})
}

// A ticket's keys may be on nodes that may not give them to anybody: one that has restarted since, with its data, and is in
// quarantine. They are released when the ticket is adopted. Otherwise they would keep the new lease out.
func TestNothingOfATicketIsLeftWhenItIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, giver, taker := giverAndTaker(t)
		l, err := giver.Mutex("x").WithTTL(30 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context()))
		ticket, err := l.Detach(t.Context())
		require.NoError(t, err)
		w.servers[2].save()
		w.servers[2].stop()
		w.servers[2].start(true)
		time.Sleep(time.Second)
		require.Equal(t, ticket.Token(), w.owners("x")[2])
		taken, err := taker.Adopt(t.Context(), ticket)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, []string{taken.Token(), taken.Token(), ""}, w.owners("x"))
		time.Sleep(time.Minute)
		require.Equal(t, taken.Token(), w.owners("x")[2], "the quarantine is over")
		require.NoError(t, taken.Release(t.Context()))
	})
}

// To adopt a ticket is often the first thing that a process does. Like a try, it waits for nodes that connect more
// slowly than a quorum, if that quorum does not suffice: here one of it is in quarantine.
func TestANewClientAdoptsATicketThoughSomeNodesConnectSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 2)
		giver := w.connect(t, 0)
		require.NoError(t, giver.Enroll(t.Context()))
		l, err := giver.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context()))
		w.servers[0].stop()
		w.servers[0].start(false)
		time.Sleep(2 * time.Second)
		ticket, err := l.Detach(t.Context())
		require.NoError(t, err)
		for _, s := range w.servers[3:] {
			s.slow(1, 100*time.Millisecond)
		}
		taken, err := w.connect(t, 1).Adopt(t.Context(), ticket)
		require.NoError(t, err)
		require.NoError(t, taken.Release(t.Context()))
	})
}

// D5: An adopter that lost gives a key back to the ticket, after another has adopted it. The lease of that one takes the
// key with it when it ends, however it ends.
func TestWhatALateLoserGivesBackGoesWithTheWinnersLease(t *testing.T) {
	for _, end := range []string{"Release", "Close", "Detach"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 3)
				giver, taker, loser := all[0], all[1], all[2]
				l, err := giver.Mutex("x").WithTTL(30 * time.Second).Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Extend(t.Context()))
				synctest.Wait()
				ticket, err := l.Detach(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Second) // ballots grow by the clocks
				for _, s := range w.servers[:2] {
					s.links[2].hold(requests, +1)
				}
				lost := make(chan error, 1)
				go func() {
					_, err := loser.Adopt(t.Context(), ticket)
					lost <- err
				}()
				time.Sleep(10 * time.Millisecond)
				require.NotEqual(t, ticket.Token(), w.owners("x")[2], "the loser has it")
				taken, err := taker.Adopt(t.Context(), ticket)
				require.NoError(t, err)
				require.ErrorIs(t, <-lost, redlock.ErrNoQuorum)
				time.Sleep(10 * time.Millisecond)
				require.Equal(t, ticket.Token(), w.owners("x")[2], "the loser has given it back")
				switch end {
				case "Release":
					require.NoError(t, taken.Release(t.Context()))
				case "Close":
					require.NoError(t, taker.Close())
				case "Detach":
					next, err := taken.Detach(t.Context())
					require.NoError(t, err)
					require.NoError(t, taker.ReleaseToken(t.Context(), "x", next.Token()))
				}
				time.Sleep(10 * time.Millisecond)
				require.Equal(t, []string{"", "", ""}, w.owners("x"))
			})
		})
	}
}

// D4, W2: A waiter meets the ticket on a node where an adopter that lost has put it back, and queues there. The end of the
// lease of the one that won wakes it. (It would ask again by itself only after an hour.)
func TestAWaiterThatMetATicketIsWokenByTheReleaseOfItsAdopter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 4)
		var all []*redlock.Client
		for i := range 4 {
			all = append(all, w.connect(t, i, redlock.LostPoll(time.Hour)))
		}
		giver, winner, loser, waiter := all[0], all[1], all[2], all[3]
		require.NoError(t, giver.Enroll(t.Context()))
		for _, c := range all[1:] {
			c.Status(t.Context())
		}
		name := "x"
		for redlock.ProbeFor(waiter, name) != 0 { // the waiter asks node 1 first
			name += "x"
		}
		l, err := giver.Mutex(name).WithTTL(30 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context()))
		synctest.Wait()
		ticket, err := l.Detach(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second) // ballots grow by the clocks
		for _, s := range w.servers[1:] {
			s.links[2].hold(requests, +1)
		}
		lost := make(chan error, 1)
		go func() {
			_, err := loser.Adopt(t.Context(), ticket)
			lost <- err
		}()
		time.Sleep(10 * time.Millisecond)
		taken, err := winner.Adopt(t.Context(), ticket)
		require.NoError(t, err)
		require.ErrorIs(t, <-lost, redlock.ErrNoQuorum)
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, []string{ticket.Token(), taken.Token(), taken.Token()}, w.owners(name))

		_, err = waiter.Mutex(name).TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld) // from now on it asks one node first
		got := make(chan *redlock.Lease, 1)
		go func() {
			l, err := waiter.Mutex(name).Acquire(t.Context())
			assert.NoError(t, err)
			got <- l
		}()
		time.Sleep(time.Second)
		require.Empty(t, got)
		require.Equal(t, ticket.Token(), w.owners(name)[0], "it waits there")
		released := time.Now()
		require.NoError(t, taken.Release(t.Context()))
		next := <-got
		require.Less(t, time.Since(released), 100*time.Millisecond)
		require.NoError(t, next.Release(t.Context()))
	})
}

// D4: Of several names, one may have expired and another be taken. The ticket was used, and not only late.
func TestATicketOfWhichAnotherHasOneNameIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		ticket := ticketOf(t, all[0].Mutex("x", "y"))
		synctest.Wait()
		for _, s := range w.servers {
			s.redis.Del("x")
			s.redis.Del("y")
		}
		other, err := all[1].Mutex("y").Acquire(t.Context())
		require.NoError(t, err)
		_, err = all[1].Adopt(t.Context(), ticket)
		require.ErrorIs(t, err, redlock.ErrTicketUsed)
		require.NoError(t, other.Release(t.Context()))
	})
}

// D4, R1: A server's clock was set back, and is set right again. The key then lives as long as the adopter relies on it.
func TestAnAdopterNeverMakesAKeysTimeShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		ticket := ticketOf(t, all[0].Mutex("x"))
		synctest.Wait()
		for _, s := range w.servers {
			s.step(-5 * time.Second)
		}
		l, err := all[1].Adopt(t.Context(), ticket)
		require.NoError(t, err)
		synctest.Wait()
		for _, s := range w.servers {
			s.step(5 * time.Second)
			require.Greater(t, s.timeToLive("x"), l.Remaining())
		}
		require.NoError(t, l.Release(t.Context()))
	})
}

// D3, R1: A node that was planted and is in quarantine gets no ticket: who adopts that could not count it either.
func TestATicketNeedsAQuorumOfNodesThatForgotNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, giver, _ := giverAndTaker(t)
		l, err := giver.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context()))
		synctest.Wait()
		w.servers[2].flush()
		require.NoError(t, l.Extend(t.Context()))
		synctest.Wait()
		require.Equal(t, l.Token(), w.owners("x")[2], "planted")
		for _, s := range w.servers {
			s.slow(0, 20*time.Millisecond)
		}
		go func() { // the renewal takes 20 ms, and the swap is on its way then
			time.Sleep(25 * time.Millisecond)
			w.servers[0].links[0].hold(requests, +1)
		}()
		_, err = l.Detach(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "not asked, since it may have forgotten locks, or its clock may be wrong [node-3]")
		w.servers[0].links[0].hold(requests, -1)
		time.Sleep(time.Second)
		require.Equal(t, []string{"", "", ""}, w.owners("x"), "it was released")
	})
}

// D4: Nobody adopts a ticket as a reader, or as a holder of permits. Where these have the lock, the ticket is of no use any more.
func TestATicketOfWhichReadersHaveTheLockIsUsed(t *testing.T) {
	for kind, lock := range map[string]func(*redlock.Client) redlock.Lock{
		"readers": func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() },
		"permits": func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 2) },
	} {
		for _, away := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, a node is away: %v", kind, away), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, all := enrolled(t, 2)
					ticket := ticketOf(t, all[0].Mutex("x"))
					time.Sleep(11 * time.Second)
					sharer, err := lock(all[0]).Acquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, sharer.Extend(t.Context()))
					synctest.Wait()
					if away {
						w.servers[2].stop()
					}
					_, err = all[1].Adopt(t.Context(), ticket)
					require.ErrorIs(t, err, redlock.ErrTicketUsed)
					require.ErrorContains(t, err, "held by ")
					require.ErrorContains(t, err, kind)
					require.NoError(t, sharer.Release(t.Context()))
				})
			})
		}
	}
}

// D4: The ticket is gone everywhere. What is left of a reader on one node does not make somebody the owner.
func TestATicketOfWhichAReaderHasOneNodeIsExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		ticket := ticketOf(t, all[0].Mutex("x"))
		time.Sleep(11 * time.Second)
		reader, err := all[0].RWMutex("x").Reader().Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, reader.Extend(t.Context()))
		synctest.Wait()
		w.servers[1].tell("DEL", "x")
		w.servers[2].tell("DEL", "x")
		require.ErrorIs(t, reader.Extend(t.Context()), redlock.ErrLost)
		_, err = all[1].Adopt(t.Context(), ticket)
		require.ErrorIs(t, err, redlock.ErrTicketExpired)
	})
}
