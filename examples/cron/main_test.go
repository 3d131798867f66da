package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/redlocktest"
)

func TestEachTickRunsOnOneReplica(t *testing.T) {
	const ticks = 20
	synctest.Test(t, func(t *testing.T) { // 40 s, in no time
		nodes := redlocktest.Start(t, 3)
		client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
		require.NoError(t, err)
		require.NoError(t, client.Enroll(t.Context()))
		require.NoError(t, client.Close())
		begin := time.Now()
		var out bytes.Buffer
		require.NoError(t, show(t.Context(), &out, nodes.Nodes(), ticks))
		require.GreaterOrEqual(t, time.Since(begin), (ticks-1)*interval)
		for tick := range ticks {
			require.Equal(t, 1, strings.Count(out.String(), fmt.Sprintf("tick %d: ", tick)), "%s", &out)
		}
		require.Equal(t, ticks, strings.Count(out.String(), "\n"), "%s", &out)
	})
}
