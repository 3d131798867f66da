package redlock_test

import (
	"bytes"
	"context"
	"log/slog"
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

func tell(t testing.TB, n *fleet.Node, command string, args ...any) any {
	t.Helper()
	conn, err := n.DialDirect(soon(t), 5*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	reply, err := conn.Do(command, args...)
	require.NoError(t, err, command)
	return reply
}

// Q1: each of these makes a node forget what it granted. The holder has nodes 1 to 3 of five, the other
// client reaches 3 to 5: without the quarantine, node 3 lets it in.
func TestANodeThatForgotDoesNotGrantWhileItsLeasesLast(t *testing.T) {
	for name, forget := range map[string]func(*testing.T, *fleet.Node){
		"restart without data": func(t *testing.T, n *fleet.Node) {
			require.NoError(t, n.Kill())
			require.NoError(t, n.Start(soon(t), fleet.Empty))
		},
		"restart with an old RDB": func(t *testing.T, n *fleet.Node) {
			require.NoError(t, n.Kill()) // what was saved before the lock was taken
			require.NoError(t, n.Start(soon(t), fleet.Kept))
		},
		"FLUSHALL":               func(t *testing.T, n *fleet.Node) { tell(t, n, "FLUSHALL") },
		"FLUSHDB":                func(t *testing.T, n *fleet.Node) { tell(t, n, "FLUSHDB") },
		"SWAPDB":                 func(t *testing.T, n *fleet.Node) { tell(t, n, "SWAPDB", 0, 1) },
		"key and marker deleted": func(t *testing.T, n *fleet.Node) { tell(t, n, "DEL", "x", "redlock:node") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleettest.Start(t, fleet.Process, fleet.Options{Links: true})
			nodes, ctx := f.Nodes(), soon(t)
			other := openDirect(t, f, brief)
			holder := open(t, f, brief)
			require.NoError(t, nodes[2].Save(ctx))
			for _, n := range nodes[3:] {
				require.NoError(t, n.Cut()) // from the holder, whose urls go through the links
			}
			l, err := holder.Mutex("x").Acquire(ctx)
			require.NoError(t, err)
			forget(t, nodes[2])
			forgotten := time.Now()
			for _, n := range nodes[:2] {
				require.NoError(t, n.Cut())
			}
			require.NoError(t, nodes[2].Cut())
			ended := make(chan time.Time, 1)
			go func() {
				<-l.Context().Done()
				ended <- time.Now()
			}()
			next, err := other.Mutex("x").Acquire(ctx)
			require.NoError(t, err)
			acquired := time.Now()
			require.False(t, l.Valid(), "two hold it")
			require.LessOrEqual(t, (<-ended).Sub(acquired), time.Duration(0))
			require.Less(t, acquired.Sub(forgotten), 5*time.Second)
			require.NoError(t, next.Release(ctx))
		})
	}
}

// Q2: what a quarantined node had granted is extended there and released, and planted again.
func TestAQuarantinedNodeStillExtendsAndReleases(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c, ctx := open(t, f), soon(t)
		l, err := c.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		holds(t, f, "x", l.Token())
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

// Q3.
func TestALongerMaxTTLThanTheNodesKnowIsRefused(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		ctx := soon(t)
		open(t, f, func(cfg *redlock.Config) { cfg.MaxTTL = 20 * time.Second })
		long := openFresh(t, f)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			_, err := long.Mutex("x").TryAcquire(ctx)
			assert.ErrorIs(t, err, redlock.ErrNoQuorum)
			assert.ErrorContains(t, err, "MaxTTL")
		}, 2*time.Second, 5*time.Millisecond)
		short := openFresh(t, f, func(cfg *redlock.Config) { cfg.MaxTTL = 15 * time.Second })
		l, err := short.Mutex("x").Acquire(ctx)
		require.NoError(t, err, "shorter leases than others wait for do no harm")
		require.NoError(t, l.Release(ctx))
	})
}

func TestDurableNodesSkipTheQuarantineAfterARestartButNotAfterAFlush(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	c, ctx := open(t, f, func(cfg *redlock.Config) { cfg.Durable = true }), soon(t)
	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	holds(t, f, "x", l.Token())
	for _, n := range f.Nodes() {
		require.NoError(t, n.Kill())
		require.NoError(t, n.Start(ctx, fleet.Kept))
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		_, err := c.Mutex("x").TryAcquire(ctx)
		assert.ErrorIs(t, err, redlock.ErrHeld, "it votes, and has forgotten nothing")
	}, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, l.Release(ctx))
	for _, n := range f.Nodes() {
		tell(t, n, "FLUSHALL")
	}
	_, err = c.Mutex("x").TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
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
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := c.Mutex("x").Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	var quarantine *redlock.QuarantineError
	require.ErrorAs(t, err, &quarantine)
	require.Greater(t, quarantine.Left, 25*time.Second)
	require.ErrorContains(t, err, "Enroll")
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
