package redlock_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// rotated makes a client of the same nodes in another order.
func rotated(t testing.TB, f *fleet.Fleet, by int, change ...func(*redlock.Config)) *redlock.Client {
	urls := f.URLs()
	urls = append(urls[by:], urls[:by]...)
	return open(t, f, append(change, func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(urls...) })...)
}

// W3: All clients ask the same node first for a lock, whatever the order of their nodes. Different locks ask different
// nodes.
func TestTheNodeAskedFirstIsChosenByTheNameAndTheServer(t *testing.T) {
	const nodes, names = 5, 200
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: nodes})
	var clients []*redlock.Client
	for i := range nodes {
		clients = append(clients, rotated(t, f, i, redlock.NeverSlow))
	}
	for i, c := range clients { // a long first round trip would make a node count as slow
		for j := range nodes {
			require.Eventually(t, func() bool { return redlock.IsProbe(c, j) }, 30*time.Second, 10*time.Millisecond, "client %d, node %d", i, j)
		}
	}
	counts := make([]int, nodes)
	for i := range names {
		name := fmt.Sprint("name/", i)
		first := redlock.ProbeFor(clients[0], name)
		counts[first]++
		for by, c := range clients {
			require.Equal(t, first, (redlock.ProbeFor(c, name)+by)%nodes, name)
		}
		require.Equal(t, redlock.ProbeFor(clients[0], name, "z"), (redlock.ProbeFor(clients[1], "z", name)+1)%nodes)
	}
	require.Greater(t, slices.Min(counts), names/nodes/3, "locks of each node: %v", counts)
}

// A2: A bare quorum of five nodes is asked, chosen by the name. So with many names no node has more to do than another.
// What counts are the acquires: how many commands one of them takes depends on the time, since a server whose clock was
// read a moment ago gets the light form.
func TestTheLoadOfManyNamesSpreadsOverAllNodes(t *testing.T) {
	const nodes, names, atOnce = 5, 3000, 8
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: nodes})
	c := open(t, f, redlock.NeverSlow, redlock.NeverLate, patient)
	var before [nodes]int
	for i, n := range f.Nodes() {
		before[i] = callsOf(t, n, "set")
	}
	var work sync.WaitGroup
	for worker := range atOnce {
		work.Go(func() {
			for i := worker; i < names; i += atOnce {
				l, err := c.Mutex(fmt.Sprint("name/", i)).Acquire(soon(t))
				if assert.NoError(t, err) {
					assert.NoError(t, l.Release(soon(t)))
				}
			}
		})
	}
	work.Wait()
	all, busiest := 0, 0
	for i, n := range f.Nodes() {
		done := callsOf(t, n, "set") - before[i]
		all, busiest = all+done, max(busiest, done)
	}
	require.GreaterOrEqual(t, all, 3*names, "a quorum for each")
	share := float64(busiest) / float64(all)
	require.LessOrEqual(t, share, 0.22)
	t.Logf("%d acquires, %.1f %% of them on the busiest of %d nodes", all, 100*share, nodes)
}

// W3: No client asks first a node that is slow or refuses to grant. Once that node is in order, it is asked first
// again.
func TestTheNodeAskedFirstIsNeitherSlowNorRefusing(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	c := open(t, f)
	becomes := func(node int, asked bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			if l, err := c.Mutex("x").Acquire(soon(t)); err == nil { // the client learns it from the votes of its rounds
				_ = l.Release(soon(t))
			}
			return redlock.IsProbe(c, node) == asked
		}, 20*time.Second, 5*time.Millisecond)
	}
	for node, n := range f.Nodes() {
		becomes(node, true)
		require.NoError(t, n.Delay(100*time.Millisecond))
		becomes(node, false)
		require.NoError(t, n.Delay(0))
		becomes(node, true)

		tell(t, n, "CONFIG", "SET", "maxmemory", "1")
		becomes(node, false)
		tell(t, n, "CONFIG", "SET", "maxmemory", "0")
		becomes(node, true)
	}
}

// BenchmarkContendedBeside has four clients compete for one name. One node is slow or refuses, at each position of
// their lists, and with lists in different orders. An operation is one acquire and release.
func BenchmarkContendedBeside(b *testing.B) {
	const nodes = 3
	for _, fault := range []string{"nothing", "slow", "refuses"} {
		for at := range nodes {
			for _, rotate := range []bool{false, true} {
				if fault == "nothing" && at > 0 {
					continue
				}
				b.Run(fmt.Sprintf("fault=%s/node=%d/rotated=%v", fault, at, rotate), func(b *testing.B) {
					f := fleettest.Start(b, fleet.Process, fleet.Options{Nodes: nodes, Links: true})
					var clients []*redlock.Client
					for i := range 4 {
						by := 0
						if rotate {
							by = i % nodes
						}
						clients = append(clients, rotated(b, f, by))
					}
					switch fault {
					case "slow":
						if err := f.Nodes()[at].Delay(100 * time.Millisecond); err != nil {
							b.Fatal(err)
						}
					case "refuses":
						tell(b, f.Nodes()[at], "CONFIG", "SET", "maxmemory", "1")
					}
					hot := func(i int) redlock.Lock { return clients[i].Mutex("hot") }
					contend(b, len(clients), 300, hot) // until they know the slow or refusing node
					b.ResetTimer()
					contend(b, len(clients), b.N, hot)
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
				})
			}
		}
	}
}

// A setClock is the system clock with another origin.
type setClock struct{ by time.Duration }

func (c setClock) Now() redlock.Instant { return redlock.SystemClock().Now().Add(c.by) }

// W3: The origin of a Clock is its own choice. So what a node has never done was not done at 0.
func TestAClockOfAnyOriginHasAFirstNode(t *testing.T) {
	for _, by := range []time.Duration{0, -200 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 3, 1)
			c := w.connect(t, 0, func(cfg *redlock.Config) { cfg.Clock = setClock{by} })
			require.NoError(t, c.Enroll(t.Context()))
			time.Sleep(10 * time.Second)
			require.NotEqual(t, -1, redlock.ProbeFor(c, "x"), by)
			l, err := c.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			synctest.Wait()
			asked := 0
			for _, s := range w.servers {
				if s.timeToLive("x") > 0 {
					asked++
				}
			}
			require.Equal(t, 2, asked, by)
			require.NoError(t, l.Release(t.Context()))
		})
	}
}
