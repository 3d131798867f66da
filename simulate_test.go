package redlock_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	simulateSeeds = flag.Int("seeds", 30, "how many seeds TestSimulation runs")
	simulateFrom  = flag.Uint64("from", 1, "the first of these seeds")
	simulateFirst = flag.Uint64("seed", 0, "the seed that TestSimulation runs alone, with a trace; 0: many")
	simulateEach  = flag.Int("switches", 0, "switch each defence off, for no more than so many seeds; 0: none is off")
	simulateOff   = flag.String("off", "", "the defence that is off, by its name in docs/safety.md")
)

// simulate runs one seed in a bubble of its own.
func simulate(t *testing.T, seed uint64, off string, trace bool) (w *world) {
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(seed)
		if trace {
			w.trace = func(format string, args ...any) {
				fmt.Printf("%12v  %s\n", time.Since(w.began), fmt.Sprintf(format, args...))
			}
		}
		switchOff(t, w, off)
		require.NoError(t, w.run(), "seed %d", seed)
	})
	return w
}

// TestSimulation runs the client's own code and the nodes' own scripts in virtual time, by seed, among
// faults, and holds what happens against the promise. -seed=N runs one seed again.
func TestSimulation(t *testing.T) {
	if *simulateFirst != 0 {
		w := simulate(t, *simulateFirst, *simulateOff, true)
		for _, v := range w.oracle.violations {
			t.Error(v)
		}
		return
	}
	if *simulateEach > 0 {
		everyDefenceIsNeeded(t, *simulateEach)
		return
	}
	s := sweep(t, *simulateFrom, *simulateSeeds, *simulateOff, false)
	fmt.Println(s)
	for _, f := range s.failures {
		t.Error(f.replay(*simulateOff))
	}
}

type failure struct {
	seed       uint64
	violations []violation
}

// replay is what broke, and the line that runs it again.
func (f failure) replay(off string) string {
	return fmt.Sprintf("%s\n\treplay: go test -run '^TestSimulation$' -seed=%d -off=%q", f.violations[0], f.seed, off)
}

// A summary is what a sweep over many seeds found.
type summary struct {
	seeds, events, granted int64
	took                   time.Duration
	failures               []failure
}

func (s summary) String() string {
	return fmt.Sprintf("simulation: %d seeds, %d events, %d acquisitions, %d violations, %.0f seeds/s",
		s.seeds, s.events, s.granted, len(s.failures), float64(s.seeds)/s.took.Seconds())
}

// sweep runs seeds, as many at once as there are processors, until all are run or, if once, one fails.
func sweep(t *testing.T, first uint64, count int, off string, once bool) (s summary) {
	var next, stop atomic.Int64
	var mu sync.Mutex
	began := time.Now()
	said := began
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // many small worlds, each soon forgotten
	t.Run("seeds", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < int64(count) && stop.Load() == 0; i = next.Add(1) - 1 {
					w := simulate(t, first+uint64(i), off, false)
					mu.Lock()
					s.seeds++
					s.events += w.events.Load()
					s.granted += int64(w.oracle.granted)
					if len(w.oracle.violations) > 0 {
						f := failure{w.seed, w.oracle.violations}
						s.failures = append(s.failures, f)
						if !once {
							fmt.Fprintln(os.Stderr, f.replay(off)) // at once: the sweep may take hours
						}
						if once {
							stop.Store(1)
						}
					}
					if since := time.Since(said); since > 10*time.Second { // who waits for long wants to see something move
						said = said.Add(since)
						s.took = time.Since(began)
						fmt.Fprintf(os.Stderr, "%s, of %d\n", s, count)
					}
					mu.Unlock()
				}
			})
		}
	})
	s.took = time.Since(began)
	return s
}
