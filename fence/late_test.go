package fence_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// A token does not tell a holder's newer write from an older one that it gave up and that the network still has. A larger
// token does: what was written under it is not undone.
func TestAWriteThatWasGivenUpIsKeptOutByALargerToken(t *testing.T) {
	for next, last := range map[uint64]string{33: "8", 34: "7"} {
		url := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1}).URLs()[0]
		conn := dial(t, url)
		require.NoError(t, fence.Set(t.Context(), conn, "stock", "9", 33)) // the server knows the script

		client, network := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- fence.Set(ctx, redis.NewConn(client, 0, 0), "stock", "8", 33) }()
		sent := make([]byte, 1024)
		size, err := network.Read(sent)
		require.NoError(t, err)
		cancel()
		require.ErrorIs(t, <-gaveUp, context.Canceled)

		require.NoError(t, fence.Set(t.Context(), conn, "stock", "8", next))
		require.NoError(t, fence.Set(t.Context(), conn, "stock", "7", next))
		arrives, err := net.Dial("tcp", strings.TrimPrefix(url, "redis://"))
		require.NoError(t, err)
		defer arrives.Close()
		_, err = arrives.Write(sent[:size])
		require.NoError(t, err)
		_, err = arrives.Read(make([]byte, 1)) // it was answered
		require.NoError(t, err)
		requireValue(t, conn, "stock", last)
	}
}
