package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// waitsFor acquires the lock on a goroutine, and returns once the client has so many waiters.
func waitsFor(t *testing.T, ctx context.Context, c *redlock.Client, l redlock.Lock, waiters int) <-chan *redlock.Lease {
	t.Helper()
	got := make(chan *redlock.Lease, 1)
	go func() {
		defer close(got)
		if lease, err := l.Acquire(ctx); err == nil {
			got <- lease
		}
	}()
	require.Eventually(t, func() bool { return redlock.Waiters(c) >= waiters }, 8*time.Second, time.Millisecond)
	return got
}

// allQueued waits until so many clients wait for the key, each in the queue of some node. On a busy machine, the node that
// is asked first may answer so late that a client queues on another.
func allQueued(t *testing.T, f *fleet.Fleet, key string, clients int) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting := map[string]bool{}
		for _, n := range f.Nodes() {
			for _, member := range queue(t, n, key) {
				waiting[member] = true
			}
		}
		return len(waiting) == clients
	}, 8*time.Second, time.Millisecond, "there are not %d waiters", clients)
}

func TestReadersShareAndAWriterWaitsForTheLast(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f, unasked), open(t, f, unasked), soon(t)
		first, err := a.RWMutex("x").Reader().Acquire(ctx)
		require.NoError(t, err)
		second, err := b.RWMutex("x").Reader().Acquire(ctx)
		require.NoError(t, err)
		require.Greater(t, second.Fence(), first.Fence())
		state, err := a.Inspect(ctx, "x")
		require.NoError(t, err)
		require.True(t, state.Held)
		require.Empty(t, state.Token)
		require.Len(t, state.Sharers, 2)
		require.Positive(t, state.Sharers[0].Remaining)

		got := waitsFor(t, ctx, b, b.RWMutex("x").Writer(), 1)
		allQueued(t, f, "x", 1)
		require.NoError(t, first.Extend(ctx))
		require.NoError(t, first.Release(ctx))
		require.NoError(t, second.Extend(ctx), "the release of one reader is not that of another")
		require.Empty(t, got)
		require.NoError(t, second.Release(ctx))
		writer := <-got
		require.NotNil(t, writer, "the last reader wakes the writer")
		require.Greater(t, writer.Fence(), second.Fence())
		require.NoError(t, writer.Release(ctx))
		clears(t, f, "x")
	})
}

// S2: Readers that come after a waiting writer wait for it, fair or not. If it gives up, they get in at once.
func TestAWaitingWriterKeepsNewReadersOut(t *testing.T) {
	for _, how := range []struct {
		nodes         int
		fair, givesUp bool
	}{
		{nodes: 1}, {nodes: 1, givesUp: true},
		{nodes: 3}, {nodes: 3, fair: true}, {nodes: 3, givesUp: true}, {nodes: 3, fair: true, givesUp: true},
	} {
		onFleets(t, fleet.Options{Nodes: how.nodes}, func(t *testing.T, f *fleet.Fleet) {
			a, b, c := open(t, f, unasked, patient), open(t, f, unasked, patient), open(t, f, unasked, patient)
			ctx := soon(t)
			old, err := a.RWMutex("x").Reader().Acquire(ctx)
			require.NoError(t, err)
			require.NoError(t, old.Extend(ctx)) // so all nodes have it, also those that answered late, and all queue there
			for _, n := range f.Nodes() {
				require.Eventually(t, func() bool { return tell(t, n, "EXISTS", "x") == int64(1) }, 8*time.Second, time.Millisecond)
			}
			patience, giveUp := context.WithCancel(ctx)
			lock := b.RWMutex("x").Writer()
			if how.fair {
				lock = lock.Fair()
			}
			writer := waitsFor(t, patience, b, lock, 1)
			require.Eventually(t, func() bool { // where it met readers: on so many nodes that no quorum is left
				intents := 0
				for _, n := range f.Nodes() {
					if tell(t, n, "EXISTS", "redlock:rw:x") == int64(1) {
						intents++
					}
				}
				return intents > how.nodes/2
			}, 8*time.Second, 5*time.Millisecond)
			allQueued(t, f, "x", 1)
			_, err = c.RWMutex("x").Reader().TryAcquire(ctx)
			require.ErrorIs(t, err, redlock.ErrHeld)
			_, err = b.RWMutex("x").Reader().TryAcquire(ctx)
			require.ErrorIs(t, err, redlock.ErrHeld, "in the writer's own process too")
			reader := waitsFor(t, ctx, c, c.RWMutex("x").Reader(), 1)
			allQueued(t, f, "x", 2)
			if how.givesUp {
				giveUp()
				require.Nil(t, <-writer)
				l := <-reader
				require.NotNil(t, l)
				require.NoError(t, l.Release(ctx))
				require.NoError(t, old.Release(ctx))
				clears(t, f, "x")
				return
			}
			defer giveUp()
			require.NoError(t, old.Release(ctx))
			second := reader
			var l *redlock.Lease
			select {
			case l = <-writer:
			case l = <-reader:
				// With several nodes, the message of one of them may be faster than the release of another (S3). And a
				// fair writer enters the queue before it has subscribed: no message reaches it then.
				require.True(t, how.nodes > 1 || how.fair, "the reader came later")
				second = writer
			}
			require.NotNil(t, l)
			require.Empty(t, second)
			require.NoError(t, l.Release(ctx))
			l = <-second
			require.NotNil(t, l, "a release serves the other waiter")
			require.NoError(t, l.Release(ctx))
			clears(t, f, "x")
		})
	}
}

// S3: The reader that has its turn after a writer takes the other waiting readers along.
func TestReadersThatWaitGetInTogether(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, ctx := open(t, f, unasked), soon(t)
		writer, err := a.RWMutex("x").Writer().Acquire(ctx)
		require.NoError(t, err)
		var readers []<-chan *redlock.Lease
		for i := range 4 {
			c := open(t, f, unasked)
			readers = append(readers, waitsFor(t, ctx, c, c.RWMutex("x").Reader(), 1))
			allQueued(t, f, "x", i+1)
		}
		require.NoError(t, writer.Release(ctx))
		var held []*redlock.Lease
		for _, r := range readers {
			l := <-r
			require.NotNil(t, l)
			held = append(held, l)
		}
		for _, l := range held {
			require.True(t, l.Valid())
			require.NoError(t, l.Release(ctx))
		}
		clears(t, f, "x")
	})
}

// S1: A reader that died keeps nobody out once its own lease is over, however many others read meanwhile; and S2: a
// writer that died keeps readers out for a few seconds, once.
func TestTheDeadKeepOthersOutOnlyForTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 4)
		var clients []*redlock.Client
		for i := range 4 {
			clients = append(clients, w.connect(t, i, func(cfg *redlock.Config) { cfg.TTL, cfg.MaxTTL = 20*time.Second, 20*time.Second }))
		}
		require.NoError(t, clients[0].Enroll(t.Context()))
		dies := func(client int) {
			for _, s := range w.servers {
				s.links[client].hold(requests, 1)
				s.links[client].hold(replies, 1)
				t.Cleanup(func() { s.links[client].hold(requests, -1); s.links[client].hold(replies, -1) })
			}
		}
		dead, err := clients[1].RWMutex("x").Reader().WithTTL(2 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		other, err := clients[0].RWMutex("x").Reader().Acquire(t.Context())
		require.NoError(t, err)
		dies(1)
		time.Sleep(2 * time.Second)
		require.False(t, dead.Valid())
		state, err := clients[0].Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Len(t, state.Sharers, 1)
		require.Equal(t, other.Token(), state.Sharers[0].Token)

		waiting, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		go func() {
			if l, err := clients[2].RWMutex("x").Writer().Acquire(waiting); err == nil {
				_ = l.Release(t.Context())
			}
		}()
		time.Sleep(time.Second)
		_, err = clients[3].RWMutex("x").Reader().TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		dies(2)
		died := time.Now()
		l, err := clients[3].RWMutex("x").Reader().Acquire(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(died), 5*time.Second)
		again := time.Now()
		require.NoError(t, l.Release(t.Context()))
		l, err = clients[3].RWMutex("x").Reader().Acquire(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(again), 100*time.Millisecond, "once")
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, other.Release(t.Context()))
		writer, err := clients[3].RWMutex("x").Writer().Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, writer.Release(t.Context()))
		giveUp()
	})
}

// S3: A waiter that may share the lock is in two queues. A writer's release takes it out of both, also if it has gone.
// Otherwise it would stay in one of them for as long as others wait, because these have the queue last.
func TestAReaderThatHasGoneIsInNoQueueAfterAWritersRelease(t *testing.T) {
	const gone = "next:0123456789abcdef0123456789abcdef"
	queues := []string{"redlock:wait:x", "redlock:shared:x"}
	for name, member := range map[string]string{"told": gone, "polls": gone + ":poll"} {
		t.Run(name, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
			writer, err := open(t, f).RWMutex("x").Writer().Acquire(soon(t))
			require.NoError(t, err)
			spread(t, f, "x", writer)
			for _, n := range f.Nodes() {
				for _, queue := range queues {
					tell(t, n, "ZADD", queue, 1, member)
				}
			}
			require.NoError(t, writer.Release(soon(t)))
			require.Eventually(t, func() bool { return redlock.Answered(writer) }, 10*time.Second, time.Millisecond)
			for _, n := range f.Nodes() {
				for _, queue := range queues {
					require.EqualValues(t, 0, tell(t, n, "EXISTS", queue), queue)
				}
			}
		})
	}
}

// An upgrade would wait for itself, and so would a reader behind a writer that waits for it.
func TestAnAcquireThatWouldWaitForItselfFailsAtOnce(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, ctx := open(t, f), soon(t)
	rw := c.RWMutex("x")
	reader, err := rw.Reader().Acquire(ctx)
	require.NoError(t, err)
	under := reader.With(ctx)
	for name, l := range map[string]redlock.Lock{"writer": rw.Writer(), "reentrant writer": rw.Writer().Reentrant(), "reader": rw.Reader(),
		"mutex": c.Mutex("x", "y"), "semaphore": c.Semaphore("x", 2).Reentrant()} {
		_, err := l.Acquire(under)
		require.ErrorIs(t, err, redlock.ErrInvalid, name)
	}
	_, err = rw.Writer().TryAcquire(under)
	require.ErrorIs(t, err, redlock.ErrHeld)
	again, err := rw.Reader().Reentrant().Acquire(under)
	require.NoError(t, err)
	require.Equal(t, reader.Token(), again.Token())
	require.NoError(t, again.Release(ctx))
	other, err := rw.Reader().TryAcquire(under)
	require.NoError(t, err, "a try does not wait")
	require.NotEqual(t, reader.Token(), other.Token())
	require.NoError(t, other.Release(ctx))
	require.NoError(t, reader.Release(ctx))

	permit, err := c.Semaphore("s", 2).Acquire(ctx)
	require.NoError(t, err)
	_, err = c.Semaphore("s", 2).Acquire(permit.With(ctx))
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.NoError(t, permit.Release(ctx))
}

// S4: A writer becomes a reader, and at no moment could another writer get in.
func TestAWriterBecomesAReaderWithoutAGap(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f, unasked), open(t, f, unasked), soon(t)
		writer, err := a.RWMutex("x").Writer().Acquire(ctx)
		require.NoError(t, err)
		own := writer.Context()
		waiting := waitsFor(t, ctx, b, b.RWMutex("x").Reader(), 1)
		allQueued(t, f, "x", 1)
		reader, err := writer.Downgrade(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, context.Cause(own), redlock.ErrReleased)
		require.False(t, writer.Valid())
		require.True(t, reader.Valid())
		require.Equal(t, writer.Token(), reader.Token())
		require.Equal(t, writer.Fence(), reader.Fence())
		require.NoError(t, writer.Release(ctx), "which does nothing")
		second := <-waiting
		require.NotNil(t, second, "the waiting reader is told")
		_, err = b.RWMutex("x").Writer().TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, reader.Extend(ctx))
		require.NoError(t, second.Release(ctx))
		require.True(t, reader.Valid())
		_, err = reader.Downgrade(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		_, err = writer.Downgrade(ctx)
		require.ErrorIs(t, err, redlock.ErrReleased)
		require.NoError(t, reader.Release(ctx))
		clears(t, f, "x")

		several, err := a.Mutex("x", "y").Acquire(ctx)
		require.NoError(t, err)
		_, err = several.Downgrade(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.True(t, several.Valid())
		require.NoError(t, several.Release(ctx))
		twice, err := a.Mutex("x").Reentrant().Acquire(ctx)
		require.NoError(t, err)
		again, err := a.Mutex("x").Reentrant().Acquire(twice.With(ctx))
		require.NoError(t, err)
		_, err = again.Downgrade(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.NoError(t, again.Release(ctx))
		require.NoError(t, twice.Release(ctx))
		clears(t, f, "x")
	})
}

// S4: A check whether the keys are still there finds the writer's key on nodes that were not told. What it puts in its
// place keeps writers out for as long as the lease is valid.
func TestACheckOfADowngradeThatNoNodeHeardKeepsWritersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		a, b := all[0], all[1]
		old, err := a.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, old.Release(t.Context()))
		writer, err := a.RWMutex("x").Writer().WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, writer.Extend(t.Context())) // every node has it
		time.Sleep(time.Second)
		for _, s := range w.servers {
			s.links[0].hold(requests, +1)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		reader, err := writer.Downgrade(ended)
		require.NoError(t, err)
		synctest.Wait()
		for _, s := range w.servers {
			s.links[0].reset() // what told the nodes is lost
			s.links[0].hold(requests, -1)
		}
		time.Sleep(time.Second)
		a.Status(t.Context())
		for _, s := range w.servers {
			key, err := s.redis.Get("x")
			require.NoError(t, err)
			require.Equal(t, writer.Token(), key, "it was told")
		}
		left := reader.Remaining()

		require.ErrorIs(t, a.ReleaseToken(t.Context(), "x", old.Token()), redlock.ErrLost) // so this client looks
		synctest.Wait()
		require.Equal(t, left, reader.Remaining())
		for reader.Valid() {
			_, err := b.RWMutex("x").Writer().TryAcquire(t.Context())
			require.ErrorIs(t, err, redlock.ErrHeld, "the reader is valid for %v more", reader.Remaining())
			time.Sleep(time.Second)
		}
	})
}

// S4: Nodes that were not told keep the writer's key. It keeps writers out as well, later renewals turn it into the
// reader's entry, and the reader's release deletes either.
func TestADowngradeThatNoNodeHearsStillKeepsWritersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		a, b := w.connect(t, 0), w.connect(t, 1)
		require.NoError(t, a.Enroll(t.Context()))
		writer, err := a.RWMutex("x").Writer().Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, writer.Extend(t.Context()))
		cut := func(by int) {
			for _, s := range w.servers {
				s.links[0].hold(requests, by)
			}
		}
		cut(+1)
		reader, err := writer.Downgrade(t.Context())
		require.NoError(t, err)
		require.True(t, reader.Valid())
		require.False(t, writer.Valid())
		for range 5 { // less long than it takes a client to give up its connections
			_, err := b.RWMutex("x").Writer().TryAcquire(t.Context())
			require.Error(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		cut(-1)
		require.Eventually(t, func() bool { // told by a renewal: b can read now
			l, err := b.RWMutex("x").Reader().TryAcquire(t.Context())
			if err == nil {
				require.NoError(t, l.Release(t.Context()))
			}
			return err == nil
		}, 5*time.Second, 50*time.Millisecond)
		require.True(t, reader.Valid())
		require.NoError(t, reader.Release(t.Context()))
		synctest.Wait()
		for _, s := range w.servers {
			require.Empty(t, s.redis.TTL("x"))
			require.False(t, s.redis.Exists("x"))
		}

		// A release right after a downgrade that was not heard.
		writer, err = a.RWMutex("x").Writer().Acquire(t.Context())
		require.NoError(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		reader, err = writer.Downgrade(ended)
		require.NoError(t, err)
		require.NoError(t, reader.Release(t.Context()))
		l, err := b.RWMutex("x").Writer().TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
	})
}

// R1, S4: Where the writer's string becomes the reader's entry, its time does not become shorter. One server's clock is set
// back, the third one does not hear of the reader, and then the clock is right again: another writer would get the lock.
func TestADowngradeNeverMakesAKeysTimeShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		a, b := all[0], all[1]
		writer, err := a.RWMutex("x").Writer().WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		var behind, away *server
		for i, owner := range w.owners("x") {
			switch s := w.servers[i]; {
			case owner == "":
				away = s
			case behind == nil:
				behind = s
			}
		}
		require.NotNil(t, away, "the acquire asked a bare quorum")
		behind.step(-30 * time.Second)
		away.links[0].hold(requests, +1)
		reader, err := writer.Downgrade(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		behind.step(30 * time.Second)
		away.links[0].reset()
		away.links[0].hold(requests, -1)
		for reader.Valid() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			l, err := b.RWMutex("x").Writer().Acquire(ctx)
			cancel()
			if err == nil {
				require.False(t, reader.Valid(), "a writer beside a reader that is valid for %v more", reader.Remaining())
				require.NoError(t, l.Release(t.Context()))
			}
		}
	})
}

// R2, R3: A reader's lease is renewed, lives on when any minority dies, and is lost as a mutex is.
func TestAReadersLeaseIsAsSafeAsAMutex(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	a, b, ctx := open(t, f), open(t, f), soon(t)
	for _, lock := range []redlock.Lock{a.RWMutex("x").Reader(), a.Semaphore("y", 3)} {
		l, err := lock.Acquire(ctx)
		require.NoError(t, err)
		spreadEntries(t, f, l) // R2
		name := l.Names()[0]
		require.NoError(t, b.ForceRelease(ctx, name))
		require.ErrorIs(t, l.Extend(ctx), redlock.ErrLost)
		require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrLost)
		require.ErrorIs(t, l.Release(ctx), redlock.ErrLost)
		clears(t, f, name)
	}
	l, err := a.RWMutex("x").Reader().Acquire(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Extend(ctx))
	require.NoError(t, f.Nodes()[1].Kill())
	require.NoError(t, f.Nodes()[3].Kill())
	require.NoError(t, l.Extend(ctx))
	_, err = b.RWMutex("x").Writer().TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, f.Nodes()[0].Kill())
	require.ErrorIs(t, l.Extend(ctx), redlock.ErrNoQuorum)
	_, err = b.RWMutex("x").Reader().TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.True(t, errors.Is(l.Release(ctx), redlock.ErrNoQuorum))
}

// An Acquire that would wait for the caller's own lease says what to do instead. Only a writer can become a reader.
func TestAnAcquireThatWouldWaitForItsOwnOtherKindSaysWhatToDo(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	rw := open(t, f).RWMutex("table")
	for _, c := range []struct {
		held, wanted redlock.Lock
		downgrade    bool
	}{{rw.Writer(), rw.Reader(), true}, {rw.Reader(), rw.Writer(), false}} {
		require.NoError(t, c.held.Do(soon(t), func(ctx context.Context, _ *redlock.Lease) error {
			_, err := c.wanted.Acquire(ctx)
			require.ErrorIs(t, err, redlock.ErrInvalid)
			require.ErrorContains(t, err, "release that first")
			require.Equal(t, c.downgrade, strings.Contains(err.Error(), "Lease.Downgrade"), err.Error())
			return nil
		}))
	}
}

// S4: A writer whose renewals fail becomes a reader. That one is renewed as soon as the nodes are back.
func TestAReaderThatWasAWriterWhileRenewalsFailedIsRenewed(t *testing.T) {
	for name, renewed := range map[string]bool{"renewed": true, "without renewal": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 1)
				var failures atomic.Int64
				c := w.connect(t, 0, func(cfg *redlock.Config) {
					cfg.Hooks.ExtendFailed = func(redlock.LeaseInfo, error) { failures.Add(1) }
				})
				require.NoError(t, c.Enroll(t.Context()))
				lock := c.RWMutex("x").Writer().WithTTL(6 * time.Second)
				if !renewed {
					lock = lock.WithoutRenewal()
				}
				writer, err := lock.Acquire(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				for _, s := range w.servers {
					s.slow(0, nodeTimeout+50*time.Millisecond)
				}
				time.Sleep(writer.Remaining() - 1900*time.Millisecond) // less than a third of the TTL
				before := failures.Load()
				reader, err := writer.Downgrade(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				require.Greater(t, failures.Load(), before) // the round of Downgrade is a renewal too
				for _, s := range w.servers {
					s.slow(0, 0)
				}
				time.Sleep(10 * time.Second)
				require.Equal(t, renewed, reader.Valid(), "%v", context.Cause(reader.Context()))
			})
		})
	}
}

// S4: A writer on a bare quorum becomes a reader, and only one node hears of it. The other one still has the writer's string. They
// are one owner, who has the lock.
func TestAReaderOfWhomNotAllNodesHaveHeardIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		writer, err := all[0].RWMutex("x").Writer().Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		having := w.having("x")
		require.Len(t, having, 2)
		for _, s := range w.servers {
			if s != having[0] {
				s.links[0].hold(requests, +1)
				defer s.links[0].hold(requests, -1)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		reader, err := writer.Downgrade(ended)
		require.NoError(t, err)
		synctest.Wait()
		require.NotEmpty(t, having[0].sharers("x"))
		require.Contains(t, w.owners("x"), writer.Token())
		s, err := all[1].Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.True(t, s.Held)
		require.Empty(t, s.Token)
		require.Len(t, s.Sharers, 1)
		require.Equal(t, reader.Token(), s.Sharers[0].Token)
		require.LessOrEqual(t, reader.Remaining(), s.Remaining)
		require.Equal(t, s.Remaining, s.Sharers[0].Remaining)
		require.NoError(t, all[1].ForceRelease(t.Context(), "x"))
		require.Empty(t, w.having("x"))
	})
}
