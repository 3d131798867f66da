package redlock_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// stopsIn is the clock of a process that is stopped once, at the next reading in that function after it was armed.
type stopsIn struct {
	function string
	armed    atomic.Bool
	stop     func()
}

func (c *stopsIn) Now() redlock.Instant {
	if c.armed.Load() {
		var callers [16]uintptr
		frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
		for more := true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if strings.HasSuffix(frame.Function, c.function) && c.armed.CompareAndSwap(true, false) {
				c.stop()
			}
		}
	}
	return redlock.SystemClock().Now()
}

// stepAhead is how far ahead the clock of a node is while it takes a key.
const stepAhead = 40 * time.Second

// Rivals are two clients that want one lock. The second one will ask n for it, get it there, and then its process is stopped.
type rivals struct {
	*world
	first, second *redlock.Client
	stops         *stopsIn // the second one's
	n, m, other   *server
	began         time.Time
	got           chan *redlock.Lease // of the second client, when it goes on
}

func newRivals(t *testing.T, second func(*redlock.Config), first ...func(*redlock.Config)) *rivals {
	w := &rivals{world: virtual(t, 3, 3), stops: &stopsIn{function: "redlock.(*Client).ask"}, got: make(chan *redlock.Lease, 1)}
	w.first = w.connect(t, 0, first...)
	w.second = w.connect(t, 1, second, func(cfg *redlock.Config) { cfg.Clock = w.stops })
	require.NoError(t, w.first.Enroll(t.Context()))
	w.second.Status(t.Context())
	time.Sleep(10 * time.Second)
	probe := redlock.ProbeFor(w.second, "x")
	w.n, w.other, w.m = w.servers[probe], w.servers[(probe+1)%3], w.servers[(probe+2)%3]
	return w
}

func unchanged(*redlock.Config) {}

// at waits until so much time has passed since it began.
func (w *rivals) at(after time.Duration) {
	time.Sleep(after - time.Since(w.began))
	synctest.Wait()
}

// secondIsRefused has the second client ask n first from now on.
func (w *rivals) secondIsRefused(t *testing.T) {
	_, err := w.second.Mutex("x").TryAcquire(t.Context())
	require.ErrorIs(t, err, redlock.ErrHeld)
}

// secondGetsN has the second client get n for so long, and go on at that time.
func (w *rivals) secondGetsN(t *testing.T, ttl, goesOn time.Duration) {
	w.stops.stop = func() { time.Sleep(goesOn - time.Since(w.began)) }
	w.stops.armed.Store(true)
	go func() {
		l, err := w.second.Mutex("x").WithTTL(ttl).WithoutRenewal().TryAcquire(t.Context())
		if err != nil {
			t.Log(err)
		}
		w.got <- l
	}()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	require.False(t, w.stops.armed.Load())
	require.Greater(t, w.n.timeToLive("x"), ttl*2/3)
}

// third is one more client, which knows all nodes.
func (w *rivals) third(t *testing.T) *redlock.Client {
	c := w.connect(t, 2)
	c.Status(t.Context())
	return c
}

// requireOneHolder waits until the second client has the lock, and checks that the first one no longer has.
func (w *rivals) requireOneHolder(t *testing.T, isValid func() bool) {
	other := <-w.got
	require.NotNil(t, other)
	require.True(t, other.Valid())
	require.False(t, isValid(), "two have the lock")
}

func mutexX(c *redlock.Client) redlock.Lock { return c.Mutex("x") }

// In a takeover, the first client has a lease without the node n, which the second one got. The first one reaches n from now on,
// and one of its own nodes no longer, m.
type takeover struct {
	*rivals
	lease *redlock.Lease
}

// A takeoverPlan is when the second client asks, for how long, and when it goes on: the first one's key on m has expired by then.
type takeoverPlan struct {
	asks, ttl, goesOn time.Duration
	lock              func(*redlock.Client) redlock.Lock // the first one's; nil: mutexX
	change            func(*redlock.Config)              // of the first one; nil: none
}

func (p takeoverPlan) begin(t *testing.T) *takeover {
	if p.lock == nil {
		p.lock = mutexX
	}
	if p.change == nil {
		p.change = unchanged
	}
	w := &takeover{rivals: newRivals(t, unchanged, p.change)}
	w.began = time.Now()
	w.n.links[0].hold(requests, +1)
	var err error
	w.lease, err = p.lock(w.first).Acquire(t.Context())
	require.NoError(t, err)
	require.Positive(t, w.m.timeToLive("x"))
	require.Zero(t, w.n.timeToLive("x"))
	w.at(p.asks - 100*time.Millisecond)
	w.secondIsRefused(t)
	w.at(p.asks)
	w.secondGetsN(t, p.ttl, p.goesOn)
	w.n.links[0].hold(requests, -1)
	w.m.links[0].hold(requests, +1)
	return w
}

// takesUnderAWrongClock has the first client reach m again, and its renewal take the key on n, whose clock is then out of step.
func (w *takeover) takesUnderAWrongClock(t *testing.T) {
	w.m.links[0].hold(requests, -1)
	w.n.step(stepAhead)
	require.NoError(t, w.lease.Extend(t.Context()))
	synctest.Wait()
	require.Positive(t, w.n.timeToLive("x"), "n takes the key, and does not count")
}

// C2, R2: A renewal takes the key on a node whose clock has stepped ahead, and the step is hidden by how slowly the other node
// of its quorum is read. It needs that node before it may rely on it, so it has failed.
func TestARenewalDoesNotRelyTooEarlyOnANodeWhoseClockSteppedUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := takeoverPlan{asks: 1200 * time.Millisecond, ttl: 10 * time.Second, goesOn: 10050 * time.Millisecond,
			change: func(cfg *redlock.Config) { cfg.NodeTimeout = 2 * time.Second }}.begin(t)
		w.at(3 * time.Second) // before the first renewal is due
		lag := func(d time.Duration) {
			w.n.links[0].lag[requests].Store(int64(d))
			w.other.links[0].lag[requests].Store(int64(d))
		}
		w.at(7400 * time.Millisecond)
		lag(1900 * time.Millisecond)
		w.at(7600 * time.Millisecond)
		extended := make(chan error, 1)
		go func() { extended <- w.lease.Extend(t.Context()) }()
		synctest.Wait()
		lag(0)
		w.at(9 * time.Second)
		w.n.step(1800 * time.Millisecond)
		require.ErrorIs(t, <-extended, redlock.ErrNoQuorum)
		w.requireOneHolder(t, w.lease.Valid)
		w.m.links[0].hold(requests, -1)
	})
}

// C1, R1: A renewal takes the key on a node whose clock is visibly out of step, and does not count it. Then its clock is set right.
// The key that it ended too early was another client's, whose round counts that node.
func TestANodeThatTookTheKeyUnderAWrongClockDoesNotCountWhenTheClockIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 40 * time.Second
		w := takeoverPlan{asks: 500 * time.Millisecond, ttl: 30 * time.Second, goesOn: 10050 * time.Millisecond}.begin(t)
		w.at(2 * time.Second)
		w.n.step(step)
		w.at(5 * time.Second)
		require.Positive(t, w.n.timeToLive("x"), "the renewal after a third of the TTL has taken it")
		w.n.step(-step)
		w.requireOneHolder(t, w.lease.Valid)
		w.m.links[0].hold(requests, -1)
	})
}

// C1, R1: The same for a node that granted the acquire. It counts when its clock has gone over the time by which it was set back.
func TestANodeThatGrantedUnderAWrongClockCountsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		time.Sleep(10 * time.Second)
		w.servers[0].step(10 * time.Second)
		c := w.connect(t, 0, redlock.AskAll)
		l, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, l.Extend(t.Context()))
		synctest.Wait()
		require.Equal(t, 3, redlock.KnownToHave(l))
		require.Equal(t, 2, redlock.Proven(l))
		w.servers[0].step(-10 * time.Second)
		time.Sleep(6 * time.Second)
		require.Equal(t, 2, redlock.Proven(l))
		w.servers[1].links[0].hold(requests, +1)
		err = l.Extend(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "its clock was set back")
		w.servers[1].links[0].hold(requests, -1)
		time.Sleep(10 * time.Second)
		require.Equal(t, 3, redlock.Proven(l))
		w.servers[1].stop()
		require.NoError(t, l.Extend(t.Context()))
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, all[0].Close())
	})
}

// R1: A renewal that fails for another reason costs no node its vote: it took the key, and its clock is as it was.
func TestANodeThatTookTheKeyInARenewalThatFailedCountsInTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		time.Sleep(10 * time.Second)
		l, err := all[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		var had []*server
		for _, s := range w.servers {
			if s.timeToLive("x") > 0 {
				had = append(had, s)
				s.links[0].hold(requests, +1)
			}
		}
		require.Len(t, had, 2)
		require.ErrorIs(t, l.Extend(t.Context()), redlock.ErrNoQuorum)
		require.Equal(t, 3, redlock.KnownToHave(l))
		require.Equal(t, 2, redlock.Proven(l))
		had[0].links[0].hold(requests, -1)
		had[1].stop()
		require.NoError(t, l.Extend(t.Context()))
		require.Equal(t, 3, redlock.Proven(l))
		require.NoError(t, l.Release(t.Context()))
	})
}

// The same where the key was planted there under a wrong clock (R2).
func TestANodeWhereTheKeyWasPlantedUnderAWrongClockDoesNotCountWhenTheClockIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := takeoverPlan{asks: 500 * time.Millisecond, ttl: 30 * time.Second, goesOn: 14 * time.Second}.begin(t)
		w.takesUnderAWrongClock(t)
		w.n.tell("DEL", "x")
		require.NoError(t, w.lease.Extend(t.Context()))
		synctest.Wait()
		require.Positive(t, w.n.timeToLive("x"), "the key is planted")
		w.n.step(-stepAhead)
		require.NoError(t, w.lease.Extend(t.Context()))
		synctest.Wait()
		w.m.links[0].hold(requests, +1)
		w.requireOneHolder(t, w.lease.Valid)
		w.m.links[0].hold(requests, -1)
	})
}

// D3, D4: The ticket must not be on a node that does not count for the giver.
func TestATicketIsNotOnANodeThatTookTheKeyUnderAWrongClock(t *testing.T) {
	for _, right := range []string{"before the hand-over", "after it"} {
		t.Run(right, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := takeoverPlan{asks: 500 * time.Millisecond, ttl: 30 * time.Second, goesOn: 14 * time.Second}.begin(t)
				third := w.third(t)
				w.takesUnderAWrongClock(t)
				if right == "before the hand-over" {
					w.n.step(-stepAhead)
				}
				ticket, err := w.lease.Detach(t.Context())
				require.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				require.Zero(t, w.n.timeToLive("x"))
				if right == "after it" {
					w.n.step(-stepAhead)
				}
				w.m.links[2].hold(requests, +1)
				_, err = third.Adopt(t.Context(), ticket)
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				w.m.links[2].hold(requests, -1)
				require.NotNil(t, <-w.got)
			})
		})
	}
}

// S4: A writer's renewal takes the key on a node under a wrong clock. The answer comes when the lease is a reader's.
func TestAReaderThatWroteDoesNotCountANodeThatTookTheKeyUnderAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := takeoverPlan{asks: 500 * time.Millisecond, ttl: 30 * time.Second, goesOn: 14 * time.Second,
			lock: func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }}.begin(t)
		w.m.links[0].hold(requests, -1)
		w.n.step(stepAhead)
		w.n.links[0].hold(replies, +1)
		require.NoError(t, w.lease.Extend(t.Context()))
		synctest.Wait()
		require.Positive(t, w.n.timeToLive("x"), "n takes the key")
		w.n.step(-stepAhead)
		reader, err := w.lease.Downgrade(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		w.n.links[0].hold(replies, -1)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 2, redlock.Proven(reader))
		w.m.links[0].hold(requests, +1)
		w.requireOneHolder(t, reader.Valid)
		w.m.links[0].hold(requests, -1)
	})
}

// The answer to the renewal that took the key under a wrong clock is lost.
func TestALostAnswerDoesNotHideThatTheKeyWasTakenUnderAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := takeoverPlan{asks: 500 * time.Millisecond, ttl: 30 * time.Second, goesOn: 14 * time.Second}.begin(t)
		w.m.links[0].hold(requests, -1)
		w.n.step(stepAhead)
		w.n.links[0].hold(replies, +1)
		require.NoError(t, w.lease.Extend(t.Context()))
		synctest.Wait()
		require.Positive(t, w.n.timeToLive("x"), "n takes the key")
		w.n.links[0].reset()
		w.n.links[0].hold(replies, -1)
		w.n.step(-stepAhead)
		time.Sleep(time.Second) // it connects again
		require.NoError(t, w.lease.Extend(t.Context()))
		synctest.Wait()
		require.Equal(t, 3, redlock.KnownToHave(w.lease))
		require.Equal(t, 2, redlock.Proven(w.lease))
		w.m.links[0].hold(requests, +1)
		w.requireOneHolder(t, w.lease.Valid)
		w.m.links[0].hold(requests, -1)
	})
}

// The late grant of an acquire shows a wrong clock, but its answer comes after the first renewal was sent.
func TestALateGrantUnderAWrongClockIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noFence := func(cfg *redlock.Config) { cfg.NoFence = true } // otherwise the second's older ballot is refused
		w := newRivals(t, noFence, noFence)
		l, err := w.first.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		w.secondIsRefused(t)
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()

		w.began = time.Now()
		w.secondGetsN(t, 30*time.Second, 10600*time.Millisecond)
		w.n.step(stepAhead) // its key is gone
		require.Zero(t, w.n.timeToLive("x"))
		w.n.links[0].hold(replies, +1)
		l, err = w.first.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.Positive(t, w.n.timeToLive("x"), "it has granted, and its answer is on its way")
		w.n.step(-stepAhead)
		require.NoError(t, l.Extend(t.Context()))
		synctest.Wait()
		w.n.links[0].hold(replies, -1) // both answers
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		w.m.links[0].hold(requests, +1)
		w.requireOneHolder(t, l.Valid)
		w.m.links[0].hold(requests, -1)
	})
}

// In a retaking, the first client's key on n was lost, and taken anew by a renewal while n's clock was ahead. In between, the
// second client got n. n's clock is right again, and its answer to the renewal is on its way.
type retaking struct {
	*rivals
	lease    *redlock.Lease
	extended chan error
}

// retake makes one. heard says that the late grant of the acquire was heard before the key was lost. goesOn is when the second
// client does: the key on m has expired by then.
func retake(t *testing.T, lock func(*redlock.Client) redlock.Lock, heard bool, goesOn time.Duration) *retaking {
	patient := func(cfg *redlock.Config) { cfg.NodeTimeout = 2 * time.Second }
	w := &retaking{rivals: newRivals(t, unchanged, redlock.AskAll, patient), extended: make(chan error, 1)}
	w.n.links[0].hold(replies, +1)
	w.began = time.Now()
	var err error
	w.lease, err = lock(w.first).Acquire(t.Context())
	require.NoError(t, err)
	synctest.Wait()
	require.Positive(t, w.n.timeToLive("x"), "it has granted, and its answer is on its way")
	w.n.links[0].hold(requests, +1)
	w.extend(t)
	synctest.Wait()
	if heard {
		w.n.links[0].hold(replies, -1)
		w.at(50 * time.Millisecond)
		w.n.links[0].hold(replies, +1)
	}
	w.secondIsRefused(t)
	w.n.step(stepAhead)
	require.Zero(t, w.n.timeToLive("x"), "the key there has expired")
	w.n.step(-stepAhead)
	w.secondGetsN(t, 30*time.Second, goesOn)
	w.n.step(stepAhead)
	require.Zero(t, w.n.timeToLive("x"))
	w.n.links[0].hold(requests, -1) // the renewal takes the key
	w.at(200 * time.Millisecond)
	require.Positive(t, w.n.timeToLive("x"))
	w.n.step(-stepAhead)
	require.NoError(t, <-w.extended)
	return w
}

func (w *retaking) extend(t *testing.T) { go func() { w.extended <- w.lease.Extend(t.Context()) }() }

// requireOneHolder cuts the first client off from m before.
func (w *retaking) requireOneHolder(t *testing.T, isValid func() bool) {
	w.m.links[0].hold(requests, +1)
	w.rivals.requireOneHolder(t, isValid)
	w.m.links[0].hold(requests, -1)
}

// R1: The late grant of an acquire proves nothing of a key that was taken anew.
func TestALateGrantProvesNothingOfAKeyThatWasTakenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := retake(t, mutexX, false, 13*time.Second)
		w.n.links[0].hold(replies, -1)
		w.at(time.Second)
		w.extend(t)
		require.NoError(t, <-w.extended)
		w.at(1100 * time.Millisecond)
		require.Equal(t, 2, redlock.Proven(w.lease))
		w.requireOneHolder(t, w.lease.Valid)
	})
}

// R1: The next renewal is sent before the answer to the taking comes.
func TestARenewalThatWasSentBeforeTheAnswerToATakingDoesNotCountTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := retake(t, mutexX, true, 11*time.Second)
		w.m.links[0].hold(requests, +1)
		w.at(3 * time.Second)
		w.extend(t)
		w.at(3100 * time.Millisecond)
		w.n.links[0].hold(replies, -1)
		<-w.extended
		w.requireOneHolder(t, w.lease.Valid)
		w.m.links[0].hold(requests, -1)
	})
}

// R1, S4: The writer becomes a reader before the answer to its taking comes, or after it.
func TestAReaderKnowsThatAKeyOfItsWriterWasTakenAnew(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(map[bool]string{false: "before the answer", true: "after it"}[after], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := retake(t, func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }, true, 13*time.Second)
				if after {
					w.n.links[0].hold(replies, -1)
					w.at(300 * time.Millisecond)
				}
				reader, err := w.lease.Downgrade(t.Context())
				require.NoError(t, err)
				if !after {
					w.n.links[0].hold(replies, -1)
				}
				w.at(time.Second)
				require.Equal(t, 2, redlock.Proven(reader))
				w.requireOneHolder(t, reader.Valid)
			})
		})
	}
}

// R1: The first client's key on n has expired, and n has granted the second one, when n gets the data of m, and the key again
// with it. Its quarantine keeps other clients from n, but not the first one's renewals, as long as n is proven.
func TestANodeThatGotTheKeyWithTheDataOfAnotherDoesNotCount(t *testing.T) {
	for name, of := range map[string]struct{ restarted, detaches bool }{
		"a replica that was promoted": {},
		"a copy of the files":         {restarted: true},
		"a ticket":                    {detaches: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRivals(t, unchanged)
				w.began = time.Now()
				lease, err := w.first.Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				w.spread(t, lease) // n has the key, and is proven
				w.at(time.Second)
				w.n.links[0].hold(requests, +1)
				w.at(16 * time.Second)
				require.NotContains(t, w.having("x"), w.n)
				require.True(t, lease.Valid())
				w.secondIsRefused(t)
				w.secondGetsN(t, 30*time.Second, 32*time.Second)
				w.at(17 * time.Second)
				w.n.withDataOf(w.m, of.restarted)
				w.n.links[0].hold(requests, -1)
				w.at(18 * time.Second)
				w.m.links[0].hold(requests, +1)
				if of.detaches {
					w.at(20 * time.Second) // n is reached again
					_, err := lease.Detach(t.Context())
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
				}
				w.requireOneHolder(t, lease.Valid)
			})
		})
	}
}
