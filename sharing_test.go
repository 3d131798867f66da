package redlock_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// S1: Two kinds of lock on one name exclude each other, whichever came first, except readers and holders of permits
// among themselves. So does SET NX of another library.
func TestTheKindsOfLockOnOneNameExcludeEachOther(t *testing.T) {
	kinds := []struct {
		name string
		lock func(c *redlock.Client) redlock.Lock
	}{
		{"mutex", func(c *redlock.Client) redlock.Lock { return c.Mutex("x") }},
		{"reader", func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }},
		{"writer", func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }},
		{"semaphore", func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 2) }},
	}
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b := open(t, f, patient), open(t, f, patient)
		for _, first := range kinds {
			for _, second := range kinds {
				t.Run(first.name+" then "+second.name, func(t *testing.T) {
					ctx := soon(t)
					l, err := first.lock(a).Acquire(ctx)
					require.NoError(t, err)
					again, err := second.lock(b).TryAcquire(ctx)
					if first.name == second.name && (first.name == "reader" || first.name == "semaphore") {
						require.NoError(t, err)
						require.NoError(t, again.Release(ctx))
					} else {
						require.ErrorIs(t, err, redlock.ErrHeld)
						var denial *redlock.Denial
						require.ErrorAs(t, err, &denial)
						require.NotEmpty(t, denial.Owner)
					}
					require.NoError(t, l.Release(ctx))
					clears(t, f, "x")
				})
			}
			t.Run(first.name+" and another library", func(t *testing.T) {
				ctx := soon(t)
				l, err := first.lock(a).Acquire(ctx)
				require.NoError(t, err)
				taken := 0
				for _, n := range f.Nodes() {
					if tell(t, n, "SET", "x", "theirs", "NX", "PX", "10000") != nil {
						taken++
						tell(t, n, "DEL", "x")
					}
				}
				require.Less(t, taken, 3, "another library must not win a quorum")
				require.NoError(t, l.Release(ctx))
				for _, n := range f.Nodes() {
					tell(t, n, "SET", "x", "theirs", "PX", "10000")
				}
				_, err = first.lock(a).TryAcquire(ctx)
				require.ErrorIs(t, err, redlock.ErrHeld)
				for _, n := range f.Nodes() {
					tell(t, n, "DEL", "x")
				}
			})
		}
	})
}

// W2, O: Clients may die while they wait. What they have on a node, in whatever queue, goes by itself.
func TestWhatWaitersHaveOnANodeExpires(t *testing.T) {
	mutex := func(c *redlock.Client) redlock.Lock { return c.Mutex("x") }
	fair := func(c *redlock.Client) redlock.Lock { return c.Mutex("x").Fair() }
	permit := func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 1) }
	reader := func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }
	for name, kind := range map[string]struct {
		held, wanted func(*redlock.Client) redlock.Lock
	}{
		"mutex":                       {mutex, mutex},
		"fair":                        {fair, fair},
		"permit":                      {permit, permit},
		"reader behind a writer":      {mutex, reader},
		"writer behind a reader":      {reader, mutex},
		"fair writer behind a reader": {reader, fair},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 2)
				held, err := kind.held(all[0]).Acquire(t.Context())
				require.NoError(t, err)
				got := make(chan *redlock.Lease)
				go func() {
					l, err := kind.wanted(all[1]).Acquire(t.Context())
					assert.NoError(t, err)
					got <- l
				}()
				time.Sleep(time.Second) // by then it waits
				queues := 0
				for _, s := range w.servers {
					for _, key := range s.redis.Keys() {
						switch {
						case key == "redlock:node", key == "redlock:fence", key == "redlock:config":
						case key != "x":
							queues++
							fallthrough
						default:
							assert.Positive(t, s.timeToLive(key), key)
							assert.LessOrEqual(t, s.timeToLive(key), time.Minute, key)
						}
					}
				}
				require.Positive(t, queues)
				require.NoError(t, held.Release(t.Context()))
				require.NoError(t, (<-got).Release(t.Context()))
			})
		})
	}
}

// W2: Who shares a lock and may not publish sends nobody a message. The waiters see that in its owner token, and poll.
func TestWaitersPollWhereThoseThatShareTheLockMayNotPublish(t *testing.T) {
	for name, lock := range map[string]func(*redlock.Client) redlock.Lock{
		"a reader": func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() },
		"a permit": func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 1) },
	} {
		for waiter, waits := range map[string]func(*redlock.Client) redlock.Lock{
			"a writer":      func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
			"a fair writer": func(c *redlock.Client) redlock.Lock { return c.Mutex("x").Fair() },
		} {
			t.Run(waiter+" behind "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := virtual(t, 3, 2)
					w.has.mute = 1
					mute, c := w.connect(t, 0, redlock.LostPoll(time.Hour)), w.connect(t, 1, redlock.LostPoll(time.Hour))
					require.NoError(t, c.Enroll(t.Context()))
					mute.Status(t.Context())
					time.Sleep(time.Second) // by then it knows that it may not publish
					held, err := lock(mute).WithTTL(20 * time.Second).Acquire(t.Context())
					require.NoError(t, err)
					digits, _, _ := strings.Cut(held.Token(), ":")
					require.Equal(t, strings.ToUpper(digits), digits)
					got := make(chan time.Time)
					go func() {
						l, err := waits(c).Acquire(t.Context())
						at := time.Now()
						if assert.NoError(t, err) {
							assert.NoError(t, l.Release(t.Context()))
						}
						got <- at
					}()
					time.Sleep(5 * time.Second) // by then it waits
					require.NoError(t, held.Release(t.Context()))
					released := time.Now()
					require.Less(t, (<-got).Sub(released), 100*time.Millisecond)
				})
			})
		}
	}
}

// mutes are clients in virtual time, of which the first may not publish, and knows it.
func mutes(t *testing.T, clients int, change ...func(*redlock.Config)) (w *world, c []*redlock.Client) {
	w = virtual(t, 3, clients)
	w.has.mute = 1
	for i := range clients {
		c = append(c, w.connect(t, i, change...))
	}
	require.NoError(t, c[1].Enroll(t.Context()))
	for _, client := range c {
		client.Status(t.Context())
	}
	time.Sleep(time.Second)
	return w, c
}

// A refusal calls those that share the lock the same, whether they may publish or not.
func TestARefusalCallsHoldersThatMayNotPublishAsItCallsOthers(t *testing.T) {
	for owner, lock := range map[string]func(*redlock.Client) redlock.Lock{
		"readers": func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() },
		"permits": func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 1) },
	} {
		for kind, wanted := range map[string]func(*redlock.Client) redlock.Lock{
			"a mutex":      func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
			"a fair mutex": func(c *redlock.Client) redlock.Lock { return c.Mutex("x").Fair() },
		} {
			t.Run(kind+" behind "+owner, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, c := mutes(t, 2)
					held, err := lock(c[0]).Acquire(t.Context())
					require.NoError(t, err)
					_, err = wanted(c[1]).TryAcquire(t.Context())
					var denial *redlock.Denial
					require.ErrorAs(t, err, &denial)
					require.Equal(t, owner, denial.Owner)
					var round *redlock.RoundError
					require.ErrorAs(t, err, &round)
					holder, ok := round.Holder()
					require.True(t, ok)
					require.Equal(t, owner, holder.Token)
					require.NotContains(t, denial.Error(), "not a lock of this library")
					require.NoError(t, held.Release(t.Context()))
				})
			})
		}
	}
}

// S2: A writer meets readers that may not publish. It leaves its intent on a quorum of their nodes, renews it there, and takes
// it from all nodes when it gives up.
func TestAWritersIntentIsTheSameForReadersThatMayNotPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := mutes(t, 3)
		intents := func() (nodes int) {
			for _, s := range w.servers {
				if s.timeToLive("redlock:rw:x") > 0 {
					nodes++
				}
			}
			return nodes
		}
		held, err := c[0].RWMutex("x").Reader().Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, held.Extend(t.Context())) // all nodes have it
		r := &roll{t: t}
		writer := arrives(r, 0, c[1].RWMutex("x").Writer())
		require.GreaterOrEqual(t, intents(), 2, "newcomers find no quorum")
		time.Sleep(10 * time.Second)
		require.GreaterOrEqual(t, intents(), 2, "newcomers find no quorum")
		writer.cancel()
		require.Error(t, <-writer.ended)
		synctest.Wait()
		require.Zero(t, intents(), "a writer that has given up keeps readers out")
		reader, err := c[2].RWMutex("x").Reader().TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, reader.Release(t.Context()))
		require.NoError(t, held.Release(t.Context()))
	})
}

// S3: The readers of a process that wait are queued under one id, and a grant to one of them takes it out of the queue. Another
// one, which came behind a writer, enters it again before that writer leaves.
func TestAReaderThatGetsInLeavesNoOtherOfItsProcessOutOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := enrolled(t, 3)
		first, readers, writer := c[0], c[1], c[2]
		for i := range 8 { // which nodes are asked first differs from name to name, and so does whether one is left out
			name := fmt.Sprint("x", i)
			held, err := first.RWMutex(name).Writer().Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, held.Extend(t.Context()))
			before := awaits(t, readers.RWMutex(name).Reader())
			between := awaits(t, writer.RWMutex(name).Writer())
			for _, s := range w.servers { // the readers are told late that the first of them may come in
				s.links[1].hold(replies, +1)
			}
			reading, err := held.Downgrade(t.Context())
			require.NoError(t, err)
			time.Sleep(20 * time.Millisecond) // the writer has left its intent
			behind := awaits(t, readers.RWMutex(name).Reader())
			for _, s := range w.servers {
				s.links[1].hold(replies, -1)
			}
			l := <-before.got
			require.NotNil(t, l)
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, reading.Release(t.Context()))
			require.NoError(t, l.Release(t.Context()))
			writing := <-between.got
			require.NotNil(t, writing)
			time.Sleep(20 * time.Millisecond)
			released := time.Now()
			require.NoError(t, writing.Release(t.Context()))
			l = <-behind.got
			require.NotNil(t, l)
			require.Less(t, time.Since(released), 500*time.Millisecond, name)
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(time.Second)
			for _, s := range w.servers { // and nobody is queued any more
				for _, key := range s.redis.Keys() {
					require.NotContains(t, key, ":"+name)
				}
			}
		}
	})
}

// W2: To enter a queue again costs a question. A reader that gives up was granted nothing, so no other is out of the queue.
func TestReadersThatGiveUpDoNotHaveOthersAskAgain(t *testing.T) {
	asked := func(t *testing.T, impatient bool) (scripts int64) {
		synctest.Test(t, func(t *testing.T) {
			w, c := enrolled(t, 2)
			var asked atomic.Int64
			for _, s := range w.servers {
				s.links[1].heard = func(direction int, sent []byte) {
					if direction == requests {
						asked.Add(int64(bytes.Count(sent, []byte("EVALSHA"))))
					}
				}
			}
			held, err := c[0].RWMutex("x").Writer().Acquire(t.Context())
			require.NoError(t, err)
			var waiters []waiting
			for range 50 {
				waiters = append(waiters, awaits(t, c[1].RWMutex("x").Reader()))
			}
			before := asked.Load()
			for range 50 {
				if impatient {
					waiter := awaits(t, c[1].RWMutex("x").Reader())
					waiter.giveUp()
					require.Nil(t, <-waiter.got)
				}
				time.Sleep(100 * time.Millisecond)
			}
			scripts = asked.Load() - before
			require.NoError(t, held.Release(t.Context()))
			for _, waiter := range waiters {
				require.NotNil(t, <-waiter.got)
			}
		})
		return scripts
	}
	patient, impatient := asked(t, false), asked(t, true)
	t.Logf("questions of 50 readers that wait: %d in 5 s; %d in 10 s, in which others gave up", patient, impatient)
	require.Less(t, impatient, 2*patient+50*5)
}

// S3: Who begins to read takes along the readers of all clients, and tells the first writer, however far back in the queue.
func TestReadersOfManyClientsGetInTogether(t *testing.T) {
	const between = 1000 // of other clients
	queues := map[bool][]string{true: {"redlock:wait:x", "redlock:shared:x"}, false: {"redlock:wait:x"}}
	for name, kind := range map[string]struct {
		last         func(*redlock.Client) redlock.Lock
		betweenShare bool
	}{
		"a reader behind readers": {func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }, true},
		"a reader behind writers": {func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() }, false},
		"a writer behind readers": {func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := enrolled(t, 3)
				for _, s := range w.servers {
					for client := range c { // without, the writer is told while the first reader still asks the other nodes
						s.slow(client, time.Millisecond)
					}
				}
				held, err := c[0].Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, held.Extend(t.Context()))
				first := awaits(t, c[1].RWMutex("x").Reader())
				arrived := float64(time.Now().UnixMicro())
				last := awaits(t, kind.last(c[2]))
				for _, s := range w.servers {
					s.mu.Lock()
					for i := range between {
						for _, queue := range queues[kind.betweenShare] {
							_, err := s.redis.ZAdd(queue, arrived, fmt.Sprintf("next:%032x", i))
							assert.NoError(t, err)
						}
					}
					s.mu.Unlock()
				}
				released := time.Now()
				require.NoError(t, held.Release(t.Context()))
				l := <-first.got
				require.NotNil(t, l)
				if name == "a writer behind readers" {
					time.Sleep(100 * time.Millisecond)
					intents := 0
					for _, s := range w.servers {
						s.mu.Lock()
						if s.redis.Exists("redlock:rw:x") {
							intents++
						}
						s.mu.Unlock()
					}
					require.GreaterOrEqual(t, intents, 2) // it has asked since, and keeps new readers out
					require.NoError(t, l.Release(t.Context()))
					last.giveUp() // the turn is of those that the test made up
					return
				}
				require.NotNil(t, <-last.got)
				require.Less(t, time.Since(released), 200*time.Millisecond)
			})
		})
	}
}

// W2: A forged message may name a slot that no semaphore has. The waiter is not misled: it gets its permit when one is free.
func TestAForgedMessageNamesNoSlot(t *testing.T) {
	for _, slot := range []string{"-5", "-1", "2", "1000"} {
		synctest.Test(t, func(t *testing.T) {
			w, c := enrolled(t, 2)
			held, err := c[0].Semaphore("x", 2).WithPermits(2).Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, held.Extend(t.Context()))
			waiter := awaits(t, c[1].Semaphore("x", 2))
			for _, s := range w.servers {
				s.mu.Lock()
				all, err := s.redis.ZMembers("redlock:wait:x")
				if err == nil {
					for _, member := range all {
						s.redis.Publish("redlock:released:"+member, "permit "+slot+" x")
					}
				}
				s.mu.Unlock()
			}
			require.NoError(t, held.Release(t.Context()))
			l := <-waiter.got
			require.NotNil(t, l, slot)
			state, err := c[0].Inspect(t.Context(), "x")
			require.NoError(t, err)
			require.Len(t, state.Sharers, 1, slot)
			require.Subset(t, []int{0, 1}, state.Sharers[0].Slots, slot)
			require.NoError(t, l.Release(t.Context()))
		})
	}
}
