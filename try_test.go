package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// contest has each client try the name at the same moment, and returns the winners. All others must get ErrHeld.
func contest(t *testing.T, clients []*redlock.Client, name string) (winners []*redlock.Lease) {
	locks := make([]redlock.Lock, len(clients))
	for i, c := range clients {
		locks[i] = c.Mutex(name)
	}
	return contestFor(t, locks...)
}

// contestFor has all of them tried at the same moment, and returns the leases. All others must get ErrHeld.
func contestFor(t *testing.T, locks ...redlock.Lock) (winners []*redlock.Lease) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	start := make(chan struct{})
	for _, lock := range locks {
		wg.Go(func() {
			<-start
			l, err := lock.TryAcquire(context.Background())
			if err != nil {
				assert.ErrorIs(t, err, redlock.ErrHeld)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			winners = append(winners, l)
		})
	}
	close(start)
	wg.Wait()
	return winners
}

// T2: If nobody won, a job that must run once would miss a tick, or two customers would both hear that the last seat is
// taken.
func TestOfSeveralWhoTryAFreeLockAtOnceExactlyOneGetsIt(t *testing.T) {
	for _, nodes := range []int{3, 4, 5} {
		for _, dead := range []int{0, 1} {
			t.Run(fmt.Sprintf("nodes=%d dead=%d", nodes, dead), func(t *testing.T) {
				f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: nodes})
				clients := make([]*redlock.Client, 16)
				for i := range clients {
					clients[i] = open(t, f, patient)
				}
				for _, n := range f.Nodes()[:dead] {
					require.NoError(t, n.Kill())
				}
				rounds := trials(8)
				for _, size := range []int{2, 3, 4, 5, 8, 16} {
					for i := range rounds {
						name := fmt.Sprint("free/", size, "/", i%3) // names come again, so that the clients know some as contended
						winners := contest(t, clients[:size], name)
						require.Len(t, winners, 1, "of %d who tried, in round %d", size, i)
						require.NoError(t, winners[0].Release(soon(t)))
					}
				}
			})
		}
	}
}

func TestOfSeveralProcessesThatTryToDoWorkAtOnceOneDoesIt(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	clients := []*redlock.Client{open(t, f, patient), open(t, f, patient), open(t, f, patient)}
	for round := range trials(60) {
		var ran, over atomic.Int64
		start, all := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() {
				<-start
				did, err := c.Mutex(fmt.Sprint("tick/", round)).TryDo(context.Background(), func(context.Context, *redlock.Lease) error {
					if over.Add(1) == int64(len(clients)) {
						close(all)
					}
					<-all // until the others have their answers
					return nil
				})
				assert.NoError(t, err)
				if did {
					ran.Add(1)
				} else if over.Add(1) == int64(len(clients)) {
					close(all)
				}
			})
		}
		close(start)
		wg.Wait()
		require.EqualValues(t, 1, ran.Load(), "round %d", round)
	}
}

// T3: A lock that is released to a waiter is reserved on one node alone, so a try could win a quorum of the others. The
// waiter must get its turn all the same.
func TestAWaiterGetsItsTurnAmongThoseWhoTry(t *testing.T) {
	for _, oneWay := range []time.Duration{0, 2 * time.Millisecond, 15 * time.Millisecond} {
		t.Run(oneWay.String(), func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
			waiter := open(t, f, patient)
			stop, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			var wins atomic.Int64
			for range 8 {
				c := open(t, f, patient)
				wg.Go(func() {
					for stop.Err() == nil {
						l, err := c.Mutex("x").TryAcquire(context.Background())
						if err == nil {
							wins.Add(1)
							time.Sleep(5 * time.Millisecond)
							_ = l.Release(context.Background())
						} else {
							assert.ErrorIs(t, err, redlock.ErrHeld)
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			for _, n := range f.Nodes() {
				require.NoError(t, n.Delay(oneWay))
			}
			const turns = 20
			begun := time.Now()
			before := wins.Load()
			for range turns {
				l, err := waiter.Mutex("x").Acquire(soon(t))
				require.NoError(t, err)
				require.NoError(t, l.Release(soon(t)))
			}
			t.Logf("%d turns in %v; those who try had %d in that time", turns, time.Since(begun), wins.Load()-before)
			require.Less(t, wins.Load()-before, int64(20*turns), "it waits for some of the others, not for all of them")
		})
	}
}

// T3: A try that has a quorum without the node that reserved the lock leaves the lock to the waiter.
func TestATryLeavesALockThatIsReserved(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f, redlock.NeverSlow, patient), soon(t)
		first := f.Nodes()[redlock.ProbeFor(c, "x")]
		// It waits for that node's answer no longer than a few round trips, so on a busy machine it may not learn of it.
		try := func() (*redlock.Lease, error) {
			tell(t, first, "SET", "x", "next:0123456789abcdef0123456789abcdef", "PX", 9_000) // as no reservation lasts longer
			return c.Mutex("x").TryAcquire(ctx)
		}
		l, err := try()
		for err == nil {
			require.NoError(t, l.Release(ctx))
			l, err = try()
		}
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.ErrorContains(t, err, "waiter")
		var denial *redlock.Denial
		require.ErrorAs(t, err, &denial)
		require.Equal(t, redlock.ReasonReserved, denial.Reason)
		require.Empty(t, denial.Owner)
		tell(t, first, "DEL", "x")
		l, err = c.Mutex("x").TryAcquire(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Release(ctx))
	})
}

// T3: So does the first round of an Acquire, if that node's answer is there when the round has its quorum.
func TestANewcomerLeavesALockThatIsReserved(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	refused := make(chan error, 100)
	c := open(t, f, redlock.NeverSlow, redlock.LostPoll(100*time.Millisecond), patient, func(cfg *redlock.Config) {
		cfg.Hooks.Refused = func(_ []string, err error) { refused <- err }
	})
	first := redlock.ProbeFor(c, "x")
	tell(t, f.Nodes()[first], "SET", "x", "next:0123456789abcdef0123456789abcdef", "PX", 9_000)
	delayOthers := func(oneWay time.Duration) {
		for i, n := range f.Nodes() {
			if i != first {
				require.NoError(t, n.Delay(oneWay))
			}
		}
	}
	delayOthers(300 * time.Millisecond) // so that the first node's answer is there
	newcomer := begin(t, c, "x")
	select {
	case err := <-refused:
		require.ErrorContains(t, err, "waiter's turn")
	case l := <-newcomer.got:
		require.Nil(t, l, "it took a lock that was reserved")
		t.Fatal("it gave up")
	}
	delayOthers(0)
	tell(t, f.Nodes()[first], "DEL", "x")
	require.NoError(t, newcomer.has(t).Release(soon(t)))
}

// A try does not wait for itself, as an Acquire would.
func TestATryUnderAContextThatHoldsTheLockIsHeld(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, ctx := open(t, f), soon(t)
	require.NoError(t, c.Mutex("x").Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
		_, err := c.Mutex("x").TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NotErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorAs(t, err, new(*redlock.RoundError))
		_, err = c.Mutex("x", "y").Reentrant().TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		ran, err := c.Mutex("x").TryDo(ctx, func(context.Context, *redlock.Lease) error { return errors.New("ran") })
		require.NoError(t, err)
		require.False(t, ran)
		_, err = c.Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		return nil
	}))
}

// A try does not ask again later. So where the servers have forgotten the script, it asks once more, behind its loading.
func TestATryLoadsAScriptThatTheServersForgot(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c := open(t, f)
		for i, lock := range []redlock.Lock{c.Mutex("m"), c.Mutex("f").Fair(), c.Semaphore("s", 2), c.RWMutex("r").Reader()} {
			for _, n := range f.Nodes() {
				tell(t, n, "SCRIPT", "FLUSH")
			}
			l, err := lock.TryAcquire(soon(t))
			require.NoError(t, err, "lock %d", i)
			require.NoError(t, l.Release(soon(t)))
		}
	})
}
