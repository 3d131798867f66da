package redlock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// A proxy may keep a client's connection while the server behind it changes.

// Q1: A proxy that speaks the Redis protocol may keep a client's connection while the server behind it changes. The run
// id changes, and the client gives the connection up.
func TestAConnectionThatLeadsToAnotherServerIsGivenUp(t *testing.T) {
	t.Parallel()
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 4}), soon(t)
	proxy := newProxy(t, f.Nodes()[2])
	urls := []string{f.Nodes()[0].URL(), f.Nodes()[1].URL(), proxy.url()}
	var nodes []redlock.Node
	for _, u := range urls {
		nodes = append(nodes, redlock.Node{URL: u})
	}
	c := openFresh(t, f, func(cfg *redlock.Config) { cfg.Nodes = nodes })
	require.NoError(t, c.Enroll(ctx))
	require.NoError(t, c.Status(ctx)[2].Err)
	proxy.lead(t, f.Nodes()[3])
	require.Eventually(t, func() bool {
		s := c.Status(ctx)[2]
		return s.Connected && s.Quarantine > 0 && slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "proxy") })
	}, 8*time.Second, 10*time.Millisecond)
}

// replaced makes the server look like another one that votes, on the connections that it has. It returns that one's marker.
func (s *server) replaced(t *testing.T) (marker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.newID("1")
	s.commands.Change(func(e *existence) { e.RunID = run })
	was, err := s.redis.Get("redlock:node")
	require.NoError(t, err)
	marker = run + " " + strings.Fields(was)[1]
	require.NoError(t, s.redis.Set("redlock:node", marker))
	return marker
}

// Q1: The other server votes. It refuses the marker of the one before, so the client asks INFO, and learns from it that it
// was misled. It must not have told the other server by then that its data set is a new one: that would cost it its vote,
// or with Durable make it a voter although it forgot.
func TestAServerThatAProxyLeadsToKeepsItsMarker(t *testing.T) {
	for _, durable := range []bool{false, true} {
		for how, change := range map[string]func(*redlock.Config){
			"":                           func(*redlock.Config) {},
			", scripts cannot read INFO": redlock.NoInfoInScripts,
		} {
			t.Run(fmt.Sprint("durable: ", durable, how), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := virtual(t, 3, 1)
					for _, s := range w.servers {
						s.commands.Change(func(e *existence) { e.Fsync = "always" })
					}
					c := w.connect(t, 0, change, redlock.AskAll, func(cfg *redlock.Config) { cfg.Durable = durable })
					require.NoError(t, c.Enroll(t.Context()))
					for i := range 20 {
						synctest.Wait() // nothing is on its way, such as ready.lua with the name of the server before
						marker := w.servers[2].replaced(t)
						l, err := c.Mutex("x").TryAcquire(t.Context())
						require.NoError(t, err)
						require.NoError(t, l.Release(t.Context()))
						synctest.Wait() // the connection has ended, and the next one has not begun
						now, err := w.servers[2].redis.Get("redlock:node")
						require.NoError(t, err)
						require.Equal(t, marker, now, "the server was replaced %d times", i+1)
						time.Sleep(time.Second)
						require.NoError(t, c.Status(t.Context())[2].Err, "the client has connected again, and the server votes")
					}
				})
			})
		}
	}
}

// Q1: Likewise where the proxy leads to the other server just behind INFO: ready.lua compares the process itself.
func TestAServerIsNotJudgedByTheInfoOfAnother(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 4}), soon(t)
	two, three := f.Nodes()[2], f.Nodes()[3]
	proxy := newProxy(t, two)
	both := redlock.Nodes(f.Nodes()[0].URL(), f.Nodes()[1].URL())
	for _, third := range []string{three.URL(), two.URL()} {
		c := openFresh(t, f, func(cfg *redlock.Config) { cfg.Nodes = append(slices.Clone(both), redlock.Nodes(third)...) })
		require.NoError(t, enroll(t, c))
	}
	misled := openFresh(t, f, patient, func(cfg *redlock.Config) { cfg.Nodes = append(both, redlock.Nodes(proxy.url())...) })
	require.NoError(t, misled.Status(ctx)[2].Err)
	marker := stringOf(tell(t, three, "GET", "redlock:node"))
	proxy.leadFrom(t, "ready", three)
	require.ErrorContains(t, misled.Status(ctx)[2].Err, "proxy")
	require.Equal(t, marker, stringOf(tell(t, three, "GET", "redlock:node")))
	require.Eventually(t, func() bool {
		s := misled.Status(ctx)[2]
		return s.Err == nil && strings.HasPrefix(marker, s.RunID)
	}, 8*time.Second, 10*time.Millisecond, "the client has noticed the other server, which votes")
}
