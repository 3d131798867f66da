package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func numbered(count int) (names []string) {
	for i := range count {
		names = append(names, fmt.Sprint("item/", i))
	}
	return names
}

func TestABatchRunsEachItemUnderItsLock(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		var running, most atomic.Int32
		bad := errors.New("bad item")
		var mu sync.Mutex
		var done []string
		items := numbered(40)
		errs := redlock.Each(ctx, items, 8, func(name string) redlock.Lock { return c.Mutex(name) }, func(ctx context.Context, name string) error {
			now := running.Add(1)
			defer running.Add(-1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			l, ok := redlock.LeaseFrom(ctx)
			assert.True(t, ok)
			assert.Equal(t, []string{name}, l.Names())
			assert.True(t, l.Valid())
			time.Sleep(time.Millisecond)
			mu.Lock()
			done = append(done, name)
			mu.Unlock()
			if name == "item/7" {
				return bad
			}
			return nil
		}, redlock.Wait)
		require.LessOrEqual(t, most.Load(), int32(8))
		require.Greater(t, most.Load(), int32(1))
		require.Len(t, errs, 40)
		for i, err := range errs {
			if i == 7 {
				require.ErrorIs(t, err, bad)
			} else {
				require.NoError(t, err)
			}
		}
		slices.Sort(done)
		slices.Sort(items)
		require.Equal(t, items, done)
		for _, name := range items {
			clears(t, f, name)
		}
		require.Empty(t, redlock.Each(ctx, nil, 3, func(string) redlock.Lock { panic("no item") }, nil, redlock.Wait))
	})
}

// Items that are held do not hold up the others: they are waited for at the end.
func TestABatchWaitsForHeldItemsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		c, other := w.connect(t, 0), w.connect(t, 1)
		require.NoError(t, c.Enroll(t.Context()))
		other.Status(t.Context())
		items := numbered(10)
		var held []*redlock.Lease
		for _, name := range items[:4] {
			l, err := other.Mutex(name).Acquire(t.Context())
			require.NoError(t, err)
			held = append(held, l)
		}
		go func() {
			time.Sleep(time.Minute)
			for _, l := range held {
				assert.NoError(t, l.Release(t.Context()))
			}
		}()
		began := time.Now()
		lock := func(name string) redlock.Lock { return c.Mutex(name) }
		var order []string // one at a time: no mutex
		errs := redlock.Each(t.Context(), items, 1, lock, func(_ context.Context, name string) error {
			if len(order) < 6 {
				assert.Less(t, time.Since(began), 10*time.Second)
			}
			order = append(order, name)
			return nil
		}, redlock.Wait)
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, append(slices.Clone(items[4:]), items[:4]...), order)

		l, err := other.Mutex(items[2]).Acquire(t.Context())
		require.NoError(t, err)
		for _, ifHeld := range []redlock.IfHeld{redlock.Fail, redlock.Skip} {
			var ran atomic.Int32
			errs = redlock.Each(t.Context(), items, 2, lock, func(context.Context, string) error { ran.Add(1); return nil }, ifHeld)
			for i, err := range errs {
				if i == 2 && ifHeld == redlock.Fail {
					require.ErrorIs(t, err, redlock.ErrHeld)
				} else {
					require.NoError(t, err)
				}
			}
			require.EqualValues(t, 9, ran.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs = redlock.Each(ctx, items, 2, lock, func(context.Context, string) error { return nil }, redlock.Wait)
		for i, err := range errs {
			if i == 2 {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, redlock.ErrHeld)
			} else {
				require.NoError(t, err)
			}
		}
		require.NoError(t, l.Release(t.Context()))
		errs = redlock.Each(ctx, items, 2, lock, func(context.Context, string) error { return errors.New("not run") }, redlock.Wait)
		for _, err := range errs {
			require.Equal(t, context.DeadlineExceeded, err, "ctx had ended")
		}
		for _, s := range w.servers[:2] {
			s.stop()
		}
		ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		go func() {
			time.Sleep(5 * time.Second)
			for _, s := range w.servers[:2] {
				s.start(false)
			}
			time.Sleep(5 * time.Second)
			assert.NoError(t, c.Enroll(t.Context()))
		}()
		errs = redlock.Each(ctx, items, 3, lock, func(context.Context, string) error { return nil }, redlock.Wait)
		require.NoError(t, errors.Join(errs...), "an outage is waited for, as Acquire does")
	})
}

// Batches that have the same items in different orders, and items twice, end all: nobody waits while it holds an item.
func TestBatchesDoNotDeadlock(t *testing.T) {
	f, ctx := startNodes(t, 3), soon(t)
	clients := []*redlock.Client{open(t, f), open(t, f), open(t, f)}
	items := append(numbered(6), "item/3", "item/0")
	var inside [6]atomic.Int32
	var batches sync.WaitGroup
	var runs atomic.Int32
	for i, c := range clients {
		mine := slices.Clone(items)
		if i == 1 {
			slices.Reverse(mine)
		}
		batches.Go(func() {
			errs := redlock.Each(ctx, mine, 4, func(name string) redlock.Lock { return c.Mutex(name) }, func(_ context.Context, name string) error {
				item := &inside[name[len(name)-1]-'0']
				assert.Equal(t, int32(1), item.Add(1), "alone")
				time.Sleep(2 * time.Millisecond)
				item.Add(-1)
				runs.Add(1)
				return nil
			}, redlock.Wait)
			assert.NoError(t, errors.Join(errs...))
		})
	}
	batches.Wait()
	require.Equal(t, int32(24), runs.Load())
}

func TestABatchThatIsCalledWrongly(t *testing.T) {
	f, ctx := startNodes(t, 3), soon(t)
	c := open(t, f)
	lock := func(name string) redlock.Lock { return c.Mutex(name) }
	never := func(context.Context, string) error { panic("it must not run") }
	for _, errs := range [][]error{redlock.Each(ctx, []string{"a", "b"}, 0, lock, never, redlock.Wait),
		redlock.Each(ctx, []string{"a", "b"}, 1, lock, never, redlock.IfHeld(9)), redlock.Each(ctx, []string{"", ""}, 1, lock, never, redlock.Wait)} {
		require.Len(t, errs, 2)
		for _, err := range errs {
			require.ErrorIs(t, err, redlock.ErrInvalid)
		}
	}
}

// A panic reaches the caller, when the items that run have been finished and released. A function that ends its goroutine
// is no success.
func TestAPanicInABatchReachesItsCaller(t *testing.T) {
	f, ctx := startNodes(t, 3), soon(t)
	c := open(t, f)
	lock := func(name string) redlock.Lock { return c.Mutex(name) }
	var finished, begun atomic.Int32
	panics := make(chan struct{})
	require.PanicsWithValue(t, "boom", func() {
		redlock.Each(ctx, numbered(50), 2, lock, func(_ context.Context, name string) error {
			begun.Add(1)
			if name == "item/0" {
				close(panics)
				panic("boom")
			}
			<-panics
			time.Sleep(20 * time.Millisecond)
			finished.Add(1)
			return nil
		}, redlock.Wait)
	})
	require.Equal(t, begun.Load()-1, finished.Load())
	require.Less(t, begun.Load(), int32(50))
	clears(t, f, "item/0")

	errs := redlock.Each(ctx, []string{"a", "b"}, 1, lock, func(_ context.Context, name string) error {
		runtime.Goexit()
		return nil
	}, redlock.Wait)
	require.Error(t, errs[0])
	require.Error(t, errs[1], "nobody was left to do it")
	clears(t, f, "a")

	held, err := open(t, f).Mutex("a").Acquire(ctx)
	require.NoError(t, err)
	errs = redlock.Each(ctx, []string{"a", "b"}, 1, lock, func(context.Context, string) error {
		runtime.Goexit()
		return nil
	}, redlock.Wait)
	for _, err := range errs { // Wait waits for what is held
		require.Error(t, err)
		require.NotErrorIs(t, err, redlock.ErrHeld)
	}
	require.NoError(t, held.Release(ctx))
}

// An item that waits for a lock that another holds keeps no panic from the caller, who might wait for ever, and does not begin
// after it. Items that run are finished, and their contexts do not end.
func TestAPanicInABatchDoesNotWaitForHeldItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := enrolled(t, 2)
		held, err := c[1].Mutex("held").Acquire(t.Context())
		require.NoError(t, err)
		released := make(chan error)
		go func() { time.Sleep(time.Minute); released <- held.Release(t.Context()) }()
		began, finished := time.Now(), false
		require.PanicsWithValue(t, "boom", func() {
			redlock.Each(t.Context(), []string{"held", "runs", "panics"}, 3, func(name string) redlock.Lock { return c[0].Mutex(name) },
				func(ctx context.Context, name string) error {
					switch time.Sleep(time.Second); name {
					case "panics":
						panic("boom")
					case "runs":
						time.Sleep(time.Second)
						finished = ctx.Err() == nil
					default:
						t.Error("an item began after the panic")
					}
					return nil
				}, redlock.Wait)
		})
		require.True(t, finished)
		require.Less(t, time.Since(began), 3*time.Second)
		require.NoError(t, <-released)
	})
}

// A batch of one item is the guarded function, also under a context that holds a lease of the item's lock.
func TestABatchRefusesUnderItsOwnLockWhatAGuardedFunctionDoes(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c := open(t, f)
	for name, lock := range map[string]redlock.Lock{
		"reader": c.RWMutex("r").Reader(), "semaphore": c.Semaphore("s", 3), "mutex": c.Mutex("m"), "re-entrant": c.Mutex("n").Reentrant(),
	} {
		lease, err := lock.Acquire(soon(t))
		require.NoError(t, err)
		ctx, ran := lease.With(soon(t)), 0
		lockOf := func(int) redlock.Lock { return lock }
		do := func(context.Context, int) error { ran++; return nil }
		guarded := redlock.Guard(lockOf, do, redlock.Wait)(ctx, 1)
		byGuard := ran
		each := redlock.Each(ctx, []int{1}, 1, lockOf, do, redlock.Wait)[0]
		require.Equal(t, 2*byGuard, ran, name)
		require.Equal(t, errors.Is(guarded, redlock.ErrInvalid), errors.Is(each, redlock.ErrInvalid), name)
		require.NoError(t, lease.Release(soon(t)))
	}
}
