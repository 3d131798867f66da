package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// F1: Clients near the nodes raise a fence slot all the time, with locks that do not exclude that of a client far away. Its
// ballots are old when they come.

// sharesSlot is another name, with the fence slot of this one.
func sharesSlot(name string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("other-", i); redlock.FenceSlot(other) == redlock.FenceSlot(name) {
			return other
		}
	}
}

// busy has the client acquire the lock about every 5 ms, and keep each lease for a while, until stop is called.
func busy(c *redlock.Client, lock redlock.Lock, hold time.Duration) (stop func()) {
	random := rand.New(rand.NewPCG(1, 13))
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(random.ExpFloat64() * float64(5*time.Millisecond))):
			}
			all.Go(func() {
				if l, err := lock.Acquire(ctx); err == nil {
					time.Sleep(hold)
					_ = l.Release(context.Background())
				}
			})
		}
	})
	return func() { cancel(); all.Wait() }
}

// A reader, or who wants one of many permits, was refused for as long as others came and went nearby; and so was whoever wanted
// a lock whose name shares the fence slot with theirs.
func TestAFarClientIsNotOutbidForEver(t *testing.T) {
	const roundTrip = 150 * time.Millisecond
	other := sharesSlot("x")
	readers := func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }
	permits := func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 100) }
	mutex := func(c *redlock.Client) redlock.Lock { return c.Mutex(other) }
	fair := func(c *redlock.Client) redlock.Lock { return c.Mutex(other).Fair() }
	for kind, c := range map[string]struct {
		near, far func(*redlock.Client) redlock.Lock
	}{
		"reader":             {readers, readers},
		"permit":             {permits, permits},
		"mutex of that slot": {readers, mutex},
		"fair, of that slot": {readers, fair},
		"contended":          {readers, mutex},
		"hand-over":          {readers, mutex},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, clients := enrolled(t, 2)
				near, far := clients[0], clients[1]
				for _, s := range w.servers {
					s.slow(0, time.Millisecond)
					s.slow(1, roundTrip)
				}
				time.Sleep(10 * time.Second)
				defer busy(near, c.near(near), 20*time.Millisecond)()
				time.Sleep(200 * time.Millisecond)
				got := func(l *redlock.Lease, err error) {
					require.NoError(t, err)
					ahead := time.Duration(int64(l.Fence())-time.Now().UnixMicro()) * time.Microsecond
					require.Less(t, ahead, roundTrip, "ahead of the clocks")
					require.NoError(t, l.Release(t.Context()))
				}
				for range 2 {
					if kind == "contended" { // its first attempt asks one node first, so that it comes to the others later still
						held, err := c.far(near).Acquire(t.Context())
						require.NoError(t, err)
						_, err = c.far(far).TryAcquire(t.Context())
						require.ErrorIs(t, err, redlock.ErrHeld)
						require.NoError(t, held.Release(t.Context()))
					}
					ctx, cancel := context.WithTimeout(t.Context(), 8*roundTrip)
					switch kind {
					case "hand-over":
						l, err := c.far(near).Acquire(ctx)
						require.NoError(t, err)
						ticket, err := l.Detach(ctx)
						require.NoError(t, err)
						got(far.Adopt(ctx, ticket))
					case "contended":
						got(c.far(far).Acquire(ctx))
					default:
						got(c.far(far).TryAcquire(ctx))
						got(c.far(far).Acquire(ctx))
					}
					cancel()
				}
			})
		})
	}
}

// A waiter far away has its turn for a permit by a reservation that ends soon. It knows by then that its ballots come late: it
// lost one turn after the other, because it came with the next ballot when the reservation was over.
func TestAFarWaiterForAPermitHasItsTurn(t *testing.T) {
	const permits, roundTrip = 4, 90 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w, c := enrolled(t, 3)
		for _, s := range w.servers {
			s.slow(0, time.Millisecond)
			s.slow(1, time.Millisecond)
			s.slow(2, roundTrip)
		}
		time.Sleep(10 * time.Second)
		for i := range 2 {
			for range 2 * permits { // so the permits are always taken
				defer busy(c[i], c[i].Semaphore("x", permits), 12*time.Millisecond)()
			}
		}
		time.Sleep(time.Second)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			l, err := c[2].Semaphore("x", permits).Acquire(ctx)
			cancel()
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
		}
	})
}

// Many clients nearby, and some far away that come again and again: nobody is outbid for ever, and ballots do not run away from
// the clocks. When a ballot doubled its lead each time, those nearby led too, and slots were ahead of the clocks all the time.
func TestClientsDoNotOutbidEachOtherForEver(t *testing.T) {
	const near, far = 40, 2
	synctest.Test(t, func(t *testing.T) {
		w, clients := enrolled(t, near+far)
		random := rand.New(rand.NewPCG(1, 13))
		for i := range clients {
			for _, s := range w.servers {
				trip := time.Duration(500+random.IntN(1500)) * time.Microsecond
				if i >= near {
					trip = time.Duration(100+random.IntN(100)) * time.Millisecond
				}
				s.slow(i, trip)
			}
		}
		time.Sleep(10 * time.Second)
		until := time.Now().Add(3 * time.Second)
		var all sync.WaitGroup
		for i, c := range clients {
			random := rand.New(rand.NewPCG(uint64(i), 5))
			all.Go(func() {
				leases := 0
				defer func() {
					if leases < 3 {
						t.Errorf("client %d got %d leases", i, leases)
					}
				}()
				for ; time.Now().Before(until); leases++ {
					if i < near {
						time.Sleep(time.Duration(random.ExpFloat64() * float64(40*time.Millisecond)))
					}
					began := time.Now()
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					l, err := c.RWMutex("x").Reader().Acquire(ctx)
					cancel()
					if err != nil {
						t.Errorf("client %d: %v", i, err)
						return
					}
					if took := time.Since(began); i < near && took > 500*time.Millisecond {
						t.Errorf("client %d waited for %v", i, took)
					}
					if ahead := time.Duration(int64(l.Fence())-time.Now().UnixMicro()) * time.Microsecond; ahead > 200*time.Millisecond {
						t.Errorf("client %d has a fencing token %v ahead of the clocks", i, ahead)
					}
					_ = l.Release(context.Background())
				}
			})
		}
		all.Wait()
	})
}
