package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// BenchmarkCycle is one acquire and release of an uncontended lock, on five servers beside the client.
func BenchmarkCycle(b *testing.B) {
	f := fleettest.Start(b, fleet.Process, fleet.Options{})
	for _, goroutines := range []int{1, 16, 256} {
		for _, fenced := range []bool{true, false} {
			b.Run(fmt.Sprintf("goroutines=%d/fence=%v", goroutines, fenced), func(b *testing.B) {
				c := openFresh(b, f, func(cfg *redlock.Config) { cfg.NoFence = !fenced })
				require.NoError(b, c.Enroll(soon(b), redlock.ChangeConfig())) // the client before had another configuration
				defer reportServers(b, f)()
				cycle(b, c, goroutines)
			})
		}
	}
}

// reportServers returns a function that reports what an operation has cost the servers since.
func reportServers(b *testing.B, f *fleet.Fleet) (report func()) {
	before := serversTime(b, f)
	return func() {
		b.ReportMetric(float64((serversTime(b, f)-before).Nanoseconds())/1e3/float64(b.N), "servers-µs/op")
	}
}

// serversTime is the processor time of all servers.
func serversTime(b *testing.B, f *fleet.Fleet) (all time.Duration) {
	for _, n := range f.Nodes() {
		conn, err := n.DialDirect(b.Context(), 5*time.Second)
		require.NoError(b, err)
		info, err := redis.String(conn.Do("INFO", "cpu"))
		require.NoError(b, err)
		require.NoError(b, conn.Close())
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "used_cpu_sys" || name == "used_cpu_user" {
				seconds, err := strconv.ParseFloat(value, 64)
				require.NoError(b, err)
				all += time.Duration(seconds * float64(time.Second))
			}
		}
	}
	return all
}

// BenchmarkNodes is BenchmarkCycle with fewer and more servers.
func BenchmarkNodes(b *testing.B) {
	for _, nodes := range []int{3, 5, 7, 9} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			f := fleettest.Start(b, fleet.Process, fleet.Options{Nodes: nodes})
			cycle(b, open(b, f), 16)
		})
	}
}

// cycle has goroutines acquire and release, each a name of its own, b.N times in total.
func cycle(b *testing.B, c *redlock.Client, goroutines int) {
	ctx := context.Background()
	names := make([]string, goroutines) // made here, because allocations count
	for g := range names {
		names[g] = fmt.Sprint("bench/", g)
	}
	b.ReportAllocs()
	b.ResetTimer()
	repeat(b, goroutines, b.N, func(g int) error {
		l, err := c.Mutex(names[g]).Acquire(ctx)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

// repeat has goroutines do something, so many times in total. do gets the number of its goroutine.
func repeat(b *testing.B, goroutines, times int, do func(g int) error) {
	var left atomic.Int64
	left.Store(int64(times))
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(g); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkExtend is one renewal of a lease, on five servers beside the client: what keeping a lease costs every third of
// its TTL.
func BenchmarkExtend(b *testing.B) {
	f := fleettest.Start(b, fleet.Process, fleet.Options{})
	for _, goroutines := range []int{1, 256} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			c := open(b, f)
			leases := make([]*redlock.Lease, goroutines)
			for i := range leases {
				var err error
				leases[i], err = c.Mutex(fmt.Sprint("extend/", i)).Acquire(soon(b))
				require.NoError(b, err)
			}
			defer reportServers(b, f)()
			b.ReportAllocs()
			b.ResetTimer()
			repeat(b, goroutines, b.N, func(g int) error { return leases[g].Extend(context.Background()) })
			b.StopTimer()
		})
	}
}

// BenchmarkContended has separate clients compete for one name. Each holds it for a millisecond.
func BenchmarkContended(b *testing.B) {
	f := fleettest.Start(b, fleet.Process, fleet.Options{})
	for _, clients := range []int{2, 8, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			all := make([]*redlock.Client, clients)
			for i := range all {
				all[i] = open(b, f)
			}
			b.ResetTimer()
			waits := contend(b, clients, b.N, func(i int) redlock.Lock { return all[i].Mutex("hot") })
			reportWaits(b, waits)
			b.ReportMetric(float64(waits[len(waits)-1].Microseconds())/1e3, "max-wait-ms")
		})
	}
}

// BenchmarkOverlapping has 16 goroutines of one process want so many of ten names, and hold them for a millisecond. An
// operation is one acquire and release.
func BenchmarkOverlapping(b *testing.B) {
	const goroutines = 16
	f := fleettest.Start(b, fleet.Process, fleet.Options{})
	for _, count := range []int{1, 2, 3} {
		b.Run(fmt.Sprintf("names=%d", count), func(b *testing.B) {
			c := open(b, f)
			var random [goroutines]*rand.Rand
			for i := range random {
				random[i] = rand.New(rand.NewPCG(uint64(i), 1))
			}
			b.ResetTimer()
			reportWaits(b, contend(b, goroutines, b.N, func(i int) redlock.Lock {
				names := someOf(random[i], count, 10)
				return c.Mutex(names[0], names[1:]...)
			}))
		})
	}
}

// contend has so many goroutines acquire and release a lock, so many times in total, and hold it for a millisecond. It
// returns how long the acquires took, the shortest first. lock makes the lock for the goroutine with this number.
func contend(b *testing.B, goroutines, times int, lock func(int) redlock.Lock) (waits []time.Duration) {
	var mu sync.Mutex // guards waits
	repeat(b, goroutines, times, func(g int) error {
		l := lock(g)
		begun := time.Now()
		return l.Do(context.Background(), func(context.Context, *redlock.Lease) error {
			waited := time.Since(begun)
			time.Sleep(time.Millisecond)
			mu.Lock()
			waits = append(waits, waited)
			mu.Unlock()
			return nil
		})
	})
	slices.Sort(waits)
	return waits
}

// reportWaits reports b.N grants, of which the acquires took so long.
func reportWaits(b *testing.B, waits []time.Duration) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1e3, "p99-wait-ms")
}

// BenchmarkTenThousandWaiters has ten thousand goroutines of one process wait for one name. An operation is one acquire
// and release.
func BenchmarkTenThousandWaiters(b *testing.B) {
	const waiters = 10_000
	f := fleettest.Start(b, fleet.Process, fleet.Options{})
	c := open(b, f)
	b.ReportAllocs()
	for b.Loop() {
		held, err := c.Mutex("hot").Acquire(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				if err := c.Mutex("hot").Do(context.Background(), func(context.Context, *redlock.Lease) error { return nil }); err != nil {
					b.Error(err)
				}
			})
		}
		if err := held.Release(context.Background()); err != nil {
			b.Fatal(err)
		}
		wg.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/waiters, "µs/hand-over")
}

// BenchmarkHandOver passes a lock to and fro between two clients. Each is 1 ms from the nodes, as from a server in the
// next building. It reports the time from the return of Release until the other client holds the lock.
func BenchmarkHandOver(b *testing.B) {
	const roundTrip = 2 * time.Millisecond
	f := fleettest.Start(b, fleet.Process, fleet.Options{Links: true})
	clients := []*redlock.Client{open(b, f), open(b, f)}
	for _, n := range f.Nodes() {
		if err := n.Delay(roundTrip / 2); err != nil {
			b.Fatal(err)
		}
	}
	ctx := context.Background()
	held, err := clients[0].Mutex("hot").Acquire(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for i := 1; b.Loop(); i++ {
		type got struct {
			lease *redlock.Lease
			at    time.Time
			err   error
		}
		next := make(chan got, 1)
		asking := make(chan struct{})
		go func() {
			close(asking)
			l, err := clients[i%2].Mutex("hot").Acquire(ctx)
			next <- got{l, time.Now(), err}
		}()
		<-asking
		time.Sleep(10 * roundTrip) // until it waits
		if err := held.Release(ctx); err != nil {
			b.Fatal(err)
		}
		released := time.Now()
		g := <-next
		if g.err != nil {
			b.Fatal(g.err)
		}
		held = g.lease
		took = append(took, g.at.Sub(released))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/float64(roundTrip), "round-trips-p50")
	b.ReportMetric(float64(took[len(took)*99/100])/float64(roundTrip), "round-trips-p99")
}
