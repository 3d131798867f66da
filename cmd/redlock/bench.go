package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/access"
)

const benchHelp = `Measures on the given nodes
  - how long it takes to acquire and to release a lock without contention;
  - how many such cycles per second several goroutines reach;
  - how long a hand-over takes, from the call of Release to the acquisition by a waiter in another client.

The keys are bench/RANDOM/…. bench removes them at the end. While it runs, it loads the nodes as much as it can.

Exit code: 0 measured, 69 no quorum, 64 usage, 128+n if signal n ended it (130: INT).`

type bench struct {
	operator
	seconds    float64
	goroutines int

	clients [2]*redlock.Client
	prefix  string
	length  time.Duration
}

func newBench() *cobra.Command {
	b := &bench{}
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure cycles per second, latency and hand-over on these nodes",
		Long:    benchHelp,
		Example: "  redlock bench --nodes a:6379,b:6379,c:6379\n  redlock bench --nodes embedded --seconds 1 --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(b.seconds > 0 && b.seconds <= 3600) { // so that NaN is refused too
				return usage("--seconds %v: give more than 0, at most 3600", b.seconds)
			}
			if b.goroutines < 1 || b.goroutines > 10_000 {
				return usage("--goroutines %d: give 1 to 10000", b.goroutines)
			}
			return stoppable(cmd, func(ctx context.Context) error { return b.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr()) })
		},
	}
	b.flags(cmd)
	cmd.Flags().Float64Var(&b.seconds, "seconds", 2, "length of each of the three measurements")
	cmd.Flags().IntVar(&b.goroutines, "goroutines", 16, "how many goroutines acquire locks at once")
	return cmd
}

// A benchReport is what bench prints.
type benchReport struct {
	Nodes    int       `json:"nodes"`
	Alone    loadStats `json:"alone"`
	Together loadStats `json:"together"`
	HandOver latency   `json:"hand_over"`
}

type loadStats struct {
	Goroutines   int     `json:"goroutines"`
	CyclesPerSec float64 `json:"cycles_per_second"`
	Acquire      latency `json:"acquire"`
	Release      latency `json:"release"`
}

type latency struct {
	Count     int   `json:"count"`
	P50Micros int64 `json:"p50_micros"`
	P99Micros int64 `json:"p99_micros"`
	MaxMicros int64 `json:"max_micros"`
}

func latencyOf(all []time.Duration) latency {
	if len(all) == 0 {
		return latency{}
	}
	slices.Sort(all)
	micros := func(i int) int64 { return all[i].Round(time.Microsecond).Microseconds() }
	return latency{Count: len(all), P50Micros: micros(len(all) / 2), P99Micros: micros(len(all) * 99 / 100), MaxMicros: micros(len(all) - 1)}
}

func (b *bench) run(ctx context.Context, out, progress io.Writer) error {
	if err := b.check(); err != nil {
		return err
	}
	nodes, closeNodes, err := b.openNodes(ctx)
	if err != nil {
		return err
	}
	defer closeNodes()
	for i := range b.clients {
		if b.clients[i], err = b.connect(ctx, nodes, redlock.Hooks{}); err != nil {
			return err
		}
		defer b.clients[i].Close()
	}
	b.prefix, b.length = "bench/"+rand.Text(), time.Duration(b.seconds*float64(time.Second))
	first, err := tryThrice(ctx, b.lock(0, b.prefix)) // so that nodes that do not grant are reported at once
	if err != nil {
		return failure(err)
	}
	if err := first.Release(ctx); err != nil {
		return failure(err)
	}
	tell := func(what string) {
		if !b.json {
			say(progress, "%v of %s", b.length, what)
		}
	}
	r := benchReport{Nodes: len(nodes)}
	tell("one goroutine")
	if r.Alone, err = b.load(ctx, 1); err != nil {
		return failure(err)
	}
	tell(plural(b.goroutines, "goroutine") + ", each with its own lock")
	if r.Together, err = b.load(ctx, b.goroutines); err != nil {
		return failure(err)
	}
	tell("two clients that hand one lock back and forth")
	if r.HandOver, err = b.handOver(ctx); err != nil {
		return failure(err)
	}
	if b.json {
		return writeJSON(out, r)
	}
	return r.print(out)
}

// lock is a lock of one of the two clients. If the nodes are one group of several, its name is one of this group.
func (b *bench) lock(client int, prefix string) redlock.Lock {
	name := prefix
	for i := range 1000 { // that more are needed does not happen, unless the name is wrong for another reason
		if _, _, err := access.Of(b.clients[client]).Keys(name); err == nil {
			break
		}
		name = fmt.Sprint(prefix, "/", i)
	}
	return b.clients[client].Mutex(name).WithOwner(b.owner)
}

// tryThrice tries again if too few nodes answered: one late answer is no outage.
func tryThrice(ctx context.Context, lock redlock.Lock) (lease *redlock.Lease, err error) {
	for range 3 {
		if lease, err = lock.TryAcquire(ctx); !errors.Is(err, redlock.ErrNoQuorum) {
			break
		}
	}
	return lease, err
}

// load lets goroutines acquire and release for the given time, each with its own name.
func (b *bench) load(ctx context.Context, goroutines int) (loadStats, error) {
	type worker struct {
		acquire, release []time.Duration
		err              error
	}
	workers := make([]worker, goroutines)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range workers {
		w := &workers[i]
		lock := b.lock(0, fmt.Sprint(b.prefix, "/", i))
		wg.Go(func() {
			for time.Since(began) < b.length && w.err == nil {
				var acquired, released time.Duration
				acquired, released, w.err = cycle(ctx, lock)
				if w.err == nil {
					w.acquire, w.release = append(w.acquire, acquired), append(w.release, released)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	var all worker
	for _, w := range workers {
		all.acquire, all.release = append(all.acquire, w.acquire...), append(all.release, w.release...)
		all.err = errors.Join(all.err, w.err)
		if all.err != nil {
			return loadStats{}, all.err
		}
	}
	return loadStats{Goroutines: goroutines, CyclesPerSec: math.Round(float64(len(all.acquire)) / took.Seconds()),
		Acquire: latencyOf(all.acquire), Release: latencyOf(all.release)}, nil
}

func cycle(ctx context.Context, lock redlock.Lock) (acquired, released time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, freePatience)
	defer cancel()
	began := time.Now()
	lease, err := lock.Acquire(ctx)
	if err != nil {
		return 0, 0, inTheWay(err)
	}
	held := time.Now()
	err = lease.Release(ctx)
	return held.Sub(began), time.Since(held), err
}

// handOver lets two clients hand one lock back and forth: each releases it while the other waits.
func (b *bench) handOver(ctx context.Context) (latency, error) {
	type grant struct {
		lease *redlock.Lease
		at    time.Time
		err   error
	}
	holder, err := b.lock(0, b.prefix).Acquire(ctx)
	if err != nil {
		return latency{}, err
	}
	var all []time.Duration
	for began, turn := time.Now(), 1; time.Since(began) < b.length; turn = 1 - turn {
		granted := make(chan grant, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			lease, err := b.lock(turn, b.prefix).Acquire(ctx)
			granted <- grant{lease, time.Now(), inTheWay(err)}
		}()
		select {
		case <-time.After(waitBeforeHandOver): // by now it was refused, and is a waiter
		case <-ctx.Done():
		}
		releasing := time.Now()
		released := holder.Release(ctx)
		g := <-granted
		if err := errors.Join(released, g.err); err != nil {
			return latency{}, err
		}
		all = append(all, g.at.Sub(releasing))
		holder = g.lease
	}
	err = holder.Release(ctx)
	awaitFree(ctx, b.clients[0], b.prefix)
	return latencyOf(all), err
}

const (
	waitBeforeHandOver = 20 * time.Millisecond
	patience           = 15 * time.Second // to acquire a lock that another may have left; longer than a lease
	freePatience       = 5 * time.Second  // to acquire a lock that nobody else wants: only an outage takes so long
)

// inTheWay returns what was in the way of a lock until the wait for it ended: that it ended says nothing.
func inTheWay(err error) error {
	if round := (*redlock.RoundError)(nil); errors.As(err, &round) {
		return round
	}
	return err
}

func (r benchReport) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%s\tcycles/s\tp50\tp99\tmax\t\n", plural(r.Nodes, "node"))
	row := func(what, rate string, l latency) {
		text := func(micros int64) string { return (time.Duration(micros) * time.Microsecond).String() }
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t\n", what, rate, text(l.P50Micros), text(l.P99Micros), text(l.MaxMicros))
	}
	for _, l := range []loadStats{r.Alone, r.Together} {
		row(fmt.Sprintf("acquire, %d at once", l.Goroutines), fmt.Sprintf("%.0f", l.CyclesPerSec), l.Acquire)
		row("release", "", l.Release)
	}
	row(fmt.Sprintf("hand-over between two clients (%s)", plural(r.HandOver.Count, "time")), "", r.HandOver)
	return table.Flush()
}
