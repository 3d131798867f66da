//go:build unix

package dockerfleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

func dialView(t *testing.T, v *fleet.View) redis.Conn {
	t.Helper()
	conn, err := redis.DialURL(v.URL(), redis.DialReadTimeout(soon))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestAViewIsCutForItsClientAlone(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		v, err := n.NewView()
		require.NoError(t, err)
		mine := dialView(t, v)
		_, err = mine.Do("PING")
		require.NoError(t, err)
		v.Cut()
		answered := ask(mine, "PING")
		requireMute(t, answered)
		do(t, n, "PING")
		v.Heal()
		requireAnswer(t, answered)
	})
}

func TestAViewLeadsWhereItIsToldAndIsShutWhileItsNodeIsDown(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 2}, func(t *testing.T, f *fleet.Fleet) {
		a, b := f.Nodes()[0], f.Nodes()[1]
		do(t, a, "SET", "who", "a")
		do(t, b, "SET", "who", "b")
		v, err := a.NewView()
		require.NoError(t, err)
		who := func() string {
			text, err := redis.String(dialView(t, v).Do("GET", "who"))
			require.NoError(t, err)
			return text
		}
		require.Equal(t, "a", who())
		old := dialView(t, v)
		_, err = old.Do("PING") // until it answers, it may still be about to be led to a node
		require.NoError(t, err)
		require.NoError(t, v.Lead(b))
		_, err = old.Do("PING")
		require.Error(t, err, "a connection to the former node ends")
		require.Equal(t, "b", who())

		require.NoError(t, b.Kill())
		_, err = redis.DialURL(v.URL())
		require.Error(t, err)
		require.NoError(t, v.Lead(a))
		require.Equal(t, "a", who())
		require.NoError(t, v.Lead(b))
		_, err = redis.DialURL(v.URL())
		require.Error(t, err)
		require.NoError(t, b.Start(ctx(t), fleet.Empty))
		_, err = dialView(t, v).Do("PING")
		require.NoError(t, err)
	})
}

// near is less than any step of a clock, and more than a busy machine needs for a question.
const near = 20 * time.Second

func TestAServersClockCanBeSetAndItsKeysFollow(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Process, fleet.Docker} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			if err := fleet.ClocksAvailable(kind); err != nil {
				required.Missing(t, "clocks", err)
			}
			f := fleettest.Start(t, kind, fleet.Options{Nodes: 1, Clocks: true})
			n := f.Nodes()[0]
			now := func() time.Time {
				seconds, err := redis.Int64s(do(t, n, "TIME"), nil)
				require.NoError(t, err)
				return time.Unix(seconds[0], 0)
			}
			assert.WithinDuration(t, time.Now(), now(), near)
			do(t, n, "SET", "lock", "owner", "PX", 30_000)
			require.NoError(t, n.SetClock(60*time.Second))
			assert.WithinDuration(t, time.Now().Add(60*time.Second), now(), near)
			assert.Nil(t, do(t, n, "GET", "lock"))
			require.NoError(t, n.SetClock(-120*time.Second))
			assert.WithinDuration(t, time.Now().Add(-120*time.Second), now(), near)
			require.NoError(t, n.Kill())
			require.NoError(t, n.Start(ctx(t), fleet.Empty))
			assert.WithinDuration(t, time.Now().Add(-120*time.Second), now(), near)
			require.NoError(t, n.SetClock(0))
			assert.WithinDuration(t, time.Now(), now(), near)
		})
	}
}

func TestOneNodeReachesAnotherByItsPeerAddress(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Process, fleet.Docker} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := fleettest.Start(t, kind, fleet.Options{Nodes: 2, Args: []string{"--repl-diskless-sync-delay", "0"}})
			primary, replica := f.Nodes()[0], f.Nodes()[1]
			host, port, err := primary.PeerAddress()
			require.NoError(t, err)
			do(t, primary, "SET", "k", "v")
			do(t, replica, "REPLICAOF", host, port)
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				conn, err := replica.DialDirect(context.Background(), soon)
				if assert.NoError(t, err) {
					defer conn.Close()
					text, _ := redis.String(conn.Do("GET", "k"))
					assert.Equal(t, "v", text)
				}
			}, soon, 10*time.Millisecond)
		})
	}
}
