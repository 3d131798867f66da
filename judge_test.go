package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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
