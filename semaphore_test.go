package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestNoMoreLeasesThanPermits(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f, unasked), open(t, f, unasked), soon(t)
		var held []*redlock.Lease
		for i := range 5 {
			c := []*redlock.Client{a, b}[i%2]
			l, err := c.Semaphore("x", 5).Acquire(ctx)
			require.NoError(t, err)
			held = append(held, l)
		}
		_, err := b.Semaphore("x", 5).TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		state, err := a.Inspect(ctx, "x")
		require.NoError(t, err)
		require.True(t, state.Held)
		require.Len(t, state.Sharers, 5)
		slots := map[int]bool{}
		for _, s := range state.Sharers {
			require.Equal(t, 5, s.Permits)
			slots[s.Slots[0]] = true
		}
		require.Len(t, slots, 5)
		done := waitsFor(t, ctx, b, b.Semaphore("x", 5), 1)
		allQueued(t, f, "x", 1)
		require.NoError(t, held[2].Release(ctx))
		l := <-done
		require.NotNil(t, l)
		held[2] = l
		for _, l := range held {
			require.NoError(t, l.Release(ctx))
		}
		clears(t, f, "x")
	})
}

// S5: A release hands its permit to the first waiter. There is one node and so one queue.
func TestPermitsGoToWaitersInOrder(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 1}, func(t *testing.T, f *fleet.Fleet) {
		ctx := soon(t)
		a := open(t, f, unasked)
		var held []*redlock.Lease
		for range 2 {
			l, err := a.Semaphore("x", 2).Acquire(ctx)
			require.NoError(t, err)
			held = append(held, l)
		}
		var got []<-chan *redlock.Lease
		for i := range 4 {
			c := open(t, f, unasked)
			got = append(got, waitsFor(t, ctx, c, c.Semaphore("x", 2), 1))
			allQueued(t, f, "x", i+1)
		}
		for i := range got {
			require.NoError(t, held[i].Release(ctx))
			l := <-got[i]
			require.NotNil(t, l, "waiter %d", i)
			held = append(held, l)
		}
		for _, l := range held[len(got):] {
			require.NoError(t, l.Release(ctx))
		}
		clears(t, f, "x")
	})
}

// S6: A client with fewer permits gets one only while fewer than that are taken, and is told of how many others know.
func TestClientsWithDifferentNumbersOfPermits(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f), open(t, f), soon(t)
		var held []*redlock.Lease
		for range 5 {
			l, err := a.Semaphore("x", 5).Acquire(ctx)
			require.NoError(t, err)
			require.NoError(t, l.Extend(ctx))
			held = append(held, l)
		}
		for len(held) > 1 {
			_, err := b.Semaphore("x", 2).TryAcquire(ctx)
			require.ErrorIs(t, err, redlock.ErrHeld, "%d are taken", len(held))
			var denial *redlock.Denial
			require.ErrorAs(t, err, &denial)
			require.Equal(t, 5, denial.Permits)
			require.NoError(t, held[0].Release(ctx))
			held = held[1:]
			for _, n := range f.Nodes() {
				require.Eventually(t, func() bool { return tell(t, n, "ZCARD", "x") == int64(len(held)) }, 5*time.Second, time.Millisecond)
			}
		}
		l, err := b.Semaphore("x", 2).TryAcquire(ctx)
		require.NoError(t, err)
		_, err = b.Semaphore("x", 2).TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, l.Release(ctx))
		require.NoError(t, held[0].Release(ctx))
		clears(t, f, "x")
	})
}

// T3: A try leaves a permit that is reserved for a waiter.
func TestATryLeavesAPermitThatIsReserved(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f, redlock.NeverSlow, patient), soon(t)
		keep, err := c.Semaphore("x", 2).Acquire(ctx)
		require.NoError(t, err)
		spreadEntries(t, f, keep)
		state, err := c.Inspect(ctx, "x")
		require.NoError(t, err)
		first := f.Nodes()[redlock.ProbeFor(c, "x")]
		reserved := fmt.Sprintf("permit %d/2 next:0123456789abcdef0123456789abcdef", 1-state.Sharers[0].Slots[0])
		tell(t, first, "ZADD", "x", time.Now().Add(time.Minute).UnixMicro(), reserved)
		l, err := c.Semaphore("x", 2).TryAcquire(ctx)
		for err == nil { // on a busy machine it may not hear that node in time
			require.NoError(t, l.Release(ctx))
			l, err = c.Semaphore("x", 2).TryAcquire(ctx)
		}
		require.ErrorIs(t, err, redlock.ErrHeld)
		tell(t, first, "ZREM", "x", reserved)
		l, err = c.Semaphore("x", 2).TryAcquire(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Release(ctx))
		require.NoError(t, keep.Release(ctx))
		clears(t, f, "x")
	})
}

// spreadEntries has the lease renewed, and waits until every node has an entry for it (R2).
func spreadEntries(t *testing.T, f *fleet.Fleet, l *redlock.Lease) {
	t.Helper()
	require.NoError(t, l.Extend(soon(t)))
	for _, n := range f.Nodes() {
		require.Eventually(t, func() bool { return tell(t, n, "ZCARD", l.Names()[0]) == int64(1) }, 5*time.Second, time.Millisecond)
	}
}

func TestSeveralPermitsAtOnceAllOrNone(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f), open(t, f), soon(t)
		three, err := a.Semaphore("x", 5).WithPermits(3).Acquire(ctx)
		require.NoError(t, err)
		_, err = b.Semaphore("x", 5).WithPermits(3).TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		two, err := b.Semaphore("x", 5).WithPermits(2).TryAcquire(ctx)
		require.NoError(t, err, "whatever slots are free")
		_, err = a.Semaphore("x", 5).TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		state, err := a.Inspect(ctx, "x")
		require.NoError(t, err)
		require.Len(t, state.Sharers, 2)
		require.Len(t, append(state.Sharers[0].Slots, state.Sharers[1].Slots...), 5)
		got := waitsFor(t, ctx, b, b.Semaphore("x", 5).WithPermits(3), 1)
		require.NoError(t, three.Release(ctx))
		l := <-got
		require.NotNil(t, l)
		require.NoError(t, l.Release(ctx))
		require.NoError(t, two.Release(ctx))
		clears(t, f, "x")
	})
}

// A lease of one permit must not be taken for one of three.
func TestReentryNeedsAsManyPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enrolled(t, 1)
		c := all[0]
		lock := c.Semaphore("x", 5).Reentrant()
		two, err := lock.WithPermits(2).Acquire(t.Context())
		require.NoError(t, err)
		for n := range 2 {
			again, err := lock.WithPermits(n + 1).Acquire(two.Context())
			require.NoError(t, err)
			require.Equal(t, two.Token(), again.Token())
			require.NoError(t, again.Release(t.Context()))
		}
		_, err = lock.WithPermits(3).Acquire(two.Context())
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, "2 of the permits")
		_, err = lock.WithPermits(3).TryAcquire(two.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, two.Release(t.Context()))
	})
}

// S1: Of many that try at once, some get a permit, and never more than there are. Afterwards nothing is left.
func TestOfManyWhoTryForPermitsSomeGetOne(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		var clients []*redlock.Client
		for range 6 {
			clients = append(clients, open(t, f, func(cfg *redlock.Config) { cfg.NodeTimeout = time.Second }))
		}
		for round := range 20 {
			name := fmt.Sprint("x", round)
			var mu sync.Mutex
			var won []*redlock.Lease
			var lost []error
			var all sync.WaitGroup
			for _, c := range clients {
				all.Go(func() {
					l, err := c.Semaphore(name, 2).TryAcquire(soon(t))
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						lost = append(lost, err)
						return
					}
					won = append(won, l)
				})
			}
			all.Wait()
			require.NotEmpty(t, won, "%v", lost)
			require.LessOrEqual(t, len(won), 2)
			for _, l := range won {
				require.NoError(t, l.Release(soon(t)))
			}
			clears(t, f, name)
		}
	})
}

// A majority for each permit, which each node counts by itself, is not safe: of three nodes, holders on {1,2}, {2,3} and
// {1,3} are three holders of two permits. A slot that is the same on all nodes is (S1).
func TestAMajorityForEachPermitIsNotEnough(t *testing.T) {
	for _, sameSlot := range []bool{true, false} {
		t.Run(fmt.Sprint("the same slot on all nodes: ", sameSlot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 3)
				var clients []*redlock.Client
				for i := range 3 {
					clients = append(clients, w.connect(t, i, func(cfg *redlock.Config) {
						if !sameSlot {
							redlock.Switches["one slot on all nodes"].Off(cfg)
						}
					}))
				}
				require.NoError(t, clients[0].Enroll(t.Context()))
				for i, c := range clients { // each is cut off from one node, another one each time
					require.Empty(t, c.Status(t.Context())[i].Err)
					w.servers[i].links[i].hold(requests, 1)
					defer w.servers[i].links[i].hold(requests, -1)
				}
				valid := 0
				for _, c := range clients {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					l, err := c.Semaphore("x", 2).Acquire(ctx)
					cancel()
					if err != nil {
						require.ErrorIs(t, err, redlock.ErrHeld)
						continue
					}
					defer l.Release(context.Background())
					valid++
				}
				if sameSlot {
					require.LessOrEqual(t, valid, 2)
				} else {
					require.Equal(t, 3, valid)
				}
			})
		})
	}
}

func TestWrongUsesOfLocksThatSeveralShareAreToldAtOnce(t *testing.T) {
	c, ctx := open(t, fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})), soon(t)
	for name, l := range map[string]redlock.Lock{
		"no permits":             c.Semaphore("x", 0),
		"too many permits":       c.Semaphore("x", 1001),
		"more than there are":    c.Semaphore("x", 2).WithPermits(3),
		"none":                   c.Semaphore("x", 2).WithPermits(0),
		"permits of a mutex":     c.Mutex("x").WithPermits(1),
		"permits of a reader":    c.RWMutex("x").Reader().WithPermits(1),
		"a reader's least hold":  c.RWMutex("x").Reader().WithMinHold(time.Second),
		"a permit's least hold":  c.Semaphore("x", 2).WithMinHold(time.Second),
		"a reader's wrong TTL":   c.RWMutex("x").Reader().WithTTL(time.Hour),
		"an empty name":          c.RWMutex("").Reader(),
		"a name of this library": c.Semaphore("redlock:shared:x", 2),
	} {
		_, err := l.Acquire(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalid, name)
		_, err = l.TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalid, name)
	}
}

// S6: A slot above those of the waiter's semaphore may become free, and be reserved for it. It does not take that slot, and
// the next waiter, which can, has it at once.
func TestAWaiterTakesNoSlotThatItsSemaphoreDoesNotHave(t *testing.T) {
	const permits = 4
	synctest.Test(t, func(t *testing.T) {
		_, c := fairClients(t, 3, 4)
		bySlot := slotsTaken(t, c[0], permits)
		few := []waiting{awaits(t, c[1].Semaphore("x", 1)), awaits(t, c[2].Semaphore("x", 1))}
		enough := awaits(t, c[3].Semaphore("x", permits))
		began := time.Now()
		require.NoError(t, bySlot[permits-1].Release(t.Context()))
		bySlot[permits-1] = <-enough.got
		require.NotNil(t, bySlot[permits-1])
		require.Less(t, time.Since(began), 50*time.Millisecond)
		for _, w := range few {
			require.Empty(t, w.got)
			w.giveUp()
			require.Nil(t, <-w.got)
		}
		state, err := c[0].Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Len(t, state.Sharers, permits)
		for _, l := range bySlot {
			require.NoError(t, l.Release(t.Context()))
		}
	})
}

// A waiting is a call of Acquire that goes on. got has its lease, and is closed when it has ended.
type waiting struct {
	got    chan *redlock.Lease
	giveUp context.CancelFunc
}

// awaits begins an Acquire in virtual time, and returns when it has had the time to enter the queues.
func awaits(t *testing.T, lock redlock.Lock) waiting {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	w := waiting{make(chan *redlock.Lease, 1), cancel}
	go func() {
		defer close(w.got)
		if l, err := lock.Acquire(ctx); err == nil {
			w.got <- l
		}
	}()
	time.Sleep(100 * time.Millisecond)
	return w
}

// S6: When nobody is left who knows of more permits, there are no more leases than permits, whatever slots were free on the
// way there.
func TestNoMoreLeasesThanPermitsOnceAllKnowOfFewer(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			const permits = 2
			w, c := fairClients(t, 3, 4)
			bySlot := slotsTaken(t, c[0], permits+1)
			require.NoError(t, bySlot[1].Release(t.Context()))
			time.Sleep(time.Second)
			for i := range 3 { // each of the others is cut off from another node
				w.servers[i].links[i+1].hold(requests, +1)
				defer w.servers[i].links[i+1].hold(requests, -1)
			}
			all := []waiting{awaits(t, c[1].Semaphore("x", permits))}
			time.Sleep(500 * time.Millisecond)
			require.NoError(t, bySlot[permits].Release(t.Context()))
			time.Sleep(2 * time.Second)
			require.NoError(t, bySlot[0].Release(t.Context()))
			require.NoError(t, c[0].Close())
			all = append(all, awaits(t, c[2].Semaphore("x", permits)), awaits(t, c[3].Semaphore("x", permits)))
			time.Sleep(2 * time.Second)
			valid := 0
			for _, w := range all {
				w.giveUp()
				if l := <-w.got; l != nil {
					valid++
					defer l.Release(context.Background())
				}
			}
			require.Positive(t, valid)
			require.LessOrEqual(t, valid, permits)
		})
	}
}

// slotsTaken has the client take all permits on all nodes. It returns the lease of each slot.
func slotsTaken(t *testing.T, c *redlock.Client, permits int) map[int]*redlock.Lease {
	t.Helper()
	bySlot := map[int]*redlock.Lease{}
	for range permits {
		l, err := c.Semaphore("x", permits).Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context()))
		synctest.Wait()
		state, err := c.Inspect(t.Context(), "x")
		require.NoError(t, err)
		for _, s := range state.Sharers {
			if s.Token == l.Token() {
				bySlot[s.Slots[0]] = l
			}
		}
	}
	require.Len(t, bySlot, permits)
	return bySlot
}

// W1, S5: An Acquire of all permits may wait for ever beside others that want fewer. It does not take along those of its
// process, nor does one that knows of fewer permits.
func TestWhoWantsAPermitDoesNotQueueInItsProcessBehindWhoCannotGetAny(t *testing.T) {
	for name, ahead := range map[string]func(*redlock.Client) redlock.Lock{
		"all permits":   func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 3).WithPermits(3) },
		"fewer permits": func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c := fairClients(t, 3, 3)
				stop := readSteadily([]redlock.Lock{c[1].Semaphore("x", 3), c[2].Semaphore("x", 3)}, 400*time.Millisecond)
				patience, giveUp := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() {
					_, err := ahead(c[0]).Acquire(patience)
					ended <- err
				}()
				time.Sleep(time.Second)
				for range 10 {
					began := time.Now()
					l, err := c[0].Semaphore("x", 3).Acquire(soon(t))
					require.NoError(t, err)
					require.Less(t, time.Since(began), 50*time.Millisecond, "one of three is free all the time")
					time.Sleep(100 * time.Millisecond)
					require.NoError(t, l.Release(t.Context()))
				}
				giveUp()
				require.ErrorIs(t, <-ended, context.Canceled)
				stop()
			})
		})
	}
}

// W1, S5: Waiters of one process for different numbers of permits are queued under one id. A grant to one of them takes it
// out of the queue; the others enter it again.
func TestAWaiterForSeveralPermitsIsStillQueuedAfterItsProcessGotOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := fairClients(t, 3, 2)
		bySlot := slotsTaken(t, c[0], 3)
		require.NoError(t, bySlot[0].Release(t.Context()))
		two := awaits(t, c[1].Semaphore("x", 3).WithPermits(2))
		one, err := c[1].Semaphore("x", 3).Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(200 * time.Millisecond)
		several := getsSeveral(t, two, bySlot[1], bySlot[2])
		require.NoError(t, one.Release(t.Context()))
		require.NoError(t, several.Release(t.Context()))
	})
}

// getsSeveral releases these permits, and demands that the waiter gets them soon.
func getsSeveral(t *testing.T, waiter waiting, permits ...*redlock.Lease) *redlock.Lease {
	began := time.Now()
	for _, permit := range permits {
		require.NoError(t, permit.Release(t.Context()))
	}
	several := <-waiter.got
	require.NotNil(t, several)
	require.Less(t, time.Since(began), 150*time.Millisecond)
	return several
}

// W1, S5: The same if the waiter for one gives up while a node has granted it the permit, and others have not answered yet.
func TestAWaiterForSeveralPermitsIsStillQueuedAfterAnotherOfItsProcessGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := fairClients(t, 3, 2)
		bySlot := slotsTaken(t, c[0], 3)
		require.NoError(t, bySlot[0].Release(t.Context()))
		two := awaits(t, c[1].Semaphore("x", 3).WithPermits(2))
		first := redlock.ProbeFor(c[1], "x")
		for i, s := range w.servers {
			if i != first {
				s.links[1].hold(replies, +1)
			}
		}
		one := awaits(t, c[1].Semaphore("x", 3))
		one.giveUp()
		require.Nil(t, <-one.got)
		for i, s := range w.servers {
			if i != first {
				s.links[1].hold(replies, -1)
			}
		}
		time.Sleep(200 * time.Millisecond)
		require.Empty(t, two.got)
		require.NoError(t, getsSeveral(t, two, bySlot[1], bySlot[2]).Release(t.Context()))
	})
}
