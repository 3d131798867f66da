package redlock_test

import (
	"bytes"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// kindCosts is what a cycle of each kind costs where nobody else wants the lock. docs/performance.md has these figures.
var kindCosts = []struct {
	name                     string
	lock                     func(c *redlock.Client, name string) redlock.Lock
	scripts                  int // on all of five nodes, for an acquire and a release
	acquireTrips, cycleTrips int // round trips until Acquire returns; until Release has returned too
}{
	{"mutex", func(c *redlock.Client, name string) redlock.Lock { return c.Mutex(name) }, 6, 1, 2},
	{"reader", func(c *redlock.Client, name string) redlock.Lock { return c.RWMutex(name).Reader() }, 6, 1, 2},
	{"writer", func(c *redlock.Client, name string) redlock.Lock { return c.RWMutex(name).Writer() }, 6, 1, 2},
	{"permit", func(c *redlock.Client, name string) redlock.Lock { return c.Semaphore(name, 10) }, 6, 1, 2},
	{"fair", func(c *redlock.Client, name string) redlock.Lock { return c.Mutex(name).Fair() }, 10, 1, 2},
}

func TestWhatEachKindCostsInCommands(t *testing.T) {
	const cycles, blocks = 20, 50
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 5})
	c := open(t, f, redlock.NeverSlow, patient)
	scripts := func() (calls int) {
		for _, n := range f.Nodes() {
			calls += scriptsRun(t, n)
		}
		return calls
	}
	for _, kind := range kindCosts {
		l, err := kind.lock(c, kind.name).Acquire(soon(t)) // the scripts are loaded
		require.NoError(t, err)
		require.NoError(t, l.Release(soon(t)))
		// Where a node is late, the others are asked too, and on a busy machine one often is. So one block of cycles without
		// that is enough. A kind that costs more does so in each block; what it costs now and then, virtual time shows.
		nearest, want := math.Inf(1), float64(kind.scripts)
		for block := 0; block < blocks && math.Abs(nearest-want) > 0.25; block++ {
			before := scripts()
			for range cycles {
				l, err := kind.lock(c, kind.name).Acquire(soon(t))
				require.NoError(t, err)
				require.NoError(t, l.Release(soon(t)))
			}
			if cost := float64(scripts()-before) / cycles; math.Abs(cost-want) < math.Abs(nearest-want) {
				nearest = cost
			}
		}
		require.InDelta(t, want, nearest, 0.25, kind.name)
	}
}

func TestWhatEachKindCostsInRoundTrips(t *testing.T) {
	const roundTrip = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 1)
		var scripts atomic.Int64
		for _, s := range w.servers {
			s.links[0].heard = func(direction int, sent []byte) {
				if direction == requests {
					scripts.Add(int64(bytes.Count(sent, []byte("EVALSHA"))))
				}
			}
		}
		c := w.connect(t, 0)
		for _, s := range w.servers {
			s.slow(0, roundTrip)
		}
		require.NoError(t, c.Enroll(t.Context()))
		time.Sleep(time.Minute)
		for _, kind := range kindCosts {
			for range 50 {
				began, before := time.Now(), scripts.Load()
				trips := func() int { return int(math.Round(float64(time.Since(began)) / float64(roundTrip))) }
				l, err := kind.lock(c, kind.name).Acquire(t.Context())
				require.NoError(t, err)
				require.Equal(t, kind.acquireTrips, trips(), "%s: Acquire", kind.name)
				require.NoError(t, l.Release(t.Context()))
				require.Equal(t, kind.cycleTrips, trips(), "%s: Acquire and Release", kind.name)
				require.EqualValues(t, kind.scripts, scripts.Load()-before, "%s: scripts", kind.name)
			}
		}
	})
}
