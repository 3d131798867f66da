//go:build unix

package dockerfleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

func TestAPausedNodeAnswersWhenResumed(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		open := dial(t, n)
		do(t, n, "PING")
		require.NoError(t, n.Pause())
		require.NoError(t, n.Pause(), "a second pause has no effect")
		assert.True(t, n.Alive())
		answered := ask(open, "SET", "k", "v")
		fresh := ask(dial(t, n), "PING")
		requireMute(t, answered)
		requireMute(t, fresh)
		require.NoError(t, n.Resume())
		requireAnswer(t, answered)
		requireAnswer(t, fresh)
		assert.Equal(t, []byte("v"), do(t, n, "GET", "k"))
	})
}

func TestANodeKilledInItsPauseDoesNotApplyWhatItWasSent(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		open := dial(t, n)
		do(t, n, "SET", "k", "before")
		if f.Kind() != fleet.Embedded { // which would show a late SET, because it loses no data
			require.NoError(t, n.Save(ctx(t)))
		}
		require.NoError(t, n.Pause())
		answered := ask(open, "SET", "k", "after")
		requireMute(t, answered)
		require.NoError(t, n.Kill())
		requireRefused(t, n)
		select {
		case err := <-answered:
			assert.Error(t, err)
		case <-time.After(soon):
			t.Fatal("the connection outlives the node")
		}
		require.NoError(t, n.Start(ctx(t), fleet.Kept))
		assert.Equal(t, []byte("before"), do(t, n, "GET", "k"))
		require.NoError(t, n.Pause())
		require.NoError(t, n.Stop(ctx(t)), "a paused node can be stopped, too")
		requireRefused(t, n)
	})
}

func TestACutIsSilentUntilHealed(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1, Links: true}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		open := dial(t, n)
		do(t, n, "PING")
		require.NoError(t, n.Cut())
		answered := ask(open, "SET", "k", "v")
		fresh := ask(dial(t, n), "PING") // the dial succeeds
		requireMute(t, answered)
		requireMute(t, fresh)
		assert.True(t, n.Alive())
		assert.Nil(t, direct(t, n, "GET", "k"), "nothing may arrive in a cut")
		require.NoError(t, n.Heal())
		requireAnswer(t, answered)
		requireAnswer(t, fresh)
		assert.Equal(t, []byte("v"), do(t, n, "GET", "k"))
	})
}

func TestAWriteIntoACutIsAppliedAfterItsClientGaveUp(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1, Links: true}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		conn := dial(t, n)
		_, err := conn.Do("PING")
		require.NoError(t, err)
		require.NoError(t, n.Cut())
		require.NoError(t, conn.Send("SET", "ghost", "v"))
		require.NoError(t, conn.Flush())
		require.NoError(t, conn.Close())
		time.Sleep(mute)
		assert.Nil(t, direct(t, n, "GET", "ghost"))
		require.NoError(t, n.Heal())
		require.Eventually(t, func() bool { return direct(t, n, "GET", "ghost") != nil }, soon, 10*time.Millisecond)
	})
}

// The kernel still sends what a client wrote before it closed, whatever happens to the replies.
func TestRequestsOnTheirWayArriveThoughNobodyTakesTheReplies(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1, Links: true}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		conn := dial(t, n)
		require.NoError(t, n.Delay(100*time.Millisecond))
		for range 12 { // for longer than one round trip
			require.NoError(t, conn.Send("INCR", "count"))
			require.NoError(t, conn.Flush())
			time.Sleep(25 * time.Millisecond)
		}
		require.NoError(t, conn.Close())
		require.Eventually(t, func() bool {
			return assert.ObjectsAreEqual([]byte("12"), direct(t, n, "GET", "count"))
		}, soon, 10*time.Millisecond)
	})
}

func TestACutRepliesLosesTheReplyAndNotTheRequest(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1, Links: true}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		open := dial(t, n)
		_, err := open.Do("PING")
		require.NoError(t, err)
		require.NoError(t, n.CutReplies())
		answered := ask(open, "SET", "k", "v")
		fresh := ask(dial(t, n), "SET", "fresh", "v")
		requireMute(t, answered)
		requireMute(t, fresh)
		requireThere(t, n, "k", "v")
		requireThere(t, n, "fresh", "v")

		require.NoError(t, n.Cut(), "one replaces the other")
		require.NoError(t, n.Heal())
		requireAnswer(t, answered)
		requireAnswer(t, fresh)
	})
}

func TestACutOutlivesARestart(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1, Links: true}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		require.NoError(t, n.Cut())
		require.NoError(t, n.Kill())
		requireRefused(t, n)
		require.NoError(t, n.Start(ctx(t), fleet.Empty))
		answered := ask(dial(t, n), "PING")
		requireMute(t, answered)
		require.NoError(t, f.Heal())
		requireAnswer(t, answered)
	})
}

func TestADelayAddsToEachDirection(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1, Links: true}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		conn := dial(t, n)
		require.NoError(t, n.Delay(100*time.Millisecond))
		began := time.Now()
		_, err := conn.Do("PING")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)

		began = time.Now() // a pipeline is delayed once, not once per command
		for range 20 {
			require.NoError(t, conn.Send("PING"))
			require.NoError(t, conn.Flush())
		}
		for range 20 {
			_, err := conn.Receive()
			require.NoError(t, err)
		}
		assert.Less(t, time.Since(began), 20*200*time.Millisecond)
		require.NoError(t, n.Heal())
		require.Eventually(t, func() bool { // a busy machine sometimes adds its own delay
			began := time.Now()
			_, err := conn.Do("PING")
			return err == nil && time.Since(began) < 200*time.Millisecond
		}, soon, time.Millisecond)
	})
}
