package redlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// After a failover a name, or the node's Dial, leads to the new master. The former one is a replica, and keeps the client's
// connection open. The client leaves it; nothing changes as long as nobody else is there.
func TestANodeWhoseServerBecameAReplicaFollowsItsAddressToTheNewMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 4, 1)
		var target, dials atomic.Int64
		c := w.connect(t, 0, func(cfg *redlock.Config) {
			cfg.Nodes = cfg.Nodes[:3]
			cfg.Nodes[0].Dial = func(context.Context) (redis.Conn, error) {
				dials.Add(1)
				return w.servers[target.Load()].dial(0)
			}
		})
		require.NoError(t, c.Enroll(t.Context()))
		w.servers[0].commands.Change(func(id *fleet.Identity) { id.Replica = true })
		time.Sleep(time.Minute)
		status := c.Status(t.Context())[0]
		require.ErrorContains(t, status.Err, "it is a replica")
		require.True(t, status.Connected)
		require.InDelta(t, 12, dials.Load(), 3, "one every five seconds")

		target.Store(3)
		time.Sleep(10 * time.Second)
		status = c.Status(t.Context())[0]
		require.Equal(t, w.servers[3].commands.Identity().RunID, status.RunID)
		require.Positive(t, status.Quarantine)
		time.Sleep(time.Minute)
		require.NoError(t, c.Status(t.Context())[0].Err)
		was := dials.Load()
		time.Sleep(time.Minute)
		require.Equal(t, was, dials.Load(), "a master is not left")
	})
}
