package redlockprom_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	redlockprom "github.com/quorumlock/redlock/adapters/prometheus"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestWhatAClientDoesIsCounted(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	metrics := redlockprom.New()
	var told atomic.Int64
	client, err := redlock.New(redlock.Config{
		Nodes: redlock.Nodes(f.URLs()...),
		Hooks: metrics.Hooks(redlock.Hooks{Acquired: func(redlock.LeaseInfo, time.Duration, int) { told.Add(1) }}),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, client.Enroll(ctx))
	metrics.Watch(client)
	registry := prometheus.NewPedanticRegistry() // it compares what is collected with what was described
	require.NoError(t, registry.Register(metrics))

	lease, err := client.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // an Extend that gains no time is not counted
		return lease.Extend(ctx) == nil && value(t, registry, "redlock_extended_total", "") > 0
	}, 5*time.Second, time.Millisecond)
	_, err = client.Mutex("x").TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, lease.Release(ctx))
	require.Eventually(t, func() bool { return value(t, registry, "redlock_released_total", "") == 1 }, 5*time.Second, time.Millisecond,
		"hooks are called later, this one last")
	require.EqualValues(t, 1, told.Load(), "the hooks of others are called too")
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP redlock_acquired_total Leases that were won.
# TYPE redlock_acquired_total counter
redlock_acquired_total 1
# HELP redlock_refused_total Attempts to acquire that failed: held by another, or no quorum of nodes.
# TYPE redlock_refused_total counter
redlock_refused_total{reason="held"} 1
# HELP redlock_released_total Releases: ok, lost, no_quorum or interrupted.
# TYPE redlock_released_total counter
redlock_released_total{result="ok"} 1
`), "redlock_acquired_total", "redlock_refused_total", "redlock_released_total"))
	require.Equal(t, 1.0, value(t, registry, "redlock_acquire_seconds", ""), "observations")
	require.Equal(t, 1.0, value(t, registry, "redlock_attempts_total", ""))

	up := client.Status(ctx)
	require.Equal(t, 1.0, value(t, registry, "redlock_node_votes", up[2].Name))
	require.Positive(t, value(t, registry, "redlock_node_round_trip_seconds", up[2].Name))
	require.NoError(t, f.Nodes()[1].Kill())
	require.NoError(t, f.Nodes()[2].Kill())
	require.Eventually(t, func() bool { return value(t, registry, "redlock_node_up", up[2].Name) == 0 }, 5*time.Second, 10*time.Millisecond)
	require.Zero(t, value(t, registry, "redlock_node_votes", up[2].Name))
	require.Equal(t, 1.0, value(t, registry, "redlock_node_votes", up[0].Name))
	_, err = client.Mutex("x").TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP redlock_refused_total Attempts to acquire that failed: held by another, or no quorum of nodes.
# TYPE redlock_refused_total counter
redlock_refused_total{reason="held"} 1
redlock_refused_total{reason="no_quorum"} 1
`), "redlock_refused_total"))
	}, 5*time.Second, time.Millisecond)
}

// value is that of a counter or gauge, or how often a histogram observed; of this node, if one is given.
func value(t *testing.T, registry *prometheus.Registry, name, node string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if node == "" || m.GetLabel()[0].GetValue() == node {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("no %s of %q", name, node)
	return 0
}

func TestALossIsCounted(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	metrics := redlockprom.New()
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), Hooks: metrics.Hooks(redlock.Hooks{})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Enroll(t.Context()))
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	lease, err := client.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, client.ForceRelease(t.Context(), "x"))
	require.ErrorIs(t, lease.Extend(t.Context()), redlock.ErrLost)
	require.NoError(t, client.Close()) // it waits until the hooks were called
	require.Equal(t, 1.0, value(t, registry, "redlock_lost_total", ""))
}
