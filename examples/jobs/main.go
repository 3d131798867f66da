// Command jobs shows the consumers of a queue that delivers each job at least once, and sometimes twice at the same
// moment. The jobs of one customer run one at a time, over all workers, and each job has its effect once. The queue is
// asynq; nothing but the middleware oneAtATime depends on it.
//
//	cd examples/jobs
//	go run .
//	go run . -nodes redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1 -queue redis://10.0.9.1
//
// The Redis of the queue is an ordinary one, with persistence. It is not one of the nodes of the lock. It is a module of
// its own, because of asynq.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/examples/internal/nodes"
	"github.com/quorumlock/redlock/fence"
)

func main() {
	log.SetFlags(0)
	urls := flag.String("nodes", "", nodes.Usage)
	queue := flag.String("queue", "", "URL of the Redis of the queue; empty: one in memory")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *urls, *queue); err != nil {
		log.Fatal(err)
	}
}

const (
	taskType = "book an invoice"
	// patience is how long a worker waits for a lock before it turns to another job. Then the job is put off.
	patience = time.Second
	putOff   = time.Second
)

// oneAtATime runs a task under the lock that name gives to it. While another worker has the lock for longer than patience,
// the task goes back to the queue; see config. The task's context ends with the lease.
func oneAtATime(client *redlock.Client, name func(*asynq.Task) string, patience time.Duration) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			waiting, cancel := context.WithTimeoutCause(ctx, patience, errImpatient)
			lease, err := client.Mutex(name(task)).Acquire(waiting)
			if cause := context.Cause(waiting); err != nil && cause == errImpatient {
				err = fmt.Errorf("%w: %w", cause, err)
			}
			cancel()
			if err != nil {
				return err
			}
			defer func() { // also if next panics, and if the queue has ended the task's context
				if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
					log.Printf("%s: %v", name(task), err) // ErrLost: another worker may have run meanwhile
				}
			}()
			return next.ProcessTask(lease.With(ctx), task)
		})
	}
}

// errImpatient says that patience was over, perhaps before any node was asked, as on a machine that stood still.
var errImpatient = errors.New("the task did not run")

// config is that of a worker. A task that finds its lock held, or no quorum of nodes, has not failed: it comes again soon,
// and the attempt is not counted against its retries. Nor has one that could not wait.
func config(logger asynq.Logger) asynq.Config {
	notRun := func(err error) bool {
		return errors.Is(err, redlock.ErrHeld) || errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, errImpatient)
	}
	return asynq.Config{
		Concurrency: 4,
		IsFailure:   func(err error) bool { return !notRun(err) },
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			if notRun(err) {
				return putOff
			}
			return asynq.DefaultRetryDelayFunc(n, err, task)
		},
		DelayedTaskCheckInterval: putOff,
		Logger:                   logger,
	}
}

// newHandler returns what a worker does with a task: it books an invoice. The payload is customer/invoice.
func newHandler(client *redlock.Client, books *ledger, patience time.Duration) asynq.Handler {
	mux := asynq.NewServeMux()
	mux.Use(oneAtATime(client, func(task *asynq.Task) string {
		customer, _ := parse(task)
		return "customer/" + customer
	}, patience))
	mux.HandleFunc(taskType, books.book)
	return mux
}

func parse(task *asynq.Task) (customer, invoice string) {
	customer, invoice, _ = strings.Cut(string(task.Payload()), "/")
	return customer, invoice
}

// A ledger stands for the database. There, tokens is a Table of package fence, and booked a table of the jobs that have
// had their effect, with a primary key. The check, the mark and the effect are one transaction.
type ledger struct {
	tokens fence.Gate // the largest fencing token of each customer
	work   func()     // what takes its time

	mu       sync.Mutex
	inside   map[string]int  // guarded by mu: jobs that run, by customer
	booked   map[string]bool // guarded by mu: by payload
	repeats  int             // guarded by mu: deliveries of what was booked already
	together int             // guarded by mu: how often two jobs of one customer ran at once
	all      chan struct{}   // one for each job that ended
}

func newLedger(work func()) *ledger {
	return &ledger{work: work, inside: map[string]int{}, booked: map[string]bool{}, all: make(chan struct{}, 100)}
}

// book has its effect once, however often the queue delivers the task: the lock keeps a second delivery from running
// beside the first one, the mark from running after it, and the token from writing when its lease has ended.
func (l *ledger) book(ctx context.Context, task *asynq.Task) error {
	lease, ok := redlock.LeaseFrom(ctx)
	if !ok {
		return errors.New("book needs the lock of the customer")
	}
	customer, _ := parse(task)
	l.enter(customer)
	defer l.leave(customer)
	l.work() // in a real program: prices, taxes, a call to another service
	return l.tokens.Do(ctx, customer, lease.Fence(), func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		id := string(task.Payload())
		if l.booked[id] {
			l.repeats++
		}
		l.booked[id] = true
		return nil
	})
}

func (l *ledger) enter(customer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside[customer]++; l.inside[customer] > 1 {
		l.together++
	}
}

func (l *ledger) leave(customer string) {
	l.mu.Lock()
	l.inside[customer]--
	l.mu.Unlock()
	l.all <- struct{}{}
}

const (
	workers, customers, invoices = 3, 3, 4
	deliveries                   = 2 * customers * invoices
)

// run delivers each job twice, as a producer does that got no answer and tried again, and three workers process them.
// Each has a client of its own, as if it were a process of its own.
func run(ctx context.Context, out io.Writer, urls, queue string) error {
	list, end, err := nodes.Open(ctx, urls)
	if err != nil {
		return err
	}
	defer end()
	broker, end, err := openQueue(queue)
	if err != nil {
		return err
	}
	defer end()
	producer := asynq.NewClient(broker)
	defer producer.Close()
	for range 2 {
		for invoice := range invoices {
			for customer := range customers {
				payload := fmt.Sprintf("%d/%d", customer, invoice)
				if _, err := producer.EnqueueContext(ctx, asynq.NewTask(taskType, []byte(payload))); err != nil {
					return err
				}
			}
		}
	}

	books := newLedger(func() { time.Sleep(10 * time.Millisecond) })
	for range workers {
		client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(list...)})
		if err != nil {
			return err
		}
		defer client.Close()
		worker := asynq.NewServer(broker, config(quiet{}))
		if err := worker.Start(newHandler(client, books, patience)); err != nil {
			return err
		}
		defer worker.Shutdown()
	}
	for range deliveries {
		select {
		case <-books.all:
		case <-time.After(time.Minute):
			return errors.New("the queue has not delivered all jobs after a minute")
		}
	}
	books.mu.Lock()
	defer books.mu.Unlock()
	fmt.Fprintf(out, "%d deliveries of %d jobs: %d had their effect, %d came again later, %d ran beside another of their customer\n",
		deliveries, customers*invoices, len(books.booked), books.repeats, books.together)
	return nil
}

// openQueue returns the address of the queue's Redis. Call end when it is not needed.
func openQueue(url string) (broker asynq.RedisConnOpt, end func(), err error) {
	if url == "" {
		memory, err := miniredis.Run()
		if err != nil {
			return nil, nil, err
		}
		return asynq.RedisClientOpt{Addr: memory.Addr()}, memory.Close, nil
	}
	broker, err = asynq.ParseRedisURI(url)
	return broker, func() {}, err
}

// quiet is a logger that says nothing of what goes well.
type quiet struct{}

func (quiet) Debug(...any)     {}
func (quiet) Info(...any)      {}
func (quiet) Warn(args ...any) { log.Print(args...) }

func (quiet) Error(args ...any) { log.Print(args...) }
func (quiet) Fatal(args ...any) { log.Fatal(args...) }
