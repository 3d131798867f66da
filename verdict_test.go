package redlock_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
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

// trials is how often to try what chance decides: as often as usual, or as REDLOCK_TRIALS says.
func trials(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("REDLOCK_TRIALS")); err == nil && n > 0 {
		return n
	}
	return usual
}

// fifth is a fifth of the usual number of repetitions if this run is one of many, as those of make stress are ([trials]).
func fifth(usual int) int {
	if trials(2) == 1 {
		return usual / 5
	}
	return usual
}

// parallel calls do for each number, at several at a time.
func parallel(times, at int, do func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range at {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range times {
		next <- i
	}
	close(next)
	wg.Wait()
}

// slow is how slow a node is made. A patient client waits much longer, so that no answer is late because this machine
// is busy. Tests in virtual time try answers close to NodeTimeout.
const slow = 300 * time.Millisecond

// A crippled fleet is one on which names are held, and some nodes are then killed.
type crippled struct {
	*fleet.Fleet
	old   *redlock.Client // connected before the nodes were killed
	names []string        // held
}

// cripple kills the first nodes, as many as dead says, and makes the next one slow.
func cripple(t *testing.T, nodes, dead int, delay time.Duration) *crippled {
	f := &crippled{Fleet: fleettest.Start(t, fleet.Process, fleet.Options{Nodes: nodes, Links: true})}
	holder := openDirect(t, f.Fleet, patient)
	f.old = open(t, f.Fleet, patient)
	for i := range 8 {
		name := fmt.Sprint("held/", i)
		l, err := holder.Mutex(name).WithTTL(10 * time.Second).Acquire(soon(t))
		require.NoError(t, err)
		spread(t, f.Fleet, name, l)
		f.names = append(f.names, name)
		t.Cleanup(func() { _ = l.Valid() }) // keeps the lease in memory: a dropped one is not renewed
	}
	for _, n := range f.Nodes()[:dead] {
		require.NoError(t, n.Kill())
	}
	require.NoError(t, f.Nodes()[dead].Delay(delay/2))
	return f
}

// A3, T1: The caller acts on this answer: it waits for a held lock, and pages someone in an outage.
func TestAHeldLockIsHeldWithAnyMinorityAwayAndAnOutageWithAnyMajority(t *testing.T) {
	for _, nodes := range []int{3, 4, 5} {
		minority := (nodes - 1) / 2
		for dead := range minority + 2 {
			for _, delay := range []time.Duration{0, slow} {
				t.Run(fmt.Sprintf("nodes=%d dead=%d delay=%v", nodes, dead, delay), func(t *testing.T) {
					t.Parallel()
					f := cripple(t, nodes, dead, delay)
					want := redlock.ErrHeld
					if dead > minority {
						want = redlock.ErrNoQuorum
					}
					check := func(who string, i int, err error) {
						assert.ErrorIs(t, err, want, "%s, try %d: %v", who, i, err)
						assert.NotErrorIs(t, err, map[bool]error{true: redlock.ErrNoQuorum, false: redlock.ErrHeld}[want == redlock.ErrHeld], "%s, try %d", who, i)
					}
					parallel(trials(8), 32, func(i int) {
						_, err := f.old.Mutex(f.names[i%len(f.names)]).TryAcquire(soon(t))
						check("old client", i, err)
					})
					parallel(trials(4), 32, func(i int) {
						cfg := redlock.Config{Nodes: redlock.Nodes(f.URLs()...)}
						patient(&cfg)
						c, err := redlock.New(cfg)
						if !assert.NoError(t, err) {
							return
						}
						defer c.Close()
						_, err = c.Mutex(f.names[i%len(f.names)]).TryAcquire(soon(t))
						check("fresh client", i, err)
					})
					for i := range 2 { // the second time it is known to be contended
						ctx, cancel := context.WithTimeout(context.Background(), 3*slow)
						_, err := f.old.Mutex(f.names[0]).Acquire(ctx)
						cancel()
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						check("who waits", i, err)
					}
				})
			}
		}
	}
}

// T1: The node that is asked first answers late, and the others are asked only then. A call that ends before these can
// have answered does not know of an outage.
func TestACallThatEndsBeforeTheLastNodesCanAnswerTellsOfNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		holder, c := w.connect(t, 0), w.connect(t, 1)
		require.NoError(t, holder.Enroll(t.Context()))
		l, err := holder.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		_, err = c.Mutex("x").TryAcquire(t.Context()) // from now on it asks one node first
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, l.Release(t.Context()))
		time.Sleep(20 * time.Millisecond)
		for _, s := range w.servers {
			s.slow(1, nodeTimeout/5)
		}
		w.servers[redlock.ProbeFor(c, "x")].slow(1, nodeTimeout-time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout+10*time.Millisecond)
		defer cancel()
		_, err = c.Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum)
	})
}
