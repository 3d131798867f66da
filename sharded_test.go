package redlock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func openSharded(t *testing.T, groups int) (*redlock.Sharded, []redlock.Config) {
	var configs []redlock.Config
	for range groups {
		f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
		cfg := redlock.Config{Nodes: redlock.Nodes(f.URLs()...)}
		patient(&cfg)
		configs = append(configs, cfg)
	}
	s, err := redlock.NewSharded(configs...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Enroll(soon(t)))
	return s, configs
}

func TestShardedLocksSpreadOverTheGroupsAndExclude(t *testing.T) {
	s, configs := openSharded(t, 3)
	again, err := redlock.NewSharded(configs[2], configs[0], configs[1]) // the order does not matter
	require.NoError(t, err)
	defer again.Close()
	ctx := soon(t)
	perGroup := map[*redlock.Client]int{}
	for i := range 300 {
		name := fmt.Sprint("order/", i)
		perGroup[s.Group(name)]++
		if i%10 > 0 {
			continue
		}
		l, err := s.Mutex(name).Acquire(ctx)
		require.NoError(t, err)
		_, err = again.Mutex(name).TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, l.Release(ctx))
	}
	require.Len(t, perGroup, 3)
	require.ElementsMatch(t, slices.Collect(maps.Keys(perGroup)), s.Groups())
	for _, c := range s.Groups() {
		require.Equal(t, 2, c.Quorum())
	}
	for _, names := range perGroup {
		require.Greater(t, names, 60, "of 300, over three groups")
	}
	for _, group := range s.Status(ctx) {
		for _, node := range group {
			require.NoError(t, node.Err)
		}
	}
}

func TestShardedNamesOfDifferentGroupsCannotBeLockedAtOnce(t *testing.T) {
	s, configs := openSharded(t, 2)
	var other string
	for i := 0; other == ""; i++ {
		if name := fmt.Sprint("n", i); s.Group(name) != s.Group("first") {
			other = name
		}
	}
	_, err := s.Mutex("first", other).TryAcquire(context.Background())
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.ErrorContains(t, err, "another group")

	_, err = redlock.NewSharded(configs[0], configs[0])
	require.ErrorIs(t, err, redlock.ErrInvalid)
	_, err = redlock.NewSharded()
	require.ErrorIs(t, err, redlock.ErrInvalid)
}

func TestNewShardedSaysWhichGroupIsWrong(t *testing.T) {
	good := redlock.Config{Nodes: redlock.Nodes("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")}
	bad := redlock.Config{Nodes: []redlock.Node{{URL: "127.0.0.1:4"}, {}, {URL: "127.0.0.1:6"}}}
	_, err := redlock.NewSharded(good, bad)
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.ErrorContains(t, err, "groups[1]: ")
}

// withNodes returns the configs with the nodes changed.
func withNodes(configs []redlock.Config, change func(*redlock.Node)) []redlock.Config {
	configs = slices.Clone(configs)
	for i := range configs {
		configs[i].Nodes = slices.Clone(configs[i].Nodes)
		for j := range configs[i].Nodes {
			change(&configs[i].Nodes[j])
		}
	}
	return configs
}

func shardedOf(t *testing.T, configs ...redlock.Config) *redlock.Sharded {
	s, err := redlock.NewSharded(configs...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestTheCaseOfAHostMovesNoNameToAnotherGroup(t *testing.T) {
	_, configs := openSharded(t, 3)
	spelled := func(host string) *redlock.Sharded {
		return shardedOf(t, withNodes(configs, func(n *redlock.Node) { n.URL = strings.Replace(n.URL, "127.0.0.1", host, 1) })...)
	}
	one, ctx := spelled("localhost"), soon(t)
	require.NoError(t, one.Enroll(ctx, redlock.ChangeConfig()))
	two := spelled("LOCALHOST")
	for i := range 30 {
		name := fmt.Sprint("order/", i)
		_, err := one.Mutex(name).Acquire(ctx)
		require.NoError(t, err)
		_, err = two.Mutex(name).TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
	}
}

// requireGroupsDiffer tries to acquire names of every group.
func requireGroupsDiffer(t *testing.T, s *redlock.Sharded, here, there string) {
	t.Helper()
	for i := range 30 {
		_, err := s.Mutex(fmt.Sprint("order/", i)).TryAcquire(soon(t))
		requireDiffers(t, err, "Groups")
		var differs *redlock.ConfigError
		require.ErrorAs(t, err, &differs)
		require.Regexp(t, here, differs.Differences[0].Here)
		require.Regexp(t, there, differs.Differences[0].There)
		require.ErrorContains(t, err, "Sharded.Enroll")
	}
}

// Q3: To such clients a name belongs to another group, so both could hold it.
func TestAClientWithOtherGroupsIsRefusedByAllOfThem(t *testing.T) {
	names := func(prefix string) func(*redlock.Node) {
		return func(n *redlock.Node) { n.Name = prefix + n.URL[strings.LastIndex(n.URL, ":"):] }
	}
	for what, c := range map[string]struct {
		change      func(all []redlock.Config) []redlock.Config // the first two of them are in use
		here, there string
	}{
		"the nodes have got names":  {func(all []redlock.Config) []redlock.Config { return withNodes(all[:2], names("n")) }, `^\(n:`, `^\(127`},
		"the hosts are other names": {func(all []redlock.Config) []redlock.Config { return withNodes(all[:2], names("localhost.")) }, `^\(l`, `^\(127`},
		"a group is missing":        {func(all []redlock.Config) []redlock.Config { return all[:1] }, `^without \(127`, `^\(127`},
		"a group is new":            {func(all []redlock.Config) []redlock.Config { return all }, `^\(127`, `^without \(127`},
		"groups are mixed up": {func(all []redlock.Config) []redlock.Config {
			all = withNodes(all[:2], names("n"))
			for i := range all[0].Nodes {
				all[0].Nodes[i].Name, all[1].Nodes[i].Name = all[1].Nodes[i].Name, all[0].Nodes[i].Name
			}
			return all
		}, `^\(n:`, `^\(127`},
	} {
		t.Run(what, func(t *testing.T) {
			_, configs := openSharded(t, 3)
			ctx := soon(t)
			usual := shardedOf(t, configs[:2]...)
			require.NoError(t, usual.Enroll(ctx, redlock.ChangeConfig()))
			for _, n := range configs[2].Nodes {
				forget(t, n)
			}
			other := shardedOf(t, c.change(configs)...)
			require.Error(t, other.Enroll(ctx), "a group that nobody else has may vote now")
			requireGroupsDiffer(t, other, c.here, c.there)
			require.NoError(t, usual.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))

			require.NoError(t, other.Enroll(ctx, redlock.ChangeConfig()))
			for i := range 30 {
				require.NoError(t, other.Mutex(fmt.Sprint("order/", i)).Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
			}
		})
	}
}

// forget deletes all that the node has.
func forget(t *testing.T, n redlock.Node) {
	t.Helper()
	conn, err := redis.DialURL(n.URL)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Do("FLUSHALL")
	require.NoError(t, err)
}

// Names belong to groups, and a client that does not know the groups could acquire one that another group has.
func TestAClientOfOneGroupAloneAcquiresOnlyNamesOfThatGroup(t *testing.T) {
	s, configs := openSharded(t, 2)
	ctx := soon(t)
	alone, err := redlock.New(configs[0])
	require.NoError(t, err)
	defer alone.Close()
	_, err = alone.Mutex("x").TryAcquire(ctx)
	requireDiffers(t, err, "Groups")
	require.ErrorContains(t, err, "Groups is none here and (127.0.0.1:")

	agreed, err := redlock.AgreedConfig(ctx, configs[0])
	require.NoError(t, err)
	tool, err := redlock.New(agreed)
	require.NoError(t, err)
	defer tool.Close()
	of := map[*redlock.Client]string{}
	for i := 0; len(of) < 2; i++ {
		name := fmt.Sprint("order/", i)
		of[s.Group(name)] = name
	}
	ours, others := of[s.Groups()[0]], of[s.Groups()[1]]
	l, err := tool.Mutex(ours).Acquire(ctx)
	require.NoError(t, err)
	_, err = s.Mutex(ours).TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, l.Release(ctx))
	for _, lock := range []redlock.Lock{tool.Mutex(others), tool.RWMutex(others).Reader(), s.Group(ours).Semaphore(others, 2)} {
		_, err = lock.TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, configs[1].Nodes[0].URL[len("redis://"):])
	}
	_, err = tool.Inspect(ctx, others)
	require.NoError(t, err, "to look, and to release, there is no wrong group")
	for range 10 { // it takes locks with random names
		failures, err := tool.Trial(ctx)
		require.NoError(t, err)
		require.Equal(t, make([]error, 3), failures)
	}
	require.NoError(t, tool.Enroll(ctx, redlock.ChangeConfig()), "it keeps the groups")
	require.NoError(t, s.Mutex(ours).Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
}

// A node that is away keeps nobody from the other groups.
func TestShardedLocksWorkThoughAGroupIsAway(t *testing.T) {
	_, configs := openSharded(t, 2)
	away := withNodes(configs[1:], func(n *redlock.Node) { n.Name, n.URL = n.URL[len("redis://"):], "127.0.0.1:1" })[0]
	for i := range away.Nodes {
		away.Nodes[i].URL = fmt.Sprint("127.0.0.1:", i+1) // nothing listens there
	}
	s, ctx := shardedOf(t, configs[0], away), soon(t)
	granted := 0
	for i := range 20 {
		if l, err := s.Mutex(fmt.Sprint("order/", i)).TryAcquire(ctx); err == nil {
			granted++
			require.NoError(t, l.Release(ctx))
		} else {
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
		}
	}
	require.Positive(t, granted)
}

// groupsOf has the configs of groups of three servers each, for a client of the world.
func (w *world) groupsOf(client int, groups ...int) (configs []redlock.Config) {
	for _, g := range groups {
		var cfg redlock.Config
		for i, s := range w.servers[3*g : 3*g+3] {
			cfg.Nodes = append(cfg.Nodes, redlock.Node{Name: fmt.Sprintf("group-%d-node-%d", g, i+1), Dial: s.dialer(client)})
		}
		redlock.Seed(&cfg, uint64(client))
		configs = append(configs, cfg)
	}
	return configs
}

// A twoViews is two clients: usual has the groups 0 and 1, and holds the name in group 1. other has the groups 0 and 2, to it the name
// belongs to group 2, and group 0 has refused it.
type twoViews struct {
	*world
	lease *redlock.Lease
	other *redlock.Sharded
	name  string
}

func refusedSharded(t *testing.T) *twoViews {
	w := &twoViews{world: virtual(t, 9, 2)}
	usual, err := redlock.NewSharded(w.groupsOf(0, 0, 1)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, usual.Close()) })
	require.NoError(t, usual.Enroll(t.Context()))
	w.other, err = redlock.NewSharded(w.groupsOf(1, 0, 2)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.other.Close()) })
	require.Error(t, w.other.Enroll(t.Context()))
	for i := 0; w.name == "" || usual.Group(w.name) != usual.Groups()[1] || w.other.Group(w.name) != w.other.Groups()[1]; i++ {
		w.name = fmt.Sprint("order/", i)
	}
	time.Sleep(10 * time.Second)
	w.lease, err = usual.Mutex(w.name).Acquire(t.Context())
	require.NoError(t, err)
	_, err = w.other.Mutex(w.name).TryAcquire(t.Context())
	requireDiffers(t, err, "Groups")
	return w
}

func (w *twoViews) requireRefused(t *testing.T, times int, every time.Duration) {
	for range times {
		l, err := w.other.Mutex(w.name).TryAcquire(t.Context())
		if err == nil {
			require.False(t, w.lease.Valid() && l.Valid(), "two have the lock")
		}
		require.Error(t, err)
		time.Sleep(every)
	}
	require.True(t, w.lease.Valid())
}

// Two of three nodes of the group that both have restart without their data. In their quarantine the configuration does not bind.
// The third still refuses.
func TestARefusedShardedClientStaysRefusedWhileNodesAreInQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := refusedSharded(t)
		for _, s := range w.servers[:2] {
			s.stop()
			s.start(false)
			time.Sleep(5 * time.Second)
		}
		w.requireRefused(t, 20, time.Second)
	})
}

// Its connections break, and it connects again. For a round trip it does not know that it is refused.
func TestARefusedShardedClientStaysRefusedWhenItConnectsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := refusedSharded(t)
		for _, s := range w.servers[:3] {
			s.slow(1, 100*time.Millisecond)
			s.links[1].reset()
		}
		w.requireRefused(t, 300, 5*time.Millisecond)
	})
}

// One node of the group that both have is up when it starts, and refuses it.
func TestAShardedClientIsRefusedByTheOneNodeThatIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := refusedSharded(t)
		require.NoError(t, w.other.Close())
		w.servers[0].stop()
		w.servers[1].stop()
		var err error
		w.other, err = redlock.NewSharded(w.groupsOf(1, 0, 2)...)
		require.NoError(t, err)
		defer w.other.Close()
		w.requireRefused(t, 5, time.Second)
	})
}

// It began to wait before it could know that it is refused, and gets the lock when that is known.
func TestAWaiterOfARefusedShardedClientGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := refusedSharded(t)
		require.NoError(t, w.other.Close())
		for _, s := range w.servers[:3] {
			s.links[1].hold(requests, +1)
		}
		other, err := redlock.NewSharded(w.groupsOf(1, 0, 2)...)
		require.NoError(t, err)
		defer other.Close()
		l, err := other.Mutex(w.name).TryAcquire(t.Context())
		require.NoError(t, err, "a limit that docs/safety.md tells")
		got := make(chan error)
		go func() {
			_, err := other.Mutex(w.name).Acquire(t.Context())
			got <- err
		}()
		time.Sleep(time.Second)
		for _, s := range w.servers[:3] {
			s.links[1].hold(requests, -1)
		}
		time.Sleep(time.Minute)
		_, err = other.Mutex(w.name).TryAcquire(t.Context())
		requireDiffers(t, err, "Groups")
		require.NoError(t, l.Release(t.Context()))
		require.Error(t, <-got, "it is known to be refused")
	})
}

// Adopt on the client of another group says that the ticket has expired, which is not so.
func TestATicketOfAnotherGroupHasNotExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 6, 1)
		s, err := redlock.NewSharded(w.groupsOf(0, 0, 1)...)
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.Enroll(t.Context()))
		name := "order/0"
		for i := 1; s.Group(name) != s.Groups()[1]; i++ {
			name = fmt.Sprint("order/", i)
		}
		ticket := ticketOf(t, s.Mutex(name))
		_, err = s.Groups()[0].Adopt(t.Context(), ticket)
		require.NotErrorIs(t, err, redlock.ErrTicketExpired)
		require.ErrorIs(t, err, redlock.ErrInvalid)
	})
}
