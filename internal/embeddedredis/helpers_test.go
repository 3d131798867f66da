//go:build unix

package embeddedredis_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock/internal/fleet"
)

const soon = 30 * time.Second // time limit for expected events, even on a busy machine

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t testing.TB, n *fleet.Node) redis.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	conn, err := n.Dial(ctx, soon)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func do(t testing.TB, n *fleet.Node, cmd string, args ...any) any {
	t.Helper()
	reply, err := dial(t, n).Do(cmd, args...)
	require.NoError(t, err)
	return reply
}
