package redlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// brief makes leases and quarantines short enough to wait for: 500ms + 50ms + 50ms.
func brief(cfg *redlock.Config) {
	cfg.TTL, cfg.MaxTTL = 400*time.Millisecond, 500*time.Millisecond
	cfg.NodeTimeout, cfg.MaxClockSkew = 50*time.Millisecond, 50*time.Millisecond
}

// ample is as brief as leaves a busy machine time to answer. A quarantine takes 3s + 1s + 50ms.
func ample(cfg *redlock.Config) {
	cfg.TTL, cfg.MaxTTL = 2500*time.Millisecond, 3*time.Second
	cfg.NodeTimeout, cfg.MaxClockSkew = time.Second, 50*time.Millisecond
}

var tell = fleettest.Tell

// A forgetting makes node 3 of five forget what it granted. Further nodes of the fleet are spares.
type forgetting struct {
	spares int
	before func(t *testing.T, f *fleet.Fleet)                       // before the lock is acquired
	forget func(t *testing.T, f *fleet.Fleet, views ...*fleet.View) // views are the ways to node 3
}

func forgetBy(command string, args ...any) forgetting {
	return forgetting{forget: func(t *testing.T, f *fleet.Fleet, _ ...*fleet.View) { tell(t, f.Nodes()[2], command, args...) }}
}

func restart(data fleet.Data) func(*testing.T, *fleet.Fleet, ...*fleet.View) {
	return func(t *testing.T, f *fleet.Fleet, _ ...*fleet.View) {
		require.NoError(t, f.Nodes()[2].Kill())
		require.NoError(t, f.Nodes()[2].Start(soon(t), data))
	}
}

func lead(t *testing.T, f *fleet.Fleet, views ...*fleet.View) {
	for _, v := range views {
		require.NoError(t, v.Lead(f.Nodes()[5]))
	}
}

// The nine ways to forget of docs/safety.md.
var forgettings = map[string]forgetting{
	"restart without data": {forget: restart(fleet.Empty)},
	"restart with an old RDB": {forget: restart(fleet.Kept), before: func(t *testing.T, f *fleet.Fleet) {
		require.NoError(t, f.Nodes()[2].Save(soon(t)))
	}},
	"FLUSHALL":              forgetBy("FLUSHALL"),
	"FLUSHDB":               forgetBy("FLUSHDB"),
	"SWAPDB":                forgetBy("SWAPDB", 0, 1),
	"the marker is deleted": forgetBy("DEL", "x", "redlock:node"),
	"the marker is evicted": {forget: func(t *testing.T, f *fleet.Fleet, _ ...*fleet.View) {
		tell(t, f.Nodes()[2], "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
		tell(t, f.Nodes()[2], "CONFIG", "SET", "maxmemory", "1")
		require.Eventually(t, func() bool { return tell(t, f.Nodes()[2], "DBSIZE") == int64(0) }, 5*time.Second, time.Millisecond)
		tell(t, f.Nodes()[2], "CONFIG", "SET", "maxmemory", "0")
	}},
	"another, long-running server at the address": {spares: 1, forget: lead},
	"a stale replica promoted at the address": {spares: 1,
		before: func(t *testing.T, f *fleet.Fleet) {
			replica := f.Nodes()[5]
			host, port, err := f.Nodes()[2].PeerAddress()
			require.NoError(t, err)
			tell(t, replica, "REPLICAOF", host, port)
			require.Eventually(t, func() bool {
				info, err := redis.String(tell(t, replica, "INFO", "replication"), nil)
				return err == nil && strings.Contains(info, "master_link_status:up")
			}, 10*time.Second, time.Millisecond)
			tell(t, replica, "REPLICAOF", "NO", "ONE") // the lock will never reach it
		},
		forget: lead},
}

// Q1: The holder has nodes 1 to 3 of five, the other client reaches 3 to 5, and node 3 forgets. Without the quarantine,
// two clients hold the lock.
func TestANodeThatForgotDoesNotGrantWhileItsLeasesLast(t *testing.T) {
	for name, way := range forgettings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder, next := afterForgetting(t, way, 500*time.Millisecond, brief)
			require.False(t, holder.Valid(), "two hold it")
			_ = next.Release(soon(t)) // on a busy machine, no quorum confirms it within 50ms
		})
		t.Run(name+", with the quarantine off", func(t *testing.T) {
			t.Parallel()
			// Nothing waits for the end of the lease, so it may be long.
			holder, next := afterForgetting(t, way, 10*time.Second, redlock.Switches["quarantine"].Off)
			require.True(t, holder.Valid() && next.Valid(), "without the quarantine two hold it")
		})
	}
}

// afterForgetting returns the lease of the holder, and that of the other client at the moment when it is acquired.
func afterForgetting(t *testing.T, way forgetting, ttl time.Duration, change ...func(*redlock.Config)) (holder, next *redlock.Lease) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 5 + way.spares, Args: replicas})
	operator := openFresh(t, f, append(slices.Clone(change), func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(f.URLs()[:5]...) })...)
	require.NoError(t, enroll(t, operator))
	a, viewOfA := openAt(t, f, []int{1, 2, 3}, change...)
	b, viewOfB := openAt(t, f, []int{3, 4, 5}, change...)
	if way.before != nil {
		way.before(t, f)
	}
	holder, err := a.Mutex("x").WithoutRenewal().WithTTL(ttl).Acquire(soon(t))
	require.NoError(t, err)
	way.forget(t, f, viewOfA, viewOfB)
	// On a busy machine the other nodes' clocks are known less exactly, and a brief quarantine may begin again and again.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	next, err = b.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	return holder, next
}

// Q2: A node in quarantine still extends and releases what it had granted, and missing keys are put back there (R2).
func TestAQuarantinedNodeStillExtendsAndReleases(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		l, err := c.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		spread(t, f, "x", l)
		for _, n := range f.Nodes() {
			tell(t, n, "DEL", "redlock:node")
		}
		_, err = c.Mutex("y").TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		tell(t, f.Nodes()[4], "DEL", "x")
		require.NoError(t, l.Extend(ctx))
		holds(t, f, "x", l.Token())
		require.NoError(t, l.Release(ctx))
		clears(t, f, "x")

		require.NoError(t, c.Enroll(ctx))
		l, err = c.Mutex("y").TryAcquire(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Release(ctx))
	})
}

func TestDurableNodesSkipTheQuarantineAfterARestartButNotAfterAFlush(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	c, ctx := open(t, f, func(cfg *redlock.Config) { cfg.Durable = true }), soon(t)
	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", l)
	for _, n := range f.Nodes() {
		require.NoError(t, n.Kill())
		require.NoError(t, n.Start(ctx, fleet.Kept))
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		_, err := c.Mutex("x").TryAcquire(ctx)
		assert.ErrorIs(t, err, redlock.ErrHeld, "it votes, and it has forgotten nothing")
	}, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, l.Release(ctx))
	for _, n := range f.Nodes() {
		tell(t, n, "FLUSHALL")
	}
	_, err = c.Mutex("x").TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
}

// Q1: Leases as long as the old configuration allowed may still be out. The quarantine covers them, however often the
// servers restart.
func TestAQuarantineBegunAgainStillCoversTheLongestLeaseOfAll(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	require.NoError(t, enroll(t, openFresh(t, f))) // leases of up to 30s
	for range 3 {
		for _, n := range f.Nodes() {
			require.NoError(t, n.Save(soon(t)))
			require.NoError(t, n.Kill())
			require.NoError(t, n.Start(soon(t), fleet.Kept))
		}
		c := openFresh(t, f, brief)
		for i := range f.Nodes() {
			var left time.Duration
			require.Eventually(t, func() bool { left = c.Status(soon(t))[i].Quarantine; return left > 0 }, 5*time.Second, time.Millisecond)
			require.Greater(t, left, 20*time.Second)
		}
		require.NoError(t, c.Close())
	}
}

// Q1: The other nodes' clocks are known only as exactly as a round trip allows, so they seem to move. A quarantine must
// end all the same.
func TestAQuarantineEndsHoweverWellClocksAreKept(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	c := openFresh(t, f, brief, func(cfg *redlock.Config) { cfg.MaxClockSkew = time.Microsecond })
	require.Eventually(t, func() bool { return c.Status(ctx)[2].Err == nil }, 8*time.Second, 10*time.Millisecond)
}

func TestAFirstTimeUserIsToldWhyNothingIsGrantedYet(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	var mu sync.Mutex
	var text bytes.Buffer
	c := openFresh(t, f, func(cfg *redlock.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return text.Write(p)
		}), nil))
	})
	// The nodes are judged first: five that are new take a busy machine some time.
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(c.Status(soon(t)), func(n redlock.NodeStatus) bool { return n.Quarantine == 0 })
	}, 8*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := c.Mutex("x").Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	var quarantine *redlock.QuarantineError
	require.ErrorAs(t, err, &quarantine)
	require.Greater(t, quarantine.Left, 25*time.Second)
	require.ErrorContains(t, err, "Enroll")
	for _, status := range c.Status(soon(t)) {
		require.ErrorAs(t, status.Err, &quarantine)
		require.ErrorContains(t, status.Err, "redlock enroll")
		require.Greater(t, status.Quarantine, 25*time.Second)
	}
	mu.Lock()
	require.Equal(t, 1, strings.Count(text.String(), "redlock enroll"), text.String())
	mu.Unlock()
	for _, n := range f.Nodes() {
		left, err := redis.Int64(tell(t, n, "PTTL", "redlock:quarantine"), nil)
		require.NoError(t, err)
		require.Greater(t, left, int64(25_000))
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A first try on new servers, which are all up, waits until they are judged, and does not send its reader to look for one
// that is away.
func TestAFirstTryOnNewServersBlamesNoServerThatIsUp(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	for _, n := range f.Nodes() {
		require.NoError(t, n.Delay(20*time.Millisecond)) // so that nodes are asked again while the others answer
	}
	for range 5 {
		_, err := openFresh(t, f, patient).Mutex("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorAs(t, err, new(*redlock.QuarantineError), "%v", err)
		require.NotContains(t, err.Error(), "other nodes")
		for _, n := range f.Nodes() {
			tell(t, n, "FLUSHALL")
		}
	}
}

// All servers restarted and forgot nothing. A job that tries once, from a new client, runs.
func TestAFirstTryAfterAPowerCutWaitsUntilDurableServersAreJudged(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	durable := func(cfg *redlock.Config) { cfg.Durable = true }
	require.NoError(t, openFresh(t, f, patient, durable).Enroll(soon(t)))
	for range 5 {
		for _, n := range f.Nodes() {
			require.NoError(t, n.Kill())
			require.NoError(t, n.Start(soon(t), fleet.Kept))
			require.NoError(t, n.Delay(20*time.Millisecond)) // so that nodes are asked again while the others answer
		}
		lease, err := openFresh(t, f, patient, durable).Mutex("x").TryAcquire(soon(t))
		require.NoError(t, err)
		require.NoError(t, lease.Release(soon(t)))
	}
}

// Where the others are away, that is said.
func TestANewServerAmongServersThatAreAwaySaysThatItCannotBeJudged(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	require.NoError(t, f.Nodes()[0].Kill())
	require.NoError(t, f.Nodes()[1].Kill())
	c := openFresh(t, f)
	require.ErrorContains(t, c.Status(soon(t))[2].Err, "too few other nodes answer")
}

// Q1: Another program wrote a list where the marker was. That is no marker, so the node sits out a quarantine, and then
// votes again.
func TestANodeWhoseMarkerHasAnotherTypeVotesAgain(t *testing.T) {
	for name, change := range map[string]func(*redlock.Config){"light": redlock.AlwaysLight, "script": func(*redlock.Config) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
			c := open(t, f, ample, change)
			require.NoError(t, c.Mutex("x").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))
			tell(t, f.Nodes()[0], "DEL", "redlock:node")
			tell(t, f.Nodes()[0], "LPUSH", "redlock:node", "something")
			l, err := c.Mutex("x").Acquire(soon(t))
			require.NoError(t, err)
			require.NoError(t, l.Release(soon(t)))
		})
	}
}

// F3: Where the key of the tokens has become one of another type, no acquire can work. What a client says names the key and
// what to do, and once that is done, the node votes again.
func TestANodeWhoseTokensHaveAnotherTypeSaysWhatToDo(t *testing.T) {
	for name, change := range map[string]func(*redlock.Config){"light": redlock.AlwaysLight, "script": func(*redlock.Config) {}} {
		t.Run(name, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
			n, c := f.Nodes()[0], open(t, f, patient, change)
			require.NoError(t, c.Mutex("x").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))
			tell(t, n, "DEL", "redlock:fence")
			tell(t, n, "SET", "redlock:fence", "something")
			const remedy = "redlock:fence is no sorted set, so the node grants nothing: a program has written to it; delete that key"
			require.Eventually(t, func() bool {
				_, err := c.Mutex("x").TryAcquire(soon(t))
				return assert.ErrorIs(t, err, redlock.ErrNoQuorum) && strings.Contains(err.Error(), remedy)
			}, 5*time.Second, 10*time.Millisecond, "an acquire says so")
			require.ErrorContains(t, c.Status(soon(t))[0].Err, remedy)
			fresh := open(t, f, patient, change)
			_, err := fresh.Mutex("x").TryAcquire(soon(t))
			require.ErrorContains(t, err, remedy, "also the first")
			require.ErrorContains(t, fresh.Enroll(soon(t)), remedy)
			tell(t, n, "DEL", "redlock:fence")
			for _, c := range []*redlock.Client{c, fresh} {
				l, err := c.Mutex("x").Acquire(soon(t))
				require.NoError(t, err)
				require.NoError(t, l.Release(soon(t)))
			}
		})
	}
}

// F2: A score that is no number below 2^53, as inf, is a ballot that is not believed, and the error says what to do.
func TestATokenThatIsNoNumberIsNotBelieved(t *testing.T) {
	for _, score := range []string{"inf", "1e300", "1e18"} {
		t.Run(score, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
			c := open(t, f, patient)
			l, err := c.Mutex("x").Acquire(soon(t))
			require.NoError(t, err)
			spread(t, f, "x", l)
			require.NoError(t, l.Release(soon(t)))
			n := f.Nodes()[0]
			for _, slot := range tell(t, n, "ZRANGE", "redlock:fence", 0, -1).([]any) {
				tell(t, n, "ZADD", "redlock:fence", score, slot)
			}
			require.NoError(t, f.Nodes()[1].Kill()) // the first one's vote is needed now
			_, err = c.Mutex("x").TryAcquire(soon(t))
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, "a program has written to redlock:fence there; delete that key on this node")
			tell(t, n, "DEL", "redlock:fence")
			l, err = c.Mutex("x").Acquire(soon(t))
			require.NoError(t, err)
			require.NoError(t, l.Release(soon(t)))
		})
	}
}

// S2: What is no writer's intent keeps nobody from a lock.
func TestAnIntentOfAnotherTypeIsNone(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c, other := open(t, f), open(t, f)
	spoil := func() {
		for _, n := range f.Nodes() {
			tell(t, n, "DEL", "redlock:rw:x")
			tell(t, n, "HSET", "redlock:rw:x", "some", "thing")
		}
	}
	for _, writer := range []redlock.Lock{other.RWMutex("x").Writer(), other.RWMutex("x").Writer().Fair()} {
		spoil()
		l, err := c.RWMutex("x").Reader().Acquire(soon(t))
		require.NoError(t, err)
		spoil()
		_, err = writer.TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrHeld)
		done := make(chan error, 1)
		go func() { done <- writer.Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }) }()
		require.NoError(t, l.Release(soon(t)))
		require.NoError(t, <-done)
	}
}
