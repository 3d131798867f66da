package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// votesWithin fails the test if the client does not say within this time that the node votes.
func votesWithin(t *testing.T, c *redlock.Client, node int, patience time.Duration) {
	t.Helper()
	began := time.Now()
	for c.Status(t.Context())[node].Err != nil {
		require.Less(t, time.Since(began), patience, "%v", c.Status(t.Context())[node].Err)
		time.Sleep(time.Second)
	}
}

// Q1: A server's clock is wrong, and one of two clients does not reach all others. So the two hear different clocks. The
// node that was flushed votes again all the same when its quarantine is over: most of the clocks are in step.
func TestAQuarantineEndsThoughClientsHearDifferentClocks(t *testing.T) {
	for _, of := range []struct {
		nodes, wrong int
		away         []int // from the second client
	}{
		{nodes: 3, wrong: 2, away: []int{2}},
		{nodes: 3, wrong: 2, away: []int{1}}, // it hears only the wrong one
		{nodes: 5, wrong: 4, away: []int{2, 3}},
		{nodes: 5, wrong: 1, away: []int{3, 4}},
	} {
		for _, by := range []time.Duration{0, -10 * time.Second, 10 * time.Second} {
			t.Run(fmt.Sprintf("%+v by %v", of, by), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := virtual(t, of.nodes, 2)
					all, some := w.connect(t, 0), w.connect(t, 1)
					require.NoError(t, all.Enroll(t.Context()))
					some.Status(t.Context())
					w.servers[of.wrong].step(by)
					for _, i := range of.away {
						w.servers[i].links[1].hold(requests, +1)
					}
					time.Sleep(10 * time.Second) // by then, every client knows every clock
					w.servers[0].flush()
					some.Status(t.Context())
					votesWithin(t, all, 0, time.Minute)
					l, err := all.Mutex("x").TryAcquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, l.Release(t.Context()))
				})
			})
		}
	}
}

// Q1: Without a clock band, servers vote whatever their clocks show. A quarantine counts how far these go, and not what
// they show.
func TestWithoutAClockBandAQuarantineEndsThoughNoClocksAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		for i, s := range w.servers {
			s.step(time.Duration(i) * time.Hour)
		}
		c := w.connect(t, 0, func(cfg *redlock.Config) { cfg.ClockBand = -1 })
		require.NoError(t, c.Enroll(t.Context()))
		w.servers[0].flush()
		votesWithin(t, c, 0, time.Minute)
	})
}

// Status does not take the answer to a question that the server answered before Status was called.
func TestStatusIsNotOlderThanItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		c := w.connect(t, 0)
		require.NoError(t, c.Enroll(t.Context()))
		synctest.Wait()
		w.servers[0].slow(0, 4*time.Millisecond)
		go c.Status(t.Context())         // INFO arrives at 2 ms, and its answer at 4 ms
		time.Sleep(7 * time.Millisecond) // ready.lua has been answered at 6 ms
		w.servers[0].flush()
		require.Error(t, c.Status(t.Context())[0].Err)
	})
}

// Q1: The clock of a server that restarted was behind, and is set right. Then another one is wrong, by as much and ahead.
// For a client that hears no other, both clocks of the quarantine agree that it is over.
func TestAQuarantineIsNotEndedByOneWrongClockAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const by = 25 * time.Second
		w := virtual(t, 3, 2)
		all := w.connect(t, 0)
		require.NoError(t, all.Enroll(t.Context()))
		w.servers[0].step(-by)
		w.servers[0].flush()
		require.Error(t, all.Status(t.Context())[0].Err)
		require.NoError(t, all.Close())
		w.servers[0].step(by)
		w.servers[2].step(by)
		w.servers[1].links[1].hold(requests, +1)
		some := w.connect(t, 1)
		for range 29 { // a lease of MaxTTL may last for so long
			require.Error(t, some.Status(t.Context())[0].Err)
			time.Sleep(time.Second)
		}
		w.servers[2].step(-by)
		votesWithin(t, some, 0, time.Minute)
	})
}

// without leaves these nodes out of a client's reach.
func without(nodes ...int) func(*redlock.Config) {
	return func(cfg *redlock.Config) {
		for _, node := range nodes {
			cfg.Nodes[node].Dial = func(context.Context) (redis.Conn, error) { return nil, errors.New("no route") }
		}
	}
}

// leaseOf is a lease that only these two nodes of three have.
func leaseOf(t *testing.T, w *world, c *redlock.Client, first, second int) *redlock.Lease {
	t.Helper()
	for i := range 100 {
		name := fmt.Sprint("x", i)
		l, err := c.Mutex(name).WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		if w.servers[first].timeToLive(name) > 0 && w.servers[second].timeToLive(name) > 0 {
			return l
		}
		require.NoError(t, l.Release(t.Context()))
	}
	require.Fail(t, "no such lease")
	return nil
}

// isJudged reports whether the server may grant.
func (s *server) isJudged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	marker, err := s.redis.Get("redlock:node")
	return err == nil && strings.Count(marker, " ") == 1
}

// isJudgedUnder reports whether the server may grant before this lease is over, which it has forgotten.
func (s *server) isJudgedUnder(l *redlock.Lease) bool {
	for ; l.Valid(); time.Sleep(10 * time.Millisecond) {
		if s.isJudged() {
			return true
		}
	}
	return false
}

// Q1: Two servers' clocks are apart by almost half the clock band, as they may be. The one that was flushed then gets a wrong
// clock, so that it seems to agree with the one that a second client hears.
func TestAQuarantineOutlastsALeaseHoweverWideTheClockBandIs(t *testing.T) {
	for name, off := range map[string]bool{"": false, "without the band": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ahead = 1950 * time.Millisecond
				wide := func(cfg *redlock.Config) {
					cfg.TTL, cfg.MaxTTL, cfg.NodeTimeout = 10*time.Second, 10*time.Second, 50*time.Millisecond
					cfg.ClockBand, cfg.MaxClockSkew = 4*time.Second, time.Millisecond
					if off {
						redlock.WithoutBand(cfg)
					}
				}
				w := virtual(t, 3, 3)
				w.servers[2].step(ahead)
				holder := w.connect(t, 0, wide)
				require.NoError(t, holder.Enroll(t.Context()))
				time.Sleep(10 * time.Second)
				l := leaseOf(t, w, holder, 0, 1)
				w.servers[0].flush()
				first := w.connect(t, 1, wide, without(2)) // it begins the quarantine
				require.Error(t, first.Status(t.Context())[0].Err)
				require.NoError(t, first.Close())
				w.servers[0].step(ahead)
				second := w.connect(t, 2, wide, without(1))
				require.Equal(t, off, w.servers[0].isJudgedUnder(l))
				votesWithin(t, second, 0, 10*time.Second)
			})
		})
	}
}

// Q1: Two clients hear different clocks, which are apart by almost half the clock band, as they may be. Neither begins the
// quarantine of the other again.
func TestAQuarantineEndsThoughClientsHearClocksThatAWideBandAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wide := func(cfg *redlock.Config) { cfg.ClockBand = 4 * time.Second }
		w := virtual(t, 3, 2)
		w.servers[2].step(1500 * time.Millisecond)
		a := w.connect(t, 0, wide, without(2))
		b := w.connect(t, 1, wide, without(1))
		votesWithin(t, a, 0, time.Minute)
		votesWithin(t, b, 0, 10*time.Second)
	})
}

// Q1: Requests to one node travel for so long that the client thinks that this node's clock is ahead by half of that. The
// clock of the node that was flushed is set wrong by as much. Then both clocks of the quarantine seem to have moved. What a
// client reads may be wrong by more than the NodeTimeout of the client that began the quarantine.
func TestAQuarantineOutlastsALeaseHoweverBadlyAClockIsRead(t *testing.T) {
	for _, of := range []struct {
		slow, theirs, ours time.Duration
		off                bool
	}{
		{slow: 7 * time.Second, theirs: 2 * time.Second, ours: 2 * time.Second}, // below the time after which it is cut off
		{slow: 3900 * time.Millisecond, theirs: 50 * time.Millisecond, ours: 4 * time.Second},
		{slow: 7 * time.Second, theirs: 2 * time.Second, ours: 2 * time.Second, off: true},
	} {
		t.Run(fmt.Sprintf("%+v", of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				with := func(nodeTimeout time.Duration) func(*redlock.Config) {
					return func(cfg *redlock.Config) {
						cfg.TTL, cfg.MaxTTL, cfg.NodeTimeout = 10*time.Second, 10*time.Second, nodeTimeout
						if of.off {
							redlock.WithoutMisreading(cfg)
						}
					}
				}
				w := virtual(t, 3, 3)
				holder := w.connect(t, 0, with(of.theirs))
				require.NoError(t, holder.Enroll(t.Context()))
				w.servers[1].links[2].lag[requests].Store(int64(of.slow))
				far := w.connect(t, 2, with(of.ours), without(2))
				time.Sleep(30 * time.Second) // by then it has read that clock

				l := leaseOf(t, w, holder, 0, 1)
				w.servers[0].flush()
				first := w.connect(t, 1, with(of.theirs), without(2)) // it begins the quarantine
				require.Error(t, first.Status(t.Context())[0].Err)
				require.NoError(t, first.Close())
				w.servers[0].step(of.slow / 2)
				_, err := far.Mutex("other").TryAcquire(t.Context()) // it learns that the node forgot
				require.Error(t, err)
				require.Equal(t, of.off, w.servers[0].isJudgedUnder(l))
				w.servers[0].step(-of.slow / 2)
				votesWithin(t, far, 0, 40*time.Second)
				w.servers[1].links[2].lag[requests].Store(0)
				time.Sleep(time.Minute) // all that was on its way has arrived
			})
		})
	}
}

// Q1: A question is held up on its way, and the node forgets meanwhile. The time that the question brings is as old as it is.
// Then the clock of the node is set wrong by as much, so that both clocks seem to have moved.
func TestAQuarantineOutlastsALeaseThoughTheQuestionThatBeginsItIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 5 * time.Second
		ten := func(cfg *redlock.Config) {
			cfg.TTL, cfg.MaxTTL, cfg.NodeTimeout = 10*time.Second, 10*time.Second, 2*time.Second
		}
		w := virtual(t, 3, 3)
		holder := w.connect(t, 0, ten)
		require.NoError(t, holder.Enroll(t.Context()))
		first := w.connect(t, 1, ten)
		first.Status(t.Context())
		time.Sleep(10 * time.Second)
		s := w.servers[0]
		s.between("INFO", func() { s.links[1].hold(requests, +1) })
		go first.Status(t.Context()) // INFO, and then the question
		time.Sleep(late)
		l := leaseOf(t, w, holder, 0, 1)
		s.flush()
		s.links[1].hold(requests, -1)
		synctest.Wait()
		s.links[1].reset()
		require.NoError(t, first.Close())
		s.step(late)
		second := w.connect(t, 2, ten)
		require.False(t, s.isJudgedUnder(l))
		s.step(-late)
		votesWithin(t, second, 0, 30*time.Second)
	})
}

// Q1: However far away the servers are, and however much the clients' patience differs, a quarantine ends, and soon.
func TestAQuarantineEndsHoweverFarAwayTheServersAre(t *testing.T) {
	for _, of := range []struct{ near, far, nodeTimeout time.Duration }{
		{150 * time.Millisecond, 240 * time.Millisecond, nodeTimeout},
		{time.Millisecond, 300 * time.Millisecond, time.Second},
		{600 * time.Millisecond, 900 * time.Millisecond, time.Second},
		{time.Millisecond, 3900 * time.Millisecond, 4 * time.Second},
	} {
		t.Run(fmt.Sprintf("%+v", of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 2)
				for _, s := range w.servers {
					s.slow(0, of.near)
					s.slow(1, of.far)
				}
				w.servers[1].slow(1, of.near)
				near := w.connect(t, 0, func(cfg *redlock.Config) { cfg.NodeTimeout = max(nodeTimeout, of.near*5/4) })
				far := w.connect(t, 1, func(cfg *redlock.Config) { cfg.NodeTimeout = of.nodeTimeout })
				votesWithin(t, near, 0, 31*time.Second+4*of.far)
				votesWithin(t, far, 0, 10*time.Second)
				require.NoError(t, near.Close())
				w.servers[0].flush() // the client that is far away is alone
				far.Status(t.Context())
				votesWithin(t, far, 0, 31*time.Second+8*of.far)
			})
		})
	}
}

// Q1: All servers are on one machine, whose clock is a day ahead when it starts. It is set right while nobody looks, and no two
// clocks move against each other.
func TestAQuarantineBegunWithAllClocksAheadDoesNotLastUntilThen(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, nodes, 2)
			step := func(by time.Duration) {
				for _, s := range w.servers {
					s.step(by)
				}
			}
			step(24 * time.Hour)
			before := w.connect(t, 0)
			require.Error(t, before.Status(t.Context())[0].Err)
			time.Sleep(5 * time.Second)
			require.Error(t, before.Status(t.Context())[0].Err)
			require.NoError(t, before.Close())
			step(-24 * time.Hour)
			c := w.connect(t, 1)
			began := time.Now()
			votesWithin(t, c, 0, time.Minute)
			require.Greater(t, time.Since(began), 30*time.Second, "nobody knows when it began by the right clock")
		})
	}
}

// Q1: Somebody tries three new servers, and then one of them alone. That client has no other clock to compare with, but the
// quarantine has an end by the others' clocks too.
func TestAQuarantineBegunByAClientOfSeveralNodesEndsForAClientOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		several := w.connect(t, 0)
		began := time.Now()
		require.Error(t, several.Status(t.Context())[0].Err)
		time.Sleep(5 * time.Second)
		require.Error(t, several.Status(t.Context())[0].Err)
		require.NoError(t, several.Close())
		one := w.connect(t, 1, func(cfg *redlock.Config) { cfg.Nodes = cfg.Nodes[:1] })
		require.Error(t, one.Status(t.Context())[0].Err)
		votesWithin(t, one, 0, 40*time.Second)
		require.Greater(t, time.Since(began), 30*time.Second)
	})
}

// Q1: A client with a larger MaxTTL makes a quarantine longer. By what the other clocks show it gets longer by no less: the
// node's own clock may have moved by MaxClockSkew before that, and again afterwards.
func TestAQuarantineThatBecomesLongerForgetsNoMoveOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := virtual(t, 1, 1).servers[0]
		began := time.Now()
		ask := func(maxTTL int) (others int64) {
			s.tell("EVAL", scriptText(t, "ready"), 4, "redlock:node", "redlock:quarantine", "redlock:config", "redlock:fence",
				s.commands.Identity().RunID, time.Now().UnixMicro(), "digest", fmt.Sprintf("MaxTTL %dms\n", maxTTL), maxTTL, 1000, "",
				time.Now().UnixMicro(), 0, 1_000_000, time.Hour.Microseconds(), "1")
			marker, err := s.redis.Get("redlock:node")
			require.NoError(t, err)
			_, ends, _ := strings.Cut(marker, "/")
			_, err = fmt.Sscanf(ends, "%d/", &others)
			require.NoError(t, err)
			return others - began.UnixMicro()
		}
		require.Equal(t, int64(11_000_000), ask(10_000))
		s.step(900 * time.Millisecond)
		require.Equal(t, int64(21_000_000), ask(20_000))
	})
}

// Q1: The clock of the node that forgot is an hour ahead or behind. It is not in step, so it does not count for what time it
// is, and its quarantine is as long as any.
func TestAQuarantineLastsNoLongerUnderAWrongClock(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 3, 1)
			c := w.connect(t, 0)
			require.NoError(t, c.Enroll(t.Context()))
			s := w.servers[0]
			s.step(by)
			time.Sleep(10 * time.Second) // by then, the client knows that
			s.flush()
			c.Status(t.Context())
			for began := time.Now(); !s.isJudged(); time.Sleep(time.Second) {
				require.Less(t, time.Since(began), 33*time.Second, by)
			}
		})
	}
}
