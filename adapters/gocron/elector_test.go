package redlockgocron_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	redlockgocron "github.com/quorumlock/redlock/adapters/gocron"
	"github.com/quorumlock/redlock/redlocktest"
)

// Two replicas campaign. One leads, for as long as it can, and exactly one runs each tick, also when the leader goes.
func TestOneReplicaLeads(t *testing.T) {
	const interval, late = time.Minute, time.Second
	for name, leave := range map[string]func(t *testing.T, e *redlockgocron.Elector, c *redlock.Client){
		"the leader is closed": func(_ *testing.T, e *redlockgocron.Elector, _ *redlock.Client) { e.Close() },
		"its client is closed": func(t *testing.T, _ *redlockgocron.Elector, c *redlock.Client) { require.NoError(t, c.Close()) },
		"its lock is taken": func(t *testing.T, _ *redlockgocron.Elector, c *redlock.Client) {
			require.NoError(t, c.ForceRelease(t.Context(), "leader"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
				b := newBoard(interval)
				var electors []*redlockgocron.Elector
				var clients []*redlock.Client
				for i := range 2 {
					client := connectTo(t, nodes)
					elector, err := redlockgocron.NewElector(client.Mutex("leader"))
					require.NoError(t, err)
					t.Cleanup(elector.Close)
					electors, clients = append(electors, elector), append(clients, client)
					s := schedule(t, gocron.WithDistributedElector(elector))
					_, err = s.NewJob(gocron.DurationJob(interval), gocron.NewTask(b.run), at(interval+time.Duration(i)*late))
					require.NoError(t, err)
					s.Start()
					time.Sleep(10 * time.Millisecond) // the first one leads
				}
				// Just after the leader has run a tick, and before the other one ticks.
				time.Sleep(5*interval + late/2 - 20*time.Millisecond)
				require.NoError(t, electors[0].IsLeader(t.Context()))
				require.ErrorIs(t, electors[1].IsLeader(t.Context()), redlockgocron.ErrNotLeader)
				lease, err := electors[0].Lease()
				require.NoError(t, err)
				leave(t, electors[0], clients[0])
				synctest.Wait()
				time.Sleep(5 * interval)
				require.Empty(t, b.check(10), "every tick ran once")
				require.False(t, lease.Valid())
				leaders := 0
				for _, e := range electors {
					if e.IsLeader(t.Context()) == nil {
						leaders++
					}
				}
				require.Equal(t, 1, leaders)
			})
		})
	}
}

// Without settling, the tick that the old leader has just run would run again on the new one. The test above needs it.
func TestWithoutSettlingATickMayRunTwice(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		b := newBoard(time.Minute)
		var electors []*redlockgocron.Elector
		for i := range 2 {
			elector, err := redlockgocron.NewElector(connectTo(t, nodes).Mutex("leader"), redlockgocron.Settle(0))
			require.NoError(t, err)
			t.Cleanup(elector.Close)
			electors = append(electors, elector)
			s := schedule(t, gocron.WithDistributedElector(elector))
			_, err = s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(b.run), at(time.Minute+time.Duration(i)*time.Second))
			require.NoError(t, err)
			s.Start()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute + 480*time.Millisecond)
		electors[0].Close()
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"tick 1 ran 2 times"}, b.check(2))
	})
}

// The leader that is cut off stops leading before the other one leads, and leads no more when the way is open again.
func TestTwoReplicasNeverLeadAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		var electors []*redlockgocron.Elector
		for range 3 {
			elector, err := redlockgocron.NewElector(connectTo(t, nodes).Mutex("leader").WithTTL(3*time.Second), redlockgocron.Settle(0))
			require.NoError(t, err)
			t.Cleanup(elector.Close)
			electors = append(electors, elector)
		}
		led := 0
		for i := range 30_000 { // half a minute
			if i%7000 == 3000 {
				nodes.Partition(0)
				nodes.Partition(1)
			}
			if i%7000 == 6500 {
				nodes.Heal(0)
				nodes.Heal(1)
			}
			leaders := 0
			for _, e := range electors {
				if e.IsLeader(t.Context()) == nil {
					leaders++
				}
			}
			require.LessOrEqual(t, leaders, 1)
			led += leaders
			time.Sleep(time.Millisecond)
		}
		require.Greater(t, led, 10_000)
		require.Less(t, led, 30_000, "nobody leads without a quorum")
	})
}

func TestAnElectorTellsWhyItDoesNotLead(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		client, other := connectTo(t, nodes), connectTo(t, nodes)
		holder, err := other.Mutex("leader").Acquire(t.Context())
		require.NoError(t, err)
		elector, err := redlockgocron.NewElector(client.Mutex("leader"))
		require.NoError(t, err)
		told := func(what string) {
			t.Helper()
			err := elector.IsLeader(t.Context())
			require.ErrorIs(t, err, redlockgocron.ErrNotLeader)
			require.ErrorContains(t, err, what)
			_, same := elector.Lease()
			require.Equal(t, err, same)
		}
		synctest.Wait()
		told("it does not have the lock")
		require.NoError(t, holder.Release(t.Context()))
		synctest.Wait()
		told("it was elected less than 5s ago")
		time.Sleep(redlockgocron.DefaultSpread)
		require.NoError(t, elector.IsLeader(t.Context()))
		elector.Close()
		elector.Close()
		told("it was closed")

		closed, err := redlockgocron.NewElector(client.Mutex("leader"))
		require.NoError(t, err)
		require.NoError(t, client.Close())
		synctest.Wait()
		require.ErrorIs(t, closed.IsLeader(t.Context()), redlock.ErrClosed)
		closed.Close()
	})
}

// An error that cannot go away by waiting is asked for again, but not in a loop: other clients have configured the nodes
// otherwise.
func TestAnElectorThatIsRefusedAsksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, nodes *redlocktest.Nodes) {
		first := connectTo(t, nodes)
		lease, err := first.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		var refused atomic.Int64
		odd := connectTo(t, nodes, func(cfg *redlock.Config) {
			cfg.MaxTTL = time.Minute
			cfg.Hooks.Refused = func([]string, error) { refused.Add(1) }
		})
		elector, err := redlockgocron.NewElector(odd.Mutex("leader"))
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		var config *redlock.ConfigError
		require.ErrorAs(t, elector.IsLeader(t.Context()), &config)
		require.LessOrEqual(t, refused.Load(), int64(12))
		require.GreaterOrEqual(t, refused.Load(), int64(5))
		elector.Close()
	})
}
