package redlock_test

import (
	"bytes"
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

// The intent of a writer that waits (S2), in virtual time. Two writers may leave theirs at once, in order of arrival or not.

type twoWriters struct {
	name        string
	first, then func(redlock.RWMutex) redlock.Lock
}

var (
	plainWriter = func(rw redlock.RWMutex) redlock.Lock { return rw.Writer() }
	fairWriter  = func(rw redlock.RWMutex) redlock.Lock { return rw.Writer().Fair() }

	pairsOfWriters = []twoWriters{
		{"plain, plain", plainWriter, plainWriter}, {"fair, fair", fairWriter, fairWriter},
		{"plain, fair", plainWriter, fairWriter}, {"fair, plain", fairWriter, plainWriter},
	}
)

// wait has client 0 read, and the writers of clients 1 and 2 wait for it. Client 3 does nothing.
func (who twoWriters) wait(t *testing.T) (c []*redlock.Client, reader *redlock.Lease, r *roll, writers []arrival) {
	_, c = fairClients(t, 3, 4)
	reader, err := c[0].RWMutex("x").Reader().Acquire(t.Context())
	require.NoError(t, err)
	r = &roll{t: t}
	writers = []arrival{arrives(r, 0, who.first(c[1].RWMutex("x"))), arrives(r, 1, who.then(c[2].RWMutex("x")))}
	time.Sleep(2 * time.Second) // both have asked again
	return c, reader, r, writers
}

// S2: Two writers wait for a reader, and then another reader waits. Whichever of the writers gives up, the new reader still
// waits for the other one. If both do, it gets in before long.
func TestAWriterThatGivesUpDoesNotLetReadersPassAnother(t *testing.T) {
	for _, who := range pairsOfWriters {
		for _, giveUp := range [][]int{{0}, {1}, {0, 1}, {1, 0}} {
			t.Run(who.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, old, r, writers := who.wait(t)
					reader := arrives(r, 2, c[3].RWMutex("x").Reader())
					for _, i := range giveUp {
						writers[i].cancel()
						require.Error(t, <-writers[i].ended)
						if len(giveUp) == 1 || i != giveUp[1] {
							time.Sleep(5 * time.Second)
							require.Empty(t, r.order(), "the reader passed the writer that waits")
						}
					}
					if len(giveUp) == 2 {
						began := time.Now()
						require.NoError(t, <-reader.ended)
						require.Less(t, time.Since(began), 3200*time.Millisecond)
						require.NoError(t, old.Release(t.Context()))
						return
					}
					require.NoError(t, old.Release(t.Context()))
					require.NoError(t, <-writers[1-giveUp[0]].ended)
					require.NoError(t, <-reader.ended) // mostly behind the writer (S3)
				})
			})
		}
	}
}

// S2: When one of two writers has had the lock and the other has given up, nothing keeps readers out.
func TestNoIntentIsLeftForAFreeLock(t *testing.T) {
	for _, who := range pairsOfWriters {
		t.Run(who.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, old, _, writers := who.wait(t)
				writers[1].cancel()
				require.Error(t, <-writers[1].ended)
				require.NoError(t, old.Release(t.Context()))
				require.NoError(t, <-writers[0].ended)
				synctest.Wait()
				reader, err := c[3].RWMutex("x").Reader().TryAcquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, reader.Release(t.Context()))
			})
		})
	}
}

// S2: Readers come and go, so that there is always one, and so do writers with little patience. A patient writer gets its
// turn.
func TestImpatientWritersDoNotStarveAPatientOne(t *testing.T) {
	const stay = 400 * time.Millisecond
	for _, who := range pairsOfWriters {
		t.Run(who.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := fairClients(t, 3, 6)
				for _, s := range w.servers {
					for i := range c {
						s.slow(i, time.Millisecond)
					}
					s.slow(4, 20*time.Millisecond) // the patient one is farther away
				}
				var readers []redlock.Lock
				for i := range 8 {
					readers = append(readers, c[i%4].RWMutex("x").Reader())
				}
				stop := readSteadily(readers, stay)
				ctx, cancel := context.WithCancel(t.Context())
				var impatient sync.WaitGroup
				impatient.Go(func() {
					for ctx.Err() == nil {
						short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
						if l, err := who.then(c[5].RWMutex("x")).Acquire(short); err == nil {
							_ = l.Release(context.Background())
						}
						cancel()
						time.Sleep(100 * time.Millisecond)
					}
				})
				time.Sleep(time.Second)
				for range 3 {
					began := time.Now()
					l, err := who.first(c[4].RWMutex("x")).Acquire(soon(t))
					if assert.NoError(t, err) {
						assert.Less(t, time.Since(began), 4*time.Second)
						_ = l.Release(context.Background())
					}
				}
				cancel()
				impatient.Wait()
				stop()
			})
		})
	}
}

// W2, S2: A writer far away asks again less often than its intent would need if only its message could be lost.
func TestAFarWritersIntentLastsAsLongAsItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 3)
		var c []*redlock.Client
		for i := range 3 {
			c = append(c, w.connect(t, i, func(cfg *redlock.Config) { cfg.NodeTimeout = time.Second }))
		}
		for _, s := range w.servers {
			s.slow(1, 250*time.Millisecond)
		}
		require.NoError(t, c[0].Enroll(t.Context()))
		for _, x := range c {
			x.Status(t.Context())
		}
		time.Sleep(time.Minute) // long enough to have measured the round trips
		old, err := c[0].RWMutex("x").Reader().Acquire(t.Context())
		require.NoError(t, err)
		writer := (&roll{t: t}).join(0, c[1].RWMutex("x").Writer())
		time.Sleep(2 * time.Second)
		passed := 0
		for range 200 { // 20 s
			if l, err := c[2].RWMutex("x").Reader().TryAcquire(t.Context()); err == nil {
				passed++
				require.NoError(t, l.Release(t.Context()))
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.Zero(t, passed, "of 200 readers that came after the writer, so many passed it")
		require.NoError(t, old.Release(t.Context()))
		require.NoError(t, <-writer.ended)
	})
}

// S2: An intent lets in the readers that waited before the writer. They are queued on one node, and all nodes must know them.
func TestAReaderThatWaitedBeforeTheWriterGetsInOnAllNodes(t *testing.T) {
	for name, lock := range map[string]func(redlock.RWMutex) redlock.Lock{"plain": plainWriter, "fair": fairWriter} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := fairClients(t, 3, 4)
				var sent atomic.Int64
				for _, s := range w.servers {
					for i := range c {
						s.slow(i, time.Millisecond)
					}
					s.links[2].heard = func(direction int, b []byte) {
						if direction == requests {
							sent.Add(int64(bytes.Count(b, []byte("EVALSHA"))))
						}
					}
				}
				holder, err := c[0].RWMutex("x").Writer().Acquire(t.Context())
				require.NoError(t, err)
				first, late := awaits(t, c[1].RWMutex("x").Reader()), awaits(t, c[2].RWMutex("x").Reader())
				writer := awaits(t, lock(c[3].RWMutex("x")))
				for _, s := range w.servers { // the second reader asks too late to get in with the first
					s.links[2].hold(requests, +1)
					s.links[3].hold(replies, +1)
				}
				require.NoError(t, holder.Release(t.Context()))
				reader := <-first.got
				require.NotNil(t, reader)
				require.NoError(t, reader.Extend(t.Context())) // all nodes have it, so the writer meets it on a quorum
				time.Sleep(5 * time.Millisecond)
				for _, s := range w.servers {
					s.links[3].hold(replies, -1)
				}
				time.Sleep(20 * time.Millisecond)
				intents := 0
				for _, s := range w.servers {
					if s.redis.Exists("redlock:rw:x") {
						intents++
					}
				}
				require.GreaterOrEqual(t, intents, 2, "newcomers find no quorum")
				sent.Store(0)
				for _, s := range w.servers {
					s.links[2].hold(requests, -1)
				}
				select {
				case l := <-late.got:
					require.NoError(t, l.Release(t.Context()))
				case <-time.After(2 * time.Second):
					t.Error("the reader that waited before the writer is not let in")
					late.giveUp()
				}
				require.Less(t, sent.Load(), int64(20), "it asks again and again")
				_, err = c[1].RWMutex("x").Reader().TryAcquire(t.Context())
				require.ErrorIs(t, err, redlock.ErrHeld, "one that comes now waits for the writer")
				require.NoError(t, reader.Release(t.Context()))
				require.NoError(t, (<-writer.got).Release(t.Context()))
			})
		})
	}
}

// W2, S2: Readers hold a quorum without the node that is asked first. A writer does not ask it and another one in turn as fast
// as they answer, and still has the lock soon after the readers have left.
func TestAWriterDoesNotHurryWhileReadersHoldAQuorumWithoutTheFirstNode(t *testing.T) {
	for name, lock := range map[string]func(redlock.RWMutex) redlock.Lock{"plain": plainWriter, "fair": fairWriter} {
		for _, stay := range []time.Duration{100 * time.Millisecond, 1300 * time.Millisecond, 2800 * time.Millisecond} {
			t.Run(name+", "+stay.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, c := fairClients(t, 3, 2)
					var sent atomic.Int64
					for _, s := range w.servers {
						s.slow(0, time.Millisecond)
						s.slow(1, time.Millisecond)
						s.links[1].heard = func(direction int, b []byte) {
							if direction == requests {
								sent.Add(int64(bytes.Count(b, []byte("EVALSHA"))))
							}
						}
					}
					first := w.servers[redlock.ProbeFor(c[1], "x")]
					first.slow(0, 50*time.Millisecond)
					time.Sleep(time.Minute) // long enough to have measured the round trips
					reader, err := c[0].RWMutex("x").Reader().Acquire(t.Context())
					require.NoError(t, err)
					require.Equal(t, 2, redlock.KnownToHave(reader))
					writer := awaits(t, lock(c[1].RWMutex("x")))
					sent.Store(0)
					time.Sleep(time.Second)
					require.Less(t, sent.Load(), int64(30), "it asks again and again")
					time.Sleep(stay)
					require.Empty(t, writer.got)
					began := time.Now()
					require.NoError(t, reader.Release(t.Context()))
					l := <-writer.got
					require.NotNil(t, l)
					require.Less(t, time.Since(began), 20*time.Millisecond)
					require.NoError(t, l.Release(t.Context()))
				})
			})
		}
	}
}

// S2: A writer gives up while its question is on the way to the nodes that have not yet told it of readers. It leaves no intent
// there: however often it comes back, another reader gets in.
func TestAnImpatientWriterLeavesNoIntentBehind(t *testing.T) {
	for name, lock := range map[string]func(redlock.RWMutex) redlock.Lock{"plain": plainWriter, "fair": fairWriter} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := fairClients(t, 3, 3)
				for _, s := range w.servers {
					for i := range c {
						s.slow(i, 60*time.Millisecond) // longer than was measured, so all nodes are asked
					}
				}
				old, err := c[0].RWMutex("x").Reader().Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, old.Extend(t.Context())) // all nodes have it
				ctx, cancel := context.WithCancel(t.Context())
				var impatient sync.WaitGroup
				impatient.Go(func() {
					for ctx.Err() == nil {
						short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
						_, err := lock(c[1].RWMutex("x")).Acquire(short)
						assert.Error(t, err)
						cancel()
						time.Sleep(400 * time.Millisecond)
					}
				})
				time.Sleep(3 * time.Second)
				for range 5 {
					began := time.Now()
					reader, err := c[2].RWMutex("x").Reader().Acquire(soon(t))
					if assert.NoError(t, err) {
						assert.Less(t, time.Since(began), time.Second)
						assert.NoError(t, reader.Release(t.Context()))
					}
					time.Sleep(130 * time.Millisecond)
				}
				cancel()
				impatient.Wait()
				require.NoError(t, old.Release(t.Context()))
			})
		})
	}
}
