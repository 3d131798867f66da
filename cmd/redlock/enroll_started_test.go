package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/redlocktest"
)

// A server that was started a moment ago may not listen yet. One that never listens costs two seconds.
func TestEnrollWaitsForAServerThatStarts(t *testing.T) {
	for _, test := range []struct {
		after   time.Duration // until it listens
		reached bool
	}{{300 * time.Millisecond, true}, {time.Minute, false}} {
		synctest.Test(t, func(t *testing.T) {
			nodes := redlocktest.Start(t, 3)
			nodes.Kill(2)
			client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
			require.NoError(t, err)
			defer client.Close()
			starts := time.AfterFunc(test.after, func() { nodes.Restart(2) })
			defer starts.Stop()
			began := time.Now()
			require.Equal(t, test.reached, len(unreached(statusOnceStarted(t.Context(), client))) == 0)
			require.Less(t, time.Since(began), startPatience+time.Second)
		})
	}
}
