package redlockprom_test

import (
	"context"
	"fmt"
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
	"github.com/quorumlock/redlock/redlocktest"
)

// patience is the NodeTimeout of clients whose nodes are only slow, however busy the machine is.
const patience = 3 * time.Second

func TestWhatAClientDoesIsCounted(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	metrics := redlockprom.New()
	var told atomic.Int64
	client, err := redlock.New(redlock.Config{
		Nodes:       redlock.Nodes(f.URLs()...),
		NodeTimeout: patience,
		Hooks:       metrics.Hooks(redlock.Hooks{Acquired: func(redlock.LeaseInfo, time.Duration, int) { told.Add(1) }}),
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
	require.Eventually(t, func() bool { return value(t, registry, "redlock_release_duration_seconds", "") == 1 }, 5*time.Second, time.Millisecond,
		"hooks are called later, this one last")
	require.EqualValues(t, 1, told.Load(), "the hooks of others are called too")
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP redlock_acquired_total Leases that were won.
# TYPE redlock_acquired_total counter
redlock_acquired_total 1
# HELP redlock_refused_total Rounds to acquire that failed: held by another, or no quorum of nodes.
# TYPE redlock_refused_total counter
redlock_refused_total{reason="held"} 1
redlock_refused_total{reason="no_quorum"} 0
# HELP redlock_released_total Releases: ok, lost, no_quorum or interrupted.
# TYPE redlock_released_total counter
redlock_released_total{result="interrupted"} 0
redlock_released_total{result="lost"} 0
redlock_released_total{result="no_quorum"} 0
redlock_released_total{result="ok"} 1
`), "redlock_acquired_total", "redlock_refused_total", "redlock_released_total"))
	require.Equal(t, 1.0, value(t, registry, "redlock_acquire_duration_seconds", ""), "observations")
	require.Equal(t, 1.0, value(t, registry, "redlock_hold_duration_seconds", ""))
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
# HELP redlock_refused_total Rounds to acquire that failed: held by another, or no quorum of nodes.
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
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), NodeTimeout: patience, Hooks: metrics.Hooks(redlock.Hooks{})})
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

func TestWhatIsHeldAndWaitedForIsShown(t *testing.T) {
	nodes := redlocktest.Start(t, 3)
	metrics := redlockprom.New()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	connect := func(named string) *redlock.Client {
		list := nodes.Nodes()
		for i := range list {
			list[i].Name = named + list[i].Name
		}
		c, err := redlock.New(redlock.Config{Nodes: list, NodeTimeout: patience, Hooks: metrics.Hooks(redlock.Hooks{})})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		require.NoError(t, c.Enroll(t.Context()))
		return c
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		require.NotEqual(t, "redlock_leases", family.GetName(), "nothing is watched, so nothing is known")
	}
	first, second := connect("a-"), connect("b-")
	metrics.Watch(first)
	metrics.Watch(first) // which changes nothing
	metrics.Watch(second)
	require.Zero(t, value(t, registry, "redlock_leases", ""))
	require.Zero(t, value(t, registry, "redlock_oldest_hold_seconds", ""))
	require.NotContains(t, names(t, registry), "redlock_least_remaining_seconds")

	long, err := first.Mutex("long").WithTTL(20 * time.Second).Acquire(t.Context())
	require.NoError(t, err)
	short, err := second.Mutex("short").WithTTL(3 * time.Second).Acquire(t.Context())
	require.NoError(t, err)
	waiting, stop := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { _, err := second.Mutex("long").Acquire(waiting); gaveUp <- err }()
	require.Eventually(t, func() bool { return value(t, registry, "redlock_waiters", "") == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, 2.0, value(t, registry, "redlock_leases", ""))
	require.Positive(t, value(t, registry, "redlock_oldest_hold_seconds", ""))
	require.Less(t, value(t, registry, "redlock_least_remaining_seconds", ""), 3.0, "the least of all clients")
	require.Zero(t, value(t, registry, "redlock_dropped_events_total", ""))
	stop()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	require.Zero(t, value(t, registry, "redlock_waiters", ""))

	require.NoError(t, short.Release(t.Context()))
	require.Greater(t, value(t, registry, "redlock_least_remaining_seconds", ""), 3.0)
	metrics.Forget(second)
	require.Equal(t, 1.0, value(t, registry, "redlock_leases", ""))
	require.NoError(t, long.Release(t.Context()))
	require.Equal(t, 1.0, value(t, registry, "redlock_node_up", first.Status(t.Context())[0].Name))
	metrics.Forget(first)
	require.NotContains(t, names(t, registry), "redlock_node_up")
}

// Prometheus takes a counter that goes down for that of a process that was restarted, and counts what is left as new.
func TestTheCounterOfDroppedEventsNeverGoesDown(t *testing.T) {
	metrics := redlockprom.New()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	goOn := make(chan struct{})
	defer close(goOn)
	block := func() { <-goOn }
	connect := func(named string) *redlock.Client {
		nodes := redlocktest.Start(t, 1).Nodes()
		nodes[0].Name = named
		client, err := redlock.New(redlock.Config{Nodes: nodes, NodeTimeout: patience, Hooks: redlock.Hooks{
			Acquired: func(redlock.LeaseInfo, time.Duration, int) { block() },
			Released: func(redlock.LeaseInfo, error) { block() },
			Traced:   func(context.Context, redlock.Operation) { block() },
		}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		return client
	}
	first, second := connect("a"), connect("b")
	metrics.Watch(first)
	metrics.Watch(second)
	for first.Dropped() == 0 {
		lease, err := first.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	dropped := first.Dropped()
	require.EqualValues(t, dropped, value(t, registry, "redlock_dropped_events_total", ""))
	metrics.Forget(first)
	metrics.Forget(first) // again: it is counted once
	require.EqualValues(t, dropped, value(t, registry, "redlock_dropped_events_total", ""))
	metrics.Forget(second)
	require.NotContains(t, names(t, registry), "redlock_dropped_events_total", "nothing is watched")
	metrics.Watch(second)
	require.EqualValues(t, dropped, value(t, registry, "redlock_dropped_events_total", ""))
}

// A program that closes its client and goes on must not page anyone because of nodes that are up.
func TestAClosedClientSaysNothingOfItsNodes(t *testing.T) {
	metrics := redlockprom.New()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	nodes := redlocktest.Start(t, 3)
	nodes.Kill(1)
	client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), NodeTimeout: patience})
	require.NoError(t, err)
	metrics.Watch(client)
	require.Equal(t, 1.0, value(t, registry, "redlock_node_votes", "node-0"))
	require.Equal(t, 0.0, value(t, registry, "redlock_node_votes", "node-1"))
	require.NoError(t, client.Close())
	require.NotContains(t, names(t, registry), "redlock_node_votes")
	require.NotContains(t, names(t, registry), "redlock_node_up")
	require.NotContains(t, names(t, registry), "redlock_failures_tolerated")
	require.Zero(t, value(t, registry, "redlock_leases", ""))
}

// An alert must see the group of nodes that is worst off, and a Quorum above the majority.
func TestFailuresToleratedAreThoseOfTheWorstGroup(t *testing.T) {
	metrics := redlockprom.New()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	groups := []*redlocktest.Nodes{redlocktest.Start(t, 5), redlocktest.Start(t, 3)}
	var configs []redlock.Config
	for i, nodes := range groups {
		cfg := redlock.Config{Nodes: nodes.Nodes(), NodeTimeout: patience}
		for n := range cfg.Nodes {
			cfg.Nodes[n].Name = fmt.Sprintf("group-%d-%d", i, n)
		}
		configs = append(configs, cfg)
	}
	configs[0].Quorum = 4
	sharded, err := redlock.NewSharded(configs...)
	require.NoError(t, err)
	defer sharded.Close()
	require.Equal(t, 4, sharded.Groups()[0].Quorum())
	require.Equal(t, 2, sharded.Groups()[1].Quorum(), "a majority")
	for _, c := range sharded.Groups() {
		metrics.Watch(c)
	}
	tolerated := func(want float64) {
		t.Helper()
		require.Eventually(t, func() bool { return value(t, registry, "redlock_failures_tolerated", "") == want }, 30*time.Second, time.Millisecond)
	}
	tolerated(1)
	groups[0].Kill(4)
	tolerated(0)
	groups[1].Kill(0)
	tolerated(0)
	groups[1].Kill(1)
	tolerated(-1)
	require.NoError(t, sharded.Groups()[1].Close())
	tolerated(0)
}

func names(t *testing.T, registry *prometheus.Registry) (all []string) {
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		all = append(all, family.GetName())
	}
	return all
}

func TestNamesAreALabelOnlyWithAFunctionAndFewOnly(t *testing.T) {
	lease := func(name string) redlock.LeaseInfo { return redlock.LeaseInfo{Names: []string{name}} }
	tell := func(metrics *redlockprom.Metrics, name string) {
		hooks := metrics.Hooks(redlock.Hooks{})
		hooks.Acquired(lease(name), time.Millisecond, 1)
		hooks.Refused([]string{name}, redlock.ErrHeld)
		hooks.Extended(lease(name), time.Second, time.Millisecond)
		hooks.ExtendFailed(lease(name), redlock.ErrNoQuorum)
		hooks.Released(lease(name), nil)
		hooks.Lost(lease(name), redlock.ErrLost)
		hooks.Traced(t.Context(), redlock.Operation{Op: "release", Lease: lease(name)})
	}
	plain := redlockprom.New()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(plain))
	for i := range 500 {
		tell(plain, fmt.Sprint("invoice/", i))
	}
	series, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	require.Less(t, series, 30)
	require.Equal(t, 500.0, value(t, registry, "redlock_acquired_total", ""))

	named := redlockprom.New(redlockprom.WithNames(func(names []string) string { return names[0] }))
	registry = prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(named))
	for i := range 500 {
		tell(named, fmt.Sprint("invoice/", i))
	}
	tell(named, "not \xff UTF-8")
	tell(named, "invoice/3")
	count, err := testutil.GatherAndCount(registry, "redlock_hold_duration_seconds")
	require.NoError(t, err)
	require.Equal(t, 101, count, "a function that maps too little must not grow for ever")
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP redlock_lost_total Leases that ended before they were released.
# TYPE redlock_lost_total counter
`+expected(100, 401)), "redlock_lost_total"))
}

// Prometheus refuses a label that is not UTF-8, and all metrics with it. Two nodes stay two.
func TestANodesNameThatIsNotUTF8IsQuoted(t *testing.T) {
	metrics := redlockprom.New()
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes("unix:///nowhere/caf%E9.sock", "unix:///nowhere/caf%E8.sock", "unix:///nowhere/é.sock")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	metrics.Watch(client)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	for _, name := range []string{`/nowhere/caf\xe9.sock`, `/nowhere/caf\xe8.sock`, "/nowhere/é.sock"} {
		require.Zero(t, value(t, registry, "redlock_node_up", name))
	}
}

// The alert for a lost lease looks at an increase, and a counter that begins at 1 shows none. So the counters of a name
// are there at 0 as soon as anything happens under it.
func TestTheFirstLossOfANameIsAnIncrease(t *testing.T) {
	metrics := redlockprom.New(redlockprom.WithNames(func(names []string) string { return names[0] }))
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	hooks := metrics.Hooks(redlock.Hooks{})
	hooks.Acquired(redlock.LeaseInfo{Names: []string{"invoice"}}, time.Millisecond, 1)
	require.Zero(t, value(t, registry, "redlock_lost_total", "invoice"))
	for name, results := range map[string]int{"redlock_released_total": 4, "redlock_refused_total": 2, "redlock_extend_failed_total": 1} {
		series, err := testutil.GatherAndCount(registry, name)
		require.NoError(t, err)
		require.Equal(t, results, series, name)
	}
	hooks.Lost(redlock.LeaseInfo{Names: []string{"invoice"}}, redlock.ErrLost)
	require.Equal(t, 1.0, value(t, registry, "redlock_lost_total", "invoice"))
}

// expected are the lines of redlock_lost_total after invoice/0 up to n were named, and the rest were other.
func expected(n, other int) string {
	var lines strings.Builder
	for i := range n {
		count := 1
		if i == 3 {
			count = 2
		}
		fmt.Fprintf(&lines, "redlock_lost_total{name=\"invoice/%d\"} %d\n", i, count)
	}
	fmt.Fprintf(&lines, "redlock_lost_total{name=\"other\"} %d\n", other)
	return lines.String()
}

func TestTheMetricsAreWellNamed(t *testing.T) {
	metrics := redlockprom.New()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	nodes := redlocktest.Start(t, 1)
	c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), NodeTimeout: patience, Hooks: metrics.Hooks(redlock.Hooks{})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	metrics.Watch(c)
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// Hooks of the program that we have none for stay, and the others are called too.
func TestTheHooksOfTheProgramAreCalledToo(t *testing.T) {
	var told []string
	hooks := redlockprom.New().Hooks(redlock.Hooks{
		Acquired:     func(redlock.LeaseInfo, time.Duration, int) { told = append(told, "acquired") },
		Refused:      func([]string, error) { told = append(told, "refused") },
		Extended:     func(redlock.LeaseInfo, time.Duration, time.Duration) { told = append(told, "extended") },
		ExtendFailed: func(redlock.LeaseInfo, error) { told = append(told, "failed") },
		Released:     func(redlock.LeaseInfo, error) { told = append(told, "released") },
		Lost:         func(redlock.LeaseInfo, error) { told = append(told, "lost") },
		NodeUp:       func(string) { told = append(told, "up") },
		NodeDown:     func(string, error) { told = append(told, "down") },
		Traced:       func(context.Context, redlock.Operation) { told = append(told, "traced") },
	})
	var none redlock.LeaseInfo
	hooks.Acquired(none, 0, 0)
	hooks.Refused(nil, nil)
	hooks.Extended(none, 0, 0)
	hooks.ExtendFailed(none, nil)
	hooks.Released(none, nil)
	hooks.Lost(none, nil)
	hooks.NodeUp("")
	hooks.NodeDown("", nil)
	hooks.Traced(t.Context(), redlock.Operation{})
	require.Equal(t, []string{"acquired", "refused", "extended", "failed", "released", "lost", "up", "down", "traced"}, told)
}
