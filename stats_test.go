package redlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/redlocktest"
)

func TestStatsCountWhatIsHeldAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Enroll(t.Context()))
		require.Zero(t, c.Stats())

		first, err := c.Mutex("a").WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		again, err := c.Mutex("a").Reentrant().Acquire(first.Context())
		require.NoError(t, err)
		second, err := c.Mutex("b").Acquire(t.Context())
		require.NoError(t, err)
		waiting, stop := context.WithCancel(t.Context())
		done := make(chan error)
		for range 3 {
			go func() { _, err := c.Mutex("a").Acquire(waiting); done <- err }()
		}
		synctest.Wait()
		s := c.Stats()
		require.Equal(t, 2, s.Held, "a re-entered lock counts once")
		require.Equal(t, 3, s.Waiters)
		require.GreaterOrEqual(t, s.OldestHold, time.Second)
		require.Less(t, s.OldestHold, 2*time.Second)
		require.Equal(t, first.Remaining(), s.LeastRemaining)
		stop()
		for range 3 {
			require.ErrorIs(t, <-done, context.Canceled)
		}
		require.Zero(t, c.Stats().Waiters)

		require.NoError(t, again.Release(t.Context()))
		require.Equal(t, 2, c.Stats().Held)
		require.NoError(t, first.Release(t.Context()))
		require.Equal(t, 1, c.Stats().Held)
		require.Greater(t, c.Stats().LeastRemaining, 8*time.Second)
		time.Sleep(time.Minute)
		require.Equal(t, 1, c.Stats().Held, "it is renewed")
		require.Greater(t, c.Stats().LeastRemaining, 5*time.Second)
		require.GreaterOrEqual(t, c.Stats().OldestHold, time.Minute)
		require.NoError(t, second.Release(t.Context()))
		require.Zero(t, c.Stats())
	})
}

func TestWaitersOfAFairLockAreCountedAndTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		told := make(chan redlock.Operation, 10)
		c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), Hooks: redlock.Hooks{
			Traced: func(_ context.Context, op redlock.Operation) { told <- op },
		}})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Enroll(t.Context()))
		lock := c.Mutex("a").Fair()
		held, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		require.Len(t, (<-told).Rounds, 1)
		waiting, stop := context.WithCancel(t.Context())
		done := make(chan error)
		for range 3 {
			go func() { _, err := lock.Acquire(waiting); done <- err }()
		}
		synctest.Wait()
		require.Equal(t, 3, c.Stats().Waiters)
		go func() { _, err := c.RWMutex("a").Reader().Acquire(waiting); done <- err }()
		synctest.Wait()
		require.Equal(t, 4, c.Stats().Waiters, "readers are in no queue of this process")
		stop()
		for range 4 {
			require.ErrorIs(t, <-done, context.Canceled)
			require.NotEmpty(t, (<-told).Rounds)
		}
		require.Zero(t, c.Stats().Waiters)
		require.NoError(t, held.Release(t.Context()))
	})
}

// A downgrade goes on with the same hold, and a renewal of what follows is traced as before.
func TestADowngradedLockCountsFromItsAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		var renewals atomic.Int64
		c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), Hooks: redlock.Hooks{
			Traced: func(_ context.Context, op redlock.Operation) { renewals.Add(int64(min(op.Renewal, 1))) },
		}})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Enroll(t.Context()))
		writer, err := c.RWMutex("a").Writer().Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		reader, err := writer.Downgrade(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, c.Stats().Held)
		require.GreaterOrEqual(t, c.Stats().OldestHold, 2*time.Second)
		time.Sleep(30 * time.Second)
		require.True(t, reader.Valid())
		require.GreaterOrEqual(t, renewals.Load(), int64(5))
		require.NoError(t, reader.Release(t.Context()))
	})
}

// A lease that is over is not held, also before its release has been sent.
func TestStatsDoNotCountALeaseThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
		require.NoError(t, err)
		require.NoError(t, c.Enroll(t.Context()))
		lease, err := c.Mutex("a").WithMaxHold(time.Second).Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, c.Stats().Held)
		<-lease.Context().Done()
		require.Zero(t, c.Stats().Held)
		kept, err := c.Mutex("b").Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, kept.Valid())
		require.NoError(t, c.Close())
		require.Zero(t, c.Stats())
	})
}

func ExampleClient_Stats() {
	client, closeAll := exampleClient()
	defer closeAll()
	lease, err := client.Mutex("invoice/42").Acquire(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	stats := client.Stats()
	fmt.Println(stats.Held, "held; renewed in time:", stats.LeastRemaining > 5*time.Second)
	fmt.Println(lease.Release(context.Background()), client.Stats().Held)
	// Output:
	// 1 held; renewed in time: true
	// <nil> 0
}

// Nodes that were away when the client was closed are no different: their last errors would look like an outage of now.
func TestTheStatusOfAClosedClientIsThatItIsClosed(t *testing.T) {
	nodes := redlocktest.Start(t, 3)
	nodes.Kill(0)
	c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), NodeTimeout: 200 * time.Millisecond})
	require.NoError(t, err)
	require.ErrorContains(t, c.Status(t.Context())[0].Err, "refused")
	nodes.Pause(1)
	c.Status(t.Context())
	require.NoError(t, c.Close())
	for _, s := range c.Status(t.Context()) {
		require.False(t, s.Connected, s.Name)
		require.ErrorIs(t, s.Err, redlock.ErrClosed, s.Name)
	}
}
