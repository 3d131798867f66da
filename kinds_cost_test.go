package redlock_test

import (
	"fmt"
	"math"
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
	const cycles = 200
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 5})
	c := open(t, f, redlock.NeverSlow)
	scripts := func() (calls int) {
		for _, n := range f.Nodes() {
			stats, err := redis.String(tell(t, n, "INFO", "commandstats"), nil)
			require.NoError(t, err)
			_, rest, found := strings.Cut(stats, "cmdstat_evalsha:calls=")
			require.True(t, found)
			var count int
			_, err = fmt.Sscanf(rest, "%d", &count)
			require.NoError(t, err)
			calls += count
		}
		return calls
	}
	for _, kind := range kindCosts {
		l, err := kind.lock(c, kind.name).Acquire(soon(t)) // the scripts are loaded
		require.NoError(t, err)
		require.NoError(t, l.Release(soon(t)))
		before := scripts()
		for range cycles {
			l, err := kind.lock(c, kind.name).Acquire(soon(t))
			require.NoError(t, err)
			require.NoError(t, l.Release(soon(t)))
		}
		// A node that is late now and then has the others asked too.
		require.InDelta(t, kind.scripts, float64(scripts()-before)/cycles, 0.5, kind.name)
	}
}

func TestWhatEachKindCostsInRoundTrips(t *testing.T) {
	const roundTrip = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 1)
		c := w.connect(t, 0)
		for _, s := range w.servers {
			s.slow(0, roundTrip)
		}
		require.NoError(t, c.Enroll(t.Context()))
		time.Sleep(time.Minute)
		for _, kind := range kindCosts {
			began := time.Now()
			trips := func() int { return int(math.Round(float64(time.Since(began)) / float64(roundTrip))) }
			l, err := kind.lock(c, kind.name).Acquire(t.Context())
			require.NoError(t, err)
			require.Equal(t, kind.acquireTrips, trips(), "%s: Acquire", kind.name)
			require.NoError(t, l.Release(t.Context()))
			require.Equal(t, kind.cycleTrips, trips(), "%s: Acquire and Release", kind.name)
		}
	})
}
