// Command cron shows a job that is on a schedule on three replicas, and runs on one of them at each tick.
//
//	go run ./examples/cron
//	go run ./examples/cron -nodes redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/examples/internal/nodes"
)

func main() {
	log.SetFlags(0)
	urls := flag.String("nodes", "", nodes.Usage)
	flag.Parse()
	ctx := context.Background()
	list, end, err := nodes.Open(ctx, *urls)
	if err != nil {
		log.Fatal(err)
	}
	defer end()
	if err := show(ctx, os.Stdout, redlock.Nodes(list...), 4); err != nil {
		log.Fatal(err)
	}
}

const (
	interval = 2 * time.Second         // from tick to tick
	late     = 300 * time.Millisecond  // how late a replica's tick comes at most: clocks differ, and jobs start late
	minHold  = 1200 * time.Millisecond // longer than late by three NodeTimeouts of 250 ms, shorter than interval
)

// show runs three replicas for so many ticks. Each has a client of its own, as if it were a process of its own.
func show(ctx context.Context, out io.Writer, list []redlock.Node, ticks int) error {
	var replicas sync.WaitGroup
	var mu sync.Mutex // guards out and failed
	var failed error
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	begin := time.Now()
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		client, err := redlock.New(redlock.Config{Nodes: list})
		if err != nil {
			return err
		}
		defer client.Close()
		replicas.Go(func() {
			for tick := range ticks {
				time.Sleep(time.Until(begin.Add(time.Duration(tick)*interval + rand.N(late))))
				job := func(token uint64) { say("tick %d: %s runs the job, fencing token %d", tick, name, token) }
				if err := runOnce(ctx, client, job); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	replicas.Wait()
	return failed
}

// runOnce runs the job if no other replica has run it at this tick. The job takes no time at all here. Without the
// minimum hold, a replica whose tick comes a little later would find the lock free, and run it again.
func runOnce(ctx context.Context, client *redlock.Client, job func(token uint64)) error {
	_, err := client.Mutex("nightly").WithMinHold(minHold).TryDo(ctx, func(_ context.Context, lease *redlock.Lease) error {
		job(lease.Fence())
		return nil
	})
	return err
}
