package redlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/redlocktest"
)

// Each agreed field (Q3), with a value that is not the default.
var disagreements = map[string]func(*redlock.Config){
	"MaxTTL":       func(cfg *redlock.Config) { cfg.MaxTTL = 20 * time.Second },
	"MaxClockSkew": func(cfg *redlock.Config) { cfg.MaxClockSkew = time.Second },
	"ClockBand":    func(cfg *redlock.Config) { cfg.ClockBand = 50 * time.Millisecond },
	"Nodes":        func(cfg *redlock.Config) { cfg.Nodes, cfg.Quorum = cfg.Nodes[:4], 4 },
	"Quorum":       func(cfg *redlock.Config) { cfg.Quorum = 4 },
	"Durable":      func(cfg *redlock.Config) { cfg.Durable = true },
	"NoFence":      func(cfg *redlock.Config) { cfg.NoFence = true },
	"Prefix":       func(cfg *redlock.Config) { cfg.Prefix = "app 1\n" },
}

// Q3: Every node refuses a client that differs, and names the field and both values. The client writes nothing there.
func TestAClientThatIsConfiguredDifferentlyIsRefusedAndToldWhichField(t *testing.T) {
	for field, change := range disagreements {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			f := fleettest.Start(t, fleet.Process, fleet.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
			ctx := soon(t)
			usual := open(t, f, patient)
			before := stringOf(tell(t, f.Nodes()[0], "GET", "redlock:node"))
			other := openFresh(t, f, change, patient)
			_, err := other.Mutex("x").TryAcquire(ctx)
			requireDiffers(t, err, field)
			short, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err = other.Mutex("x").Acquire(short)
			requireDiffers(t, err, field)
			require.NoError(t, short.Err(), "it is refused at once: waiting does not help")
			requireDiffers(t, other.Enroll(ctx), field)
			requireDiffers(t, other.Status(ctx)[0].Err, field)
			require.Equal(t, before, stringOf(tell(t, f.Nodes()[0], "GET", "redlock:node")))
			require.NoError(t, usual.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))

			// The other way round: once an operator has replaced the configuration, a client with the old one is
			// refused.
			require.NoError(t, other.Enroll(ctx, redlock.ChangeConfig()))
			require.NoError(t, other.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
			_, err = openFresh(t, f).Mutex("x").TryAcquire(ctx)
			requireDiffers(t, err, field)
			_, err = usual.Mutex("x").Acquire(ctx)
			requireDiffers(t, err, field)
		})
	}
}

func requireDiffers(t *testing.T, err error, field string) {
	t.Helper()
	require.ErrorIs(t, err, redlock.ErrInvalid)
	var differs *redlock.ConfigError
	require.ErrorAs(t, err, &differs)
	named := map[string]redlock.ConfigDifference{}
	for _, d := range differs.Differences {
		named[d.Field] = d
	}
	require.Contains(t, named, field)
	require.NotEqual(t, named[field].Here, named[field].There)
	require.NotEmpty(t, named[field].There)
	require.ErrorContains(t, err, field+" is ")
	if field != "Nodes" { // a difference there changes the quorum too
		require.Len(t, differs.Differences, 1)
	}
}

// Q3: Clients need not agree on TTL and timeouts.
func TestClientsWithDifferentTTLsAndTimeoutsShareNodes(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Embedded, fleet.Options{}), soon(t)
	open(t, f)
	for _, change := range []func(*redlock.Config){
		func(cfg *redlock.Config) { cfg.TTL = 200 * time.Millisecond },
		func(cfg *redlock.Config) { cfg.TTL, cfg.MinValidity = 30*time.Second, time.Second },
		func(cfg *redlock.Config) { cfg.NodeTimeout, cfg.Drift = time.Second, 0.02 },
		func(cfg *redlock.Config) { cfg.ClockBand = 100 * time.Millisecond },
	} {
		require.NoError(t, openFresh(t, f, change).Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
	}
}

// Q1, Q3: A client that the other nodes refuse does not write its configuration on a node that forgot everything.
// Otherwise that node would refuse all others.
func TestANodeThatForgotIsNotTakenOverByAClientThatTheOthersRefuse(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{}), soon(t)
	operator := openFresh(t, f, brief)
	require.NoError(t, enroll(t, operator))
	require.NoError(t, operator.Close())
	stranger := openFresh(t, f, brief, func(cfg *redlock.Config) { cfg.MaxTTL = 450 * time.Millisecond })
	_, err := stranger.Mutex("x").TryAcquire(ctx)
	requireDiffers(t, err, "MaxTTL")
	tell(t, f.Nodes()[2], "FLUSHALL")
	for range 20 { // each try asks the node that forgot
		_, err = stranger.Mutex("x").TryAcquire(ctx)
		requireDiffers(t, err, "MaxTTL")
		require.Nil(t, tell(t, f.Nodes()[2], "GET", "redlock:node"))
	}
	c := openFresh(t, f, brief)
	require.Eventually(t, func() bool { return c.Status(ctx)[2].Err == nil }, 5*time.Second, 10*time.Millisecond)
}

func TestEnrollOnlyNewRefusesAServerThatWasUsed(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := openFresh(t, f, patient), soon(t)
		require.Eventually(t, func() bool { return c.Status(ctx)[2].Quarantine > 0 }, 5*time.Second, time.Millisecond,
			"a new server is in quarantine, and says so")
		require.NoError(t, c.Enroll(ctx, redlock.OnlyNew()))
		require.NoError(t, c.Enroll(ctx, redlock.OnlyNew()), "a node that is ready needs nothing")
		l, err := c.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		spread(t, f, "x", l)
		tell(t, f.Nodes()[1], "DEL", "redlock:node")
		err = c.Enroll(ctx, redlock.OnlyNew())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "it has been used")
		var round *redlock.RoundError
		require.ErrorAs(t, err, &round)
		require.Equal(t, 2, round.Granted)
		require.Len(t, round.Err.Errors, 1)
		require.ErrorContains(t, round.Err.Errors[0], c.Status(ctx)[1].Name)
		tell(t, f.Nodes()[1], "FLUSHALL") // as after a restart without persistence: it looks new
		require.ErrorContains(t, c.Enroll(ctx, redlock.OnlyNew()), "it looks new; it was not enrolled")
		require.Error(t, c.Status(ctx)[1].Err, "it has no vote")
		require.NoError(t, c.Enroll(ctx), "an operator may say that no lease is out")
		require.NoError(t, l.Release(ctx))

		l, err = c.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		spread(t, f, "x", l)
		for _, n := range f.Nodes() { // nobody is in use, and all have keys
			tell(t, n, "DEL", "redlock:node")
		}
		require.ErrorContains(t, c.Enroll(ctx, redlock.OnlyNew()), "it has been used")

		tell(t, f.Nodes()[0], "FLUSHALL") // as after a power cut that one node's data outlived
		tell(t, f.Nodes()[1], "FLUSHALL")
		err = c.Enroll(ctx, redlock.OnlyNew())
		require.ErrorContains(t, err, "it looks new; it was not enrolled")
		require.ErrorContains(t, err, "it has been used")
		for _, s := range c.Status(ctx) {
			require.Error(t, s.Err, "it has no vote")
		}
	})
}

// OnlyNew is for an operator who is not sure, and ChangeConfig for one who is: neither may silently win.
func TestEnrollRefusesOptionsThatContradictEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enrolled(t, 1)
		for _, options := range [][]redlock.EnrollOption{
			{redlock.OnlyNew(), redlock.ChangeConfig()}, {redlock.ChangeConfig(), redlock.OnlyNew()},
		} {
			require.ErrorIs(t, all[0].Enroll(t.Context(), options...), redlock.ErrInvalid)
		}
		require.NoError(t, all[0].Enroll(t.Context(), redlock.OnlyNew(), redlock.OnlyNew()))
	})
}

func TestAgreedConfigIsWhatTheNodesHold(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		ctx := soon(t)
		bare := redlock.Config{Nodes: redlock.Nodes(f.URLs()...)}
		same, err := redlock.AgreedConfig(ctx, bare)
		require.NoError(t, err)
		require.Equal(t, bare, same, "nothing is agreed on new nodes")
		open(t, f, func(cfg *redlock.Config) {
			cfg.MaxTTL, cfg.TTL, cfg.ClockBand, cfg.MaxClockSkew = 5*time.Second, time.Second, -1, 200*time.Millisecond
			cfg.Prefix, cfg.NoFence, cfg.Quorum = `lock:"a b"`, true, 3
		})
		got, err := redlock.AgreedConfig(ctx, bare)
		require.NoError(t, err)
		c, err := redlock.New(got)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
		require.Equal(t, `lock:"a b"`, got.Prefix)
		require.Zero(t, got.TTL)
	})
}

// AgreedConfig takes values for the client to be made. They must fit the agreed configuration, not the defaults.
func TestAgreedConfigTakesATTLAboveTheDefaultMaximum(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3}), soon(t)
	open(t, f, func(cfg *redlock.Config) { cfg.MaxTTL = 5 * time.Minute })
	got, err := redlock.AgreedConfig(ctx, redlock.Config{Nodes: redlock.Nodes(f.URLs()...), TTL: time.Minute, NodeTimeout: 6 * time.Second})
	require.NoError(t, err)
	require.Equal(t, 5*time.Minute, got.MaxTTL)
	c, err := redlock.New(got)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	got, err = redlock.AgreedConfig(ctx, redlock.Config{Nodes: redlock.Nodes(f.URLs()...), NodeTimeout: 6 * time.Second})
	require.NoError(t, err)
	require.Equal(t, 5*time.Minute, got.MaxTTL)
}

// That nodes hold no configuration is known when a quorum says so. What the others hold may be what all agreed on.
func TestAgreedConfigTellsAnOutageFromNewNodes(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3}), soon(t)
	first := open(t, f, func(cfg *redlock.Config) { cfg.MaxTTL = 5 * time.Minute })
	require.NoError(t, first.Close(), "it would put the configuration back")
	bare := redlock.Config{Nodes: redlock.Nodes(f.URLs()...), NodeTimeout: 6 * time.Second}
	old := tell(t, f.Nodes()[0], "GET", "redlock:config")
	tell(t, f.Nodes()[0], "FLUSHALL")
	got, err := redlock.AgreedConfig(ctx, bare)
	require.NoError(t, err, "two tell")
	require.Equal(t, 5*time.Minute, got.MaxTTL)
	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Stop(ctx))
	}
	got, err = redlock.AgreedConfig(ctx, bare)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	var round *redlock.RoundError
	require.ErrorAs(t, err, &round)
	require.Equal(t, []int{1, 0, 2, 2}, []int{round.Granted, round.Denied, round.Unknown, round.Need})
	require.Len(t, round.Err.Errors, 2)
	require.Equal(t, bare, got)
	tell(t, f.Nodes()[0], "SET", "redlock:config", old)
	got, err = redlock.AgreedConfig(ctx, bare)
	require.ErrorIs(t, err, redlock.ErrNoQuorum, "the others may hold another one")
	require.Equal(t, 5*time.Minute, got.MaxTTL)
}

// A tool that asks with a time limit gets its answer within that limit, also from nodes that hang.
func TestAgreedConfigEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		for i := range 3 {
			nodes.Pause(i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := redlock.AgreedConfig(ctx, redlock.Config{Nodes: nodes.Nodes(), NodeTimeout: time.Second})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Millisecond, time.Since(began))
	})
}

// A minority of nodes that hang costs a tool no time.
func TestAgreedConfigDoesNotWaitForAMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 5)
		c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), MaxTTL: 5 * time.Minute})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Enroll(t.Context()))
		nodes.Pause(0)
		nodes.Pause(3)
		began := time.Now()
		got, err := redlock.AgreedConfig(t.Context(), redlock.Config{Nodes: nodes.Nodes()})
		require.NoError(t, err)
		require.Equal(t, 5*time.Minute, got.MaxTTL)
		require.Less(t, time.Since(began), 100*time.Millisecond)
	})
}

func stringOf(v any) string {
	s, _ := redis.String(v, nil)
	return s
}

// Q3: The protocol version is part of the configuration. So a client of another version is refused.
func TestAClientOfAnotherProtocolVersionIsRefused(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	usual := open(t, f)
	for _, n := range f.Nodes() {
		text := stringOf(tell(t, n, "GET", "redlock:config"))
		require.Contains(t, text, "Protocol 3\n")
		tell(t, n, "SET", "redlock:config", strings.Replace(text, "Protocol 3\n", "Protocol 2\n", 1))
		identity, _, _ := strings.Cut(stringOf(tell(t, n, "GET", "redlock:node")), " ")
		tell(t, n, "SET", "redlock:node", identity+" 0123456789abcdef")
	}
	for _, c := range []*redlock.Client{usual, openFresh(t, f)} {
		_, err := c.Mutex("x").Acquire(ctx)
		requireDiffers(t, err, "Protocol")
	}
}

// F3: Version 2 of the protocol kept the fence slots in a hash. An operator who moves the nodes to this version keeps
// them: fencing tokens go on growing.
func TestFencingTokensOfTheFormerVersionStillCount(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	before := open(t, f)
	l, err := before.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Release(ctx))
	far := l.Fence() + uint64(time.Hour.Microseconds())
	for _, n := range f.Nodes() {
		slots := tell(t, n, "ZRANGE", "redlock:fence", 0, -1).([]any)
		tell(t, n, "DEL", "redlock:fence")
		for _, slot := range slots {
			value := any("")
			if len(stringOf(slot)) < 80 {
				value = far
			}
			tell(t, n, "HSET", "redlock:fence", slot, value)
		}
	}
	c := openFresh(t, f, patient)
	for _, n := range f.Nodes() {
		tell(t, n, "ACL", "SETUSER", "default", "-hgetall")
		tell(t, n, "SET", "redlock:config", "the former one")
		tell(t, n, "DEL", "redlock:node")
	}
	require.Error(t, c.Enroll(ctx, redlock.ChangeConfig()))
	for _, n := range f.Nodes() {
		require.Equal(t, "the former one", stringOf(tell(t, n, "GET", "redlock:config")), "nothing was changed without the right")
		require.Nil(t, tell(t, n, "GET", "redlock:node"))
		tell(t, n, "ACL", "SETUSER", "default", "+hgetall")
	}
	require.NoError(t, c.Enroll(ctx, redlock.ChangeConfig()))
	l, err = c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	require.Greater(t, l.Fence(), far)
	require.NoError(t, l.Release(ctx))
}

func TestAListWithANodeMissingIsNotedBeforeTheRemedyOfAnotherConfiguration(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{})
	open(t, f)
	for ask, nodes := range map[string]int{"is a node missing from your list?": 4, "is there a node too many in your list?": 6} {
		urls := append(f.URLs(), "127.0.0.1:1")[:nodes]
		c := openFresh(t, f, func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(urls...) })
		_, err := c.Mutex("x").TryAcquire(soon(t))
		require.ErrorContains(t, err, "there; "+ask+"; set the same in all clients, or")
	}
	_, err := openFresh(t, f, func(cfg *redlock.Config) { cfg.MaxTTL = time.Minute }).Mutex("x").TryAcquire(soon(t))
	require.ErrorContains(t, err, "MaxTTL is 1m0s here and 30s there; set MaxTTL to 30s, or, while none holds a lock, "+
		"change the nodes with `redlock enroll --change-config --max-ttl 1m0s`")
}
