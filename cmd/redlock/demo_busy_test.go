package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// busyStage is a stage with one client, as the demo has four.
func busyStage(t *testing.T) (*stage, *redlock.Client) {
	t.Helper()
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{})
	s := newStage(f.Nodes(), time.Second)
	s.event = func(string, ...any) {}
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), TTL: s.ttl, MaxTTL: s.ttl})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, enrollNew(t.Context(), client))
	return s, client
}

// On a busy machine a contender may stop for a while as it holds the lock, and the next one gets it. The demo called that
// an overlap.
func TestAContenderOfTheDemoThatStoodStillIsNoOverlap(t *testing.T) {
	t.Parallel()
	s, client := busyStage(t)
	stands, err := client.Mutex(demoKey).WithoutRenewal().Acquire(t.Context())
	require.NoError(t, err)
	still, valid := s.begin(0, stands)
	require.True(t, valid)
	<-stands.Context().Done()
	next, err := client.Mutex(demoKey).Acquire(t.Context())
	require.NoError(t, err)
	overtakes, valid := s.begin(1, next)
	require.True(t, valid)
	time.Sleep(time.Millisecond)
	require.True(t, s.goesOn(&overtakes, next))
	require.False(t, s.goesOn(&still, stands))
	_, valid = s.begin(0, stands)
	require.False(t, valid)
	s.record(overtakes)
	s.record(still)
	assert.Zero(t, s.judge(true).Overlaps)

	still.till = overtakes.from + 1
	s.tenures = []tenure{overtakes, still}
	assert.Equal(t, 1, s.judge(true).Overlaps, "and one that believes beside another is an overlap")
	require.NoError(t, next.Release(t.Context()))
}

// On a busy machine nobody may look at the node while it is in quarantine. The demo said that it was in none.
func TestTheDemoRestartsANodeWhoseQuarantineNobodySaw(t *testing.T) {
	t.Parallel()
	s, client := busyStage(t)
	restarts := 0
	s.event = func(format string, _ ...any) {
		if !strings.Contains(format, "restarted empty") {
			return
		}
		if restarts++; restarts > 1 {
			return
		}
		eventuallyVotes := func() bool {
			status := client.Status(t.Context())[0]
			return status.Err == nil && status.RunID != ""
		}
		time.Sleep(s.ttl) // it cannot vote before
		require.Eventually(t, eventuallyVotes, 20*time.Second, 5*time.Millisecond)
	}
	require.NoError(t, s.kill(0))
	require.NoError(t, s.forget(t.Context(), client, 0))
	assert.GreaterOrEqual(t, restarts, 2)
	require.NotNil(t, s.quarantine)
	assert.True(t, s.quarantine.seen)
	assert.Greater(t, s.quarantine.took, s.ttl)
}
