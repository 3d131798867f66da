package main

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/redlocktest"
)

// A server that was started a moment ago may not listen yet. One that never listens costs two seconds.
func TestEnrollWaitsForAServerThatStarts(t *testing.T) {
	t.Parallel()
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

// A server that restarts without its data while enroll waits for it may have granted locks. Nobody was asked about it: it
// was away when enroll looked, and the others had nothing to change.
func TestEnrollAdmitsNoServerThatForgotAndConnectsLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		forgets, yes, onlyNew, admitted bool
		says                            string
	}{
		"it forgot":                {forgets: true, says: "node-2 would vote at once, without the locks that it or its predecessor granted"},
		"it forgot, --only-new":    {forgets: true, onlyNew: true, says: "leave out --only-new"},
		"it forgot, --yes":         {forgets: true, yes: true, admitted: true},
		"it was only out of reach": {admitted: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := redlocktest.Start(t, 3)
				new := func() *redlock.Client {
					client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
					require.NoError(t, err)
					return client
				}
				first := new()
				require.NoError(t, first.Enroll(t.Context()))
				first.Close()
				away, comesBack := nodes.Partition, nodes.Heal
				if c.forgets {
					away, comesBack = nodes.Kill, nodes.Restart
				}
				away(2)
				client := new()
				defer client.Close()
				status := client.Status(t.Context())
				require.Empty(t, notEnrolled(status))
				require.Equal(t, []string{"node-2"}, unreached(status))
				starts := time.AfterFunc(300*time.Millisecond, func() { comesBack(2) })
				defer starts.Stop()
				stdin, err := os.Open(os.DevNull)
				require.NoError(t, err)
				defer stdin.Close()
				o := &enroller{stdin: stdin, yes: c.yes, onlyNew: c.onlyNew}
				err = o.declare(t.Context(), client, status)
				now := client.Status(t.Context())[2]
				require.True(t, now.Connected)
				require.Equal(t, c.admitted, now.MaxTTL != 0)
				if c.admitted {
					require.NoError(t, err)
					require.Equal(t, !c.forgets, status[2].MaxTTL != 0, "whether it granted before")
					return
				}
				exit := (*exitError)(nil)
				require.ErrorAs(t, err, &exit)
				require.Equal(t, exitUsage, exit.code)
				require.ErrorContains(t, err, c.says)
				require.ErrorContains(t, err, "nothing was changed")
			})
		})
	}
}
