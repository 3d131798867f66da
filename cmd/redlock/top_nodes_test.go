//go:build unix

package main

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/access"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// Servers close connections that are idle for longer than their setting timeout, and so do load balancers. Top saw that only
// by a question, whose answer was lost: with an --interval above that time, every look had no votes.
func TestAQuestionThatFindsItsConnectionClosedIsAskedAgain(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), TTL: 20 * time.Second, NodeTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	require.NoError(t, client.Enroll(t.Context()))
	asking, stop := context.WithCancel(t.Context())
	nodes, done := newTopNodes(asking, access.Of(client))
	t.Cleanup(func() { stop(); done() })

	for range 3 {
		answers := nodes.ask(t.Context(), func(_ int, conn redis.Conn) (any, error) { return redis.Int64(conn.Do("CLIENT", "ID")) })
		require.Len(t, answers, 3)
		for _, a := range answers {
			require.NoError(t, a.err)
			fleettest.Tell(t, f.Nodes()[a.node], "CLIENT", "KILL", "ID", a.value)
		}
		require.Len(t, nodes.look(t.Context(), []string{"x"}), 3)
	}
}
