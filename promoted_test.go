package redlock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// Q1: A server that was promoted names the history that it took over, until it frees its replication backlog. With the
// setting of deploy/redis/redlock.conf it never does, and goes on voting. Otherwise it looks like one that took over other
// data and forgot that as well: it sits out one more quarantine.
func TestAPromotedServerGoesOnVotingIfItKeepsItsBacklog(t *testing.T) {
	conf, err := os.ReadFile("deploy/redis/redlock.conf")
	require.NoError(t, err)
	kept := regexp.MustCompile(`(?m)^repl-backlog-ttl (\d+)$`).FindSubmatch(conf)
	require.NotNil(t, kept)
	for name, seconds := range map[string]string{"as in deploy": string(kept[1]), "freed after a second": "1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 4, Args: replicas}), soon(t)
			c := openFresh(t, f, patient, func(cfg *redlock.Config) { cfg.Nodes = cfg.Nodes[:3] })
			require.NoError(t, enroll(t, c))
			require.Empty(t, c.Status(ctx)[2].Warnings)
			promoted, forgetful := f.Nodes()[2], f.Nodes()[3]
			tell(t, promoted, "CONFIG", "SET", "repl-backlog-ttl", seconds)
			tell(t, forgetful, "CONFIG", "SET", "repl-backlog-ttl", "1")
			for _, n := range []*fleet.Node{promoted, forgetful} {
				replicate(t, n, f.Nodes()[0])
				tell(t, n, "REPLICAOF", "NO", "ONE")
			}
			c.Status(ctx)
			require.NoError(t, enroll(t, c))
			require.Eventually(t, func() bool { // it was promoted later than the other
				info, err := redis.String(tell(t, forgetful, "INFO", "replication"), nil)
				return err == nil && strings.Contains(info, "second_repl_offset:-1")
			}, 10*time.Second, 10*time.Millisecond)
			if seconds == "1" {
				require.Eventually(t, func() bool { return c.Status(ctx)[2].Quarantine > 0 }, 10*time.Second, 10*time.Millisecond)
				return
			}
			s := c.Status(ctx)[2]
			require.NoError(t, s.Err)
			require.Len(t, s.Warnings, 1)
			require.Contains(t, s.Warnings[0], "repl-backlog-ttl")
		})
	}
}
