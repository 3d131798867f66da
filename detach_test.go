package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// sent is the ticket after its way as a text.
func sent(t *testing.T, ticket redlock.Ticket) (received redlock.Ticket) {
	t.Helper()
	text, err := ticket.MarshalText()
	require.NoError(t, err)
	require.NoError(t, received.UnmarshalText(text))
	require.Equal(t, ticket, received)
	return received
}

func TestALockIsHandedToAnotherProcess(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprint("fence=", fenced), func(t *testing.T) {
			onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
				ctx := soon(t)
				plain := func(cfg *redlock.Config) { cfg.NoFence = !fenced }
				a, b, c := openFresh(t, f, plain), openFresh(t, f, plain), openFresh(t, f, plain)
				require.NoError(t, a.Enroll(ctx, redlock.ChangeConfig()))
				l, err := a.Mutex("x", "y").WithTTL(5 * time.Second).WithOwner("import").Acquire(ctx)
				require.NoError(t, err)
				own, old := l.Context(), l.Token()
				ticket, err := l.Detach(own)
				require.NoError(t, err, "also under the context that ends")
				require.False(t, l.Valid())
				require.ErrorIs(t, context.Cause(own), redlock.ErrReleased)
				require.NoError(t, l.Release(ctx), "it does nothing")
				require.ErrorIs(t, l.Extend(ctx), redlock.ErrReleased)
				_, err = l.Detach(ctx)
				require.ErrorIs(t, err, redlock.ErrReleased)
				require.Equal(t, []string{"x", "y"}, ticket.Names())
				require.NotEqual(t, old, ticket.Token())
				require.Greater(t, ticket.Expires(), 4*time.Second)
				require.Less(t, ticket.Expires(), 5*time.Second)
				require.ErrorIs(t, c.ReleaseToken(ctx, "x", old), redlock.ErrLost, "the old token is of no use")

				_, err = c.Mutex("x").TryAcquire(ctx)
				require.ErrorIs(t, err, redlock.ErrHeld)
				require.Equal(t, "import", holderOf(t, err).Label)

				taken, err := b.Adopt(ctx, sent(t, ticket))
				require.NoError(t, err)
				require.True(t, taken.Valid())
				require.Equal(t, []string{"x", "y"}, taken.Names())
				if fenced {
					require.Greater(t, taken.Fence(), l.Fence())
				}
				require.Less(t, taken.Remaining(), 5*time.Second)
				_, err = c.Mutex("y").TryAcquire(ctx)
				require.ErrorIs(t, err, redlock.ErrHeld)
				require.Equal(t, "import", holderOf(t, err).Label)
				require.NoError(t, taken.Extend(ctx))

				_, err = c.Adopt(ctx, ticket)
				require.ErrorIs(t, err, redlock.ErrTicketUsed)
				require.ErrorIs(t, err, redlock.ErrHeld)
				require.NotErrorIs(t, err, redlock.ErrTicketExpired)
				require.NotErrorIs(t, err, redlock.ErrNoQuorum)
				require.NotErrorIs(t, err, redlock.ErrLost)
				require.NoError(t, taken.Extend(ctx), "who came second took nothing")
				require.NoError(t, taken.Release(ctx))
				clears(t, f, "x")
				_, err = c.Adopt(ctx, ticket)
				require.ErrorIs(t, err, redlock.ErrTicketExpired)
				require.ErrorIs(t, err, redlock.ErrLost)
				require.NotErrorIs(t, err, redlock.ErrHeld)
				next, err := c.Mutex("x").Acquire(ctx)
				require.NoError(t, err)
				require.NoError(t, next.Release(ctx))
			})
		})
	}
}

// Servers that have forgotten their scripts get all of them again with the first that is missed. So a hand-over does not
// fail because nothing but renewals has missed any since: it would cost the lease, because the holder has stopped by then.
func TestAHandOverDoesNotFailBecauseServersForgotTheirScripts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 2)
		l, err := all[0].Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		w.forgetScripts()
		time.Sleep(10 * time.Second) // the client renews the lease
		require.NoError(t, l.Extend(t.Context()))
		ticket, err := l.Detach(t.Context())
		require.NoError(t, err)
		taken, err := all[1].Adopt(t.Context(), ticket)
		require.NoError(t, err)
		require.NoError(t, taken.Release(t.Context()))
	})
}

func TestAHandOverThatIsRefusedLeavesTheLeaseAsItWas(t *testing.T) {
	f, ctx := startNodes(t, 3), soon(t)
	c := open(t, f)
	l, err := c.Mutex("x").WithMinHold(time.Second).Acquire(ctx)
	require.NoError(t, err)
	_, err = l.Detach(ctx)
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.True(t, l.Valid())
	require.NoError(t, l.Release(ctx))

	outer, err := c.Mutex("y").Reentrant().Acquire(ctx)
	require.NoError(t, err)
	inner, err := c.Mutex("y").Reentrant().Acquire(outer.Context())
	require.NoError(t, err)
	for _, l := range []*redlock.Lease{outer, inner} {
		_, err = l.Detach(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.True(t, l.Valid())
	}
	require.NoError(t, inner.Release(ctx))
	ticket, err := outer.Detach(ctx)
	require.NoError(t, err)
	require.NoError(t, outer.Release(ctx))

	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Pause())
	}
	_, err = c.Adopt(ctx, ticket)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Resume())
	}
	require.Eventually(t, func() bool {
		l, err = c.Adopt(ctx, ticket)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond, "an outage costs the ticket nothing")
	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Pause())
	}
	_, err = l.Detach(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.True(t, l.Valid(), "it could not be renewed, and goes on")
	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Resume())
	}
	require.NoError(t, l.Release(ctx))

	_, err = c.Adopt(ctx, redlock.Ticket{})
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.NoError(t, c.Close())
	_, err = l.Detach(ctx)
	require.ErrorIs(t, err, redlock.ErrReleased)
	_, err = c.Adopt(ctx, ticket)
	require.ErrorIs(t, err, redlock.ErrClosed)
}

// D3: If the nodes do not confirm the swap, there is no ticket, and nothing stays behind under either token.
func TestADetachThatFailsLeavesNothing(t *testing.T) {
	for _, caller := range []string{"patient", "impatient", "closing"} {
		t.Run(caller, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 2)
				c, other := w.connect(t, 0), w.connect(t, 1)
				require.NoError(t, c.Enroll(t.Context()))
				other.Status(t.Context())
				for _, s := range w.servers {
					s.slow(0, 20*time.Millisecond)
				}
				time.Sleep(time.Minute)
				l, err := c.Mutex("x").WithTTL(30 * time.Second).Acquire(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					<-l.Context().Done()              // the renewal is confirmed
					time.Sleep(10 * time.Millisecond) // and the swap is on its way
					switch caller {
					case "impatient":
						cancel()
					case "closing":
						_ = c.Close()
					default:
						for _, s := range w.servers[:2] { // it arrives, and the answer does not
							s.links[0].hold(replies, +1)
						}
					}
				}()
				_, err = l.Detach(ctx)
				require.ErrorIs(t, err, map[string]error{"patient": redlock.ErrNoQuorum, "impatient": context.Canceled, "closing": redlock.ErrClosed}[caller])
				require.False(t, l.Valid())
				require.Equal(t, err, l.Release(t.Context()))
				for _, s := range w.servers[:2] {
					if caller == "patient" {
						s.links[0].hold(replies, -1)
					}
				}
				time.Sleep(2 * time.Second)
				for i, s := range w.servers {
					require.Zero(t, s.timeToLive("x"), "node %d", i)
				}
				next, err := other.Mutex("x").TryAcquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, next.Release(t.Context()))
			})
		})
	}
}

// A process may be stopped for a minute between any two lines. Its ticket is then too late, or it adopts nothing, and
// nobody is harmed.
func TestAHandOverInWhichAProcessStopsForAMinute(t *testing.T) {
	for _, who := range []string{"giver, before the swap", "giver, before the answer", "taker, before its round", "taker, before the answer"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 3)
				giver, taker, third := all[0], all[1], all[2]
				for _, s := range w.servers {
					s.slow(0, 20*time.Millisecond)
					s.slow(1, 20*time.Millisecond)
				}
				time.Sleep(time.Minute)
				stall := func(client int, after time.Duration, way int) {
					time.Sleep(after)
					for _, s := range w.servers {
						s.links[client].hold(way, +1)
					}
					time.Sleep(time.Minute)
					for _, s := range w.servers {
						s.links[client].hold(way, -1)
					}
				}
				l, err := giver.Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				switch who {
				case "giver, before the swap":
					go stall(0, 15*time.Millisecond, requests)
				case "giver, before the answer":
					go func() {
						<-l.Context().Done() // it swaps
						stall(0, 10*time.Millisecond, replies)
					}()
				}
				ticket, err := l.Detach(t.Context())
				require.False(t, l.Valid() && err == nil)
				if err == nil {
					switch who {
					case "taker, before its round":
						go stall(1, 0, requests)
					case "taker, before the answer":
						go stall(1, 0, replies)
					}
					time.Sleep(time.Millisecond)
					_, err = taker.Adopt(t.Context(), ticket)
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
				}
				next, err := third.Mutex("x").Acquire(t.Context()) // when it has expired
				require.NoError(t, err)
				time.Sleep(2 * time.Minute)
				require.True(t, next.Valid(), "nothing that arrived late took it")
				require.False(t, l.Valid())
				for _, owner := range w.owners("x") {
					require.Equal(t, next.Token(), owner)
				}
				require.NoError(t, next.Release(t.Context()))
			})
		})
	}
}

// D3: The giver stands still while the nodes swap, for longer than NodeTimeout and less than the ticket lasts. Then either
// there is a ticket, and a quorum has its keys, or there is none, and nothing of it is left.
func TestAGiverThatStandsStillWhileTheNodesSwapKeepsTheTicketOrReleasesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		clock := &leaping{Clock: redlock.SystemClock()}
		giver, third := w.connect(t, 0, func(cfg *redlock.Config) { cfg.Clock = clock }), w.connect(t, 1)
		require.NoError(t, giver.Enroll(t.Context()))
		third.Status(t.Context())
		for _, s := range w.servers {
			s.slow(0, 20*time.Millisecond)
		}
		l, err := giver.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		go func() { // the renewal takes 20 ms, and the swap as long
			time.Sleep(30 * time.Millisecond)
			clock.slept.Store(int64(500 * time.Millisecond))
		}()
		ticket, err := l.Detach(t.Context())
		time.Sleep(50 * time.Millisecond)
		have := 0
		for _, owner := range w.owners("x") {
			if owner != "" {
				require.Equal(t, ticket.Token(), owner)
				have++
			}
		}
		if err != nil {
			require.Zero(t, have)
			return
		}
		require.GreaterOrEqual(t, have, 2, "a quorum")
		_, err = third.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
	})
}

// Do releases nothing of what its function has handed on.
func TestDoLeavesALockThatItsFunctionHandedOn(t *testing.T) {
	f, ctx := startNodes(t, 3), soon(t)
	c := open(t, f)
	var ticket redlock.Ticket
	require.NoError(t, c.Mutex("x").Do(ctx, func(ctx context.Context, l *redlock.Lease) (err error) {
		ticket, err = l.Detach(ctx)
		return err
	}))
	l, err := c.Adopt(ctx, ticket)
	require.NoError(t, err)
	require.NoError(t, l.Release(ctx))
}

// A ticket may be given up: the lock is then free at once.
func TestATicketIsGivenUpByItsToken(t *testing.T) {
	f, ctx := startNodes(t, 3), soon(t)
	a, b := open(t, f), open(t, f)
	l, err := a.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	ticket, err := l.Detach(ctx)
	require.NoError(t, err)
	require.NoError(t, b.ReleaseToken(ctx, "x", ticket.Token()))
	_, err = b.Adopt(ctx, ticket)
	require.ErrorIs(t, err, redlock.ErrTicketExpired)
	require.False(t, errors.Is(err, redlock.ErrTicketUsed))
	clears(t, f, "x")
	next, err := b.Mutex("x").TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, next.Release(ctx))
}

// D3: A node that swaps later than a quorum has nothing left of a ticket that was used at once, or given up.
func TestNothingOfATicketIsLeftOnANodeThatSwapsLater(t *testing.T) {
	for _, late := range []time.Duration{10 * time.Millisecond, nodeTimeout - 10*time.Millisecond, nodeTimeout + 10*time.Millisecond, 4 * nodeTimeout} {
		for _, adopted := range []bool{false, true} {
			t.Run(fmt.Sprintf("late=%v adopted=%v", late, adopted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, giver, taker := giverAndTaker(t)
					l, err := giver.Mutex("x").Acquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, l.Extend(t.Context()))
					synctest.Wait()
					w.servers[2].slow(0, late)
					ticket, err := l.Detach(t.Context())
					require.NoError(t, err)
					left := make([]string, 3)
					if adopted {
						lease, err := taker.Adopt(t.Context(), ticket)
						require.NoError(t, err)
						require.NoError(t, lease.Extend(t.Context()))
						defer lease.Release(t.Context())
						left = slices.Repeat([]string{lease.Token()}, 3)
					} else {
						require.NoError(t, taker.ReleaseToken(t.Context(), "x", ticket.Token()))
					}
					time.Sleep(4 * time.Second) // the ticket lasts for ten
					require.Equal(t, left, w.owners("x"))
				})
			})
		}
	}
}

// ticketOf acquires the lock and hands it over.
func ticketOf(t *testing.T, lock redlock.Lock) redlock.Ticket {
	t.Helper()
	l, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	ticket, err := l.Detach(t.Context())
	require.NoError(t, err)
	return ticket
}

// giverAndTaker are two clients of three enrolled nodes, in virtual time.
func giverAndTaker(t *testing.T) (w *world, giver, taker *redlock.Client) {
	w, all := enrolled(t, 2)
	return w, all[0], all[1]
}

// H, D3: A minimum hold that is over does not begin again with the ticket. Otherwise the nodes would keep the lock for
// somebody who does not come, far longer than Ticket.Expires says.
func TestATicketExpiresInTimeAlsoAfterAMinimumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, giver, taker := giverAndTaker(t)
		l, err := giver.Mutex("x").WithTTL(time.Second).WithMinHold(20 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(21 * time.Second)
		ticket, err := l.Detach(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, ticket.Expires(), time.Second)
		time.Sleep(time.Second + 50*time.Millisecond)
		next, err := taker.Mutex("x").TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, next.Release(t.Context()))
	})
}

// Q1: A node in quarantine may have forgotten somebody's lease, so what it has for a ticket is no vote.
func TestANodeInQuarantineGivesNoTicketToAnybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, giver, taker := giverAndTaker(t)
		l, err := giver.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context()))
		ticket, err := l.Detach(t.Context())
		require.NoError(t, err)
		w.servers[2].save()
		w.servers[2].stop()
		w.servers[2].start(true)
		time.Sleep(4 * time.Second)
		w.servers[0].stop()
		require.Equal(t, ticket.Token(), w.owners("x")[2])
		_, err = taker.Adopt(t.Context(), ticket)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		var quarantine *redlock.QuarantineError
		require.ErrorAs(t, err, &quarantine)
	})
}

// D3: A swap that the network held up arrives when the ticket has been used. What it writes is released.
func TestASwapThatArrivesLateLeavesNothing(t *testing.T) {
	for _, late := range []time.Duration{500 * time.Millisecond, 15 * time.Second} { // then its connection has ended
		t.Run(late.String(), func(t *testing.T) { swapThatArrivesLate(t, late) })
	}
}

func swapThatArrivesLate(t *testing.T, late time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		w, giver, taker := giverAndTaker(t)
		l, err := giver.Mutex("x").WithTTL(30 * time.Second).Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context()))
		synctest.Wait()
		w.servers[2].links[0].hold(requests, +1)
		ticket, err := l.Detach(t.Context())
		require.NoError(t, err)
		taken, err := taker.Adopt(t.Context(), ticket)
		require.NoError(t, err)
		require.Equal(t, l.Token(), w.owners("x")[2], "it has not heard of all that")
		require.NoError(t, taken.Release(t.Context()))
		time.Sleep(late)
		w.servers[2].links[0].hold(requests, -1)
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"", "", ""}, w.owners("x"))
	})
}
