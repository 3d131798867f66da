package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// D3, C2, R1: What a node has for a lease that the lease does not rely on, or not yet. The cast is that of
// proven_virtual_test.go: the first client holds the lock, the second one was granted it by n before n's clock was wrong, and
// is about to ask m.

type detached struct {
	ticket redlock.Ticket
	err    error
}

func detach(t *testing.T, l *redlock.Lease) <-chan detached {
	done := make(chan detached, 1)
	go func() {
		ticket, err := l.Detach(t.Context())
		done <- detached{ticket, err}
	}()
	return done
}

// requireOneOwner lets the third client adopt the ticket without m, which frees the lock that it has for the ticket, and then
// lets the second one go on.
func (w *rivals) requireOneOwner(t *testing.T, third *redlock.Client, ticket redlock.Ticket) {
	w.m.links[2].hold(requests, +1)
	adopted, err := third.Adopt(t.Context(), ticket)
	w.m.links[2].reset()
	w.m.links[2].hold(requests, -1)
	other := <-w.got
	require.False(t, err == nil && adopted.Valid() && other != nil && other.Valid(), "two have the lock")
}

// D3: The ticket never comes to a node that does not count for the giver. To release it there would be too late: the taker may
// be faster, or the giver cut off from that node.
func TestNoTicketComesToANodeThatTheGiverDistrusts(t *testing.T) {
	for how, obstruct := range map[string]func(toNode *link){
		"far from it": func(l *link) { l.lag[requests].Store(int64(40 * time.Millisecond)) },
		"cut off from it": func(l *link) {
			l.hold(replies, +1)
			time.AfterFunc(100*time.Millisecond, func() { l.hold(requests, +1) })
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := takeoverPlan{asks: 500 * time.Millisecond, ttl: 30 * time.Second, goesOn: 3 * time.Second}.begin(t)
				third := w.third(t)
				w.takesUnderAWrongClock(t)
				w.n.step(-stepAhead)
				obstruct(w.n.links[0])
				ticket, err := w.lease.Detach(t.Context())
				require.NoError(t, err)
				w.m.links[2].hold(requests, +1) // so n is the one that the taker would need
				_, err = third.Adopt(t.Context(), ticket)
				require.Error(t, err)
				w.m.links[2].hold(requests, -1)
				<-w.got // it may rely on n
			})
		})
	}
}

// The first client's renewal took the lock on n anew. Its answer comes while Detach waits for the swap.
func TestANodeThatIsFoundOutAfterTheSwapWasSentDoesNotKeepTheTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := retake(t, mutexX, true, 3*time.Second)
		third := w.third(t)
		done := detach(t, w.lease)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		w.n.links[0].hold(replies, -1)
		d := <-done
		require.NoError(t, d.err)
		w.requireOneOwner(t, third, d.ticket)
	})
}

// That answer is lost with its connection, and the grant of the acquire was heard before.
func TestALostAnswerDoesNotHideThatANodeTookTheLockAnew(t *testing.T) {
	lost := func(t *testing.T, lock func(*redlock.Client) redlock.Lock, goesOn time.Duration) *retaking {
		w := retake(t, lock, true, goesOn)
		w.n.links[0].reset()
		w.n.links[0].hold(replies, -1)
		w.at(2 * time.Second) // it connects again
		return w
	}
	t.Run("then it is renewed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := lost(t, mutexX, 13*time.Second)
			require.NoError(t, w.lease.Extend(t.Context()))
			synctest.Wait()
			w.requireOneHolder(t, w.lease.Valid)
		})
	})
	t.Run("then it becomes a reader's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := lost(t, func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Writer() }, 13*time.Second)
			reader, err := w.lease.Downgrade(t.Context())
			require.NoError(t, err)
			synctest.Wait()
			w.requireOneHolder(t, reader.Valid)
		})
	})
	t.Run("then it is handed over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := lost(t, mutexX, 4*time.Second)
			third := w.third(t)
			ticket, err := w.lease.Detach(t.Context())
			require.NoError(t, err)
			w.requireOneOwner(t, third, ticket)
		})
	})
}

// C2: The renewal takes the lock on n under a clock whose step slow requests hide. It is valid at once without n, and n counts
// too, but only later. Whoever has the ticket does not know that.
func TestATicketWaitsUntilItsNodesMayBeReliedOn(t *testing.T) {
	for name, c := range map[string]struct {
		plan                            takeoverPlan
		hears, detaches, arrives, slows time.Duration
		step                            time.Duration
	}{
		"far away": {plan: takeoverPlan{asks: 1200 * time.Millisecond, ttl: 10 * time.Second, goesOn: 10050 * time.Millisecond,
			change: func(cfg *redlock.Config) { cfg.NodeTimeout = 2 * time.Second }},
			hears: 7400 * time.Millisecond, detaches: 7600 * time.Millisecond, arrives: 9 * time.Second,
			slows: 1900 * time.Millisecond, step: 1800 * time.Millisecond},
		"by default": {plan: takeoverPlan{asks: 4980 * time.Millisecond, ttl: 2 * time.Second, goesOn: 6735 * time.Millisecond},
			detaches: 6450 * time.Millisecond, arrives: 6690 * time.Millisecond,
			slows: 245 * time.Millisecond, step: 290 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := c.plan.begin(t)
				w.m.links[0].hold(requests, -1)
				if c.hears != 0 {
					w.n.links[0].hold(requests, +1) // so n never has the first one's lock before
				}
				third := w.third(t)
				if c.hears != 0 {
					w.at(c.hears)
					w.n.links[0].hold(requests, -1)
					w.n.links[0].reset()
				}
				w.at(c.detaches - 50*time.Millisecond)
				w.lag(c.slows)
				w.at(c.detaches)
				done := detach(t, w.lease)
				synctest.Wait()
				w.lag(0)
				w.at(c.arrives)
				w.n.step(c.step)
				d := <-done
				w.n.step(-c.step)
				require.NoError(t, d.err)
				w.requireOneOwner(t, third, d.ticket)
			})
		})
	}
}

// N2: For the giver n is unfit for a moment: it calls itself a replica. So the renewal says nothing about n's clock, and there
// is no quarantine.
func TestATicketIsNotOnANodeThatIsUnfitForTheGiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := takeoverPlan{asks: 500 * time.Millisecond, ttl: 30 * time.Second, goesOn: 6 * time.Second}.begin(t)
		w.at(3 * time.Second)
		third := w.third(t)
		w.takesUnderAWrongClock(t)
		w.n.step(-stepAhead)
		w.n.commands.Change(func(id *existence) { id.Replica = true })
		for range 1000 {
			if redlock.IsUnfit(w.first, w.n.index) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.True(t, redlock.IsUnfit(w.first, w.n.index))
		w.n.commands.Change(func(id *existence) { id.Replica = false })
		ticket, err := w.lease.Detach(t.Context())
		require.NoError(t, err)
		w.requireOneOwner(t, third, ticket)
	})
}

// H1: A lock that was taken away is a loss also after its validity, while its keys would have lived for its minimum hold.
func TestAMinimumHoldThatWasTakenAwayIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		l, err := all[0].Mutex("x").WithTTL(2 * time.Second).WithMinHold(20 * time.Second).WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		for _, s := range w.servers {
			s.tell("DEL", "x")
		}
		time.Sleep(l.Remaining() - 50*time.Millisecond)
		w.lag(100 * time.Millisecond)
		require.True(t, l.Valid())
		require.ErrorIs(t, l.Release(t.Context()), redlock.ErrLost)
	})
}
