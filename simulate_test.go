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

	"github.com/quorumlock/redlock"
)

var (
	simulateSeeds = flag.Int("seeds", 10, "how many seeds TestSimulation runs")
	simulateFrom  = flag.Uint64("from", 1, "the first of these seeds")
	simulateFirst = flag.Uint64("seed", 0, "the seed that TestSimulation runs alone, and shows; 0: many")
	simulateTries = flag.Int("tries", 50, "how often -seed=N runs the seed at the most, until something breaks")
	simulateEach  = flag.Int("switches", 0, "switch each defence off, for no more than so many seeds; 0: none is off")
	simulateAll   = flag.Bool("search", false, "with -switches: search from the first seeds on, and not at seeds that showed a defence before")
	simulateKind  = flag.String("kind", "", "every world has this kind of lock: fair, shared, handover, leader, names or minhold")
	simulateOff   = flag.String("off", "", "the defence that is off, by its name in docs/safety.md")
)

// simulate runs one seed in a bubble of its own. change is made to the configuration of every client.
func simulate(t *testing.T, seed uint64, off string, change ...func(*redlock.Config)) (w *world) {
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(seed, off)
		w.change = append(w.change, change...)
		w.trace("seed %d: leases of %v, %+v", seed, w.ttl, w.has)
		switchOff(t, w, off)
		run := w.run
		if w.has.ordered {
			run = w.runFair
		}
		require.NoError(t, run(), "seed %d", seed)
	})
	return w
}

// TestSimulation runs the client's own code and the nodes' own scripts in virtual time. A seed decides the faults, and
// the oracle checks the invariants. -seed=N runs one seed again.
func TestSimulation(t *testing.T) {
	if *simulateFirst != 0 {
		replay(t, *simulateFirst)
		return
	}
	if *simulateEach > 0 {
		everyDefenceIsNeeded(t, *simulateEach)
		return
	}
	require.Contains(t, append(simulatedKinds, ""), *simulateKind)
	s := sweep(t, *simulateFrom, *simulateSeeds, *simulateOff, nil)
	fmt.Println(s)
	for _, f := range s.failures {
		t.Error(f.replay(*simulateOff))
	}
}

// replay runs a seed until something breaks, and shows what happened before. The seed does not decide the order of
// goroutines within one instant, so what broke once may hold the next time.
func replay(t *testing.T, seed uint64) {
	for try := 1; ; try++ {
		w := simulate(t, seed, *simulateOff)
		if len(w.oracle.violations) == 0 && try < *simulateTries {
			continue
		}
		for _, e := range w.record.trace {
			fmt.Println(e)
		}
		fmt.Printf("seed %d, try %d: %d violations; with all messages: %s\n", seed, try, len(w.oracle.violations), w.record.save(seed))
		for _, v := range w.oracle.violations {
			t.Error(v)
		}
		return
	}
}

type failure struct {
	seed       uint64
	violations []violation
}

// replay is what broke, and the command line that runs it again.
func (f failure) replay(off string) string {
	return fmt.Sprintf("%s\n\treplay: go test -run '^TestSimulation$' -seed=%d -off=%q -draw=%q -kind=%q",
		f.violations[0], f.seed, off, *simulateDraw, *simulateKind)
}

// A summary is the result of a sweep over many seeds.
type summary struct {
	seeds, events, granted int64
	took                   time.Duration
	failures               []failure
}

func (s summary) String() string {
	return fmt.Sprintf("simulation: %d seeds, %d events, %d acquisitions, %d violations, %.0f seeds/s",
		s.seeds, s.events, s.granted, len(s.failures), float64(s.seeds)/s.took.Seconds())
}

// sweep runs so many seeds from the first on: see [runSeeds].
func sweep(t *testing.T, first uint64, count int, off string, sought func(failure) bool) summary {
	return runSeeds(t, func(i int64) uint64 { return first + uint64(i) }, count, off, sought)
}

// runSeeds runs seeds, several at a time, until all have run or one has failed as sought. If nothing is sought, it reports
// each failure at once, because it may run for hours.
func runSeeds(t *testing.T, seed func(i int64) uint64, count int, off string, sought func(failure) bool) (s summary) {
	var next, stop atomic.Int64
	var mu sync.Mutex
	began := time.Now()
	said := began
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // many small worlds make much garbage
	var workers sync.WaitGroup
	for worker := range min(count, 3*runtime.GOMAXPROCS(0)) { // the goroutines of one world mostly wait for each other
		workers.Go(func() {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				for i := next.Add(1) - 1; i < int64(count) && stop.Load() == 0; i = next.Add(1) - 1 {
					w := simulate(t, seed(i), off)
					mu.Lock()
					s.seeds++
					s.events += w.events.Load()
					s.granted += int64(w.oracle.granted)
					if len(w.oracle.violations) > 0 {
						f := failure{w.seed, w.oracle.violations}
						s.failures = append(s.failures, f)
						if sought == nil {
							fmt.Fprintf(os.Stderr, "%s\n\twhat happened before: %s\n", f.replay(off), w.record.save(w.seed))
						} else if sought(f) {
							stop.Store(1)
						}
					}
					if since := time.Since(said); since > 10*time.Second { // a long sweep shows how far it is
						said = said.Add(since)
						s.took = time.Since(began)
						fmt.Fprintf(os.Stderr, "%s, of %d\n", s, count)
					}
					mu.Unlock()
				}
			})
		})
	}
	workers.Wait()
	s.took = time.Since(began)
	return s
}
