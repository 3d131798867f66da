package redlockgocron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/quorumlock/redlock"
	redlockgocron "github.com/quorumlock/redlock/adapters/gocron"
	"github.com/quorumlock/redlock/internal/fleet"
)

// connect returns a client of three nodes inside this process, and a function that ends both.
func connect() (*redlock.Client, func()) {
	nodes, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		log.Fatal(err)
	}
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(nodes.URLs()...)})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Enroll(context.Background()); err != nil { // these nodes are new
		log.Fatal(err)
	}
	return client, func() { client.Close(); nodes.Close() }
}

func ExampleLocker_NewJob() {
	client, end := connect()
	defer end()
	locker, err := redlockgocron.NewLocker(client)
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	report := func(ctx context.Context, lease *redlock.Lease) error {
		defer close(done)
		fmt.Println("locked:", lease.Names()[0])
		return ctx.Err() // ctx ends if the lock is lost, and when the scheduler shuts down
	}
	job, err := locker.NewJob(scheduler, gocron.CronJob("0 * * * *", false), "report", report) // each hour, on one replica
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	if err := job.RunNow(); err != nil { // so that this example need not wait for the hour
		log.Fatal(err)
	}
	<-done
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// locked: gocron/report
}

func ExampleLocker() {
	client, end := connect()
	defer end()
	locker, err := redlockgocron.NewLocker(client, redlockgocron.MinHold(20*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	const interval = time.Hour
	job, err := scheduler.NewJob(gocron.DurationJob(interval), gocron.NewTask(func() { fmt.Println("working"); close(done) }),
		gocron.WithName("report"), // the lock's name is gocron/report
		// All replicas tick at the same times, whenever they were started.
		gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Truncate(interval).Add(interval))))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	if err := job.RunNow(); err != nil { // so that this example need not wait for the hour
		log.Fatal(err)
	}
	<-done
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// working
}

func ExampleElector() {
	client, end := connect()
	defer end()
	elector, err := redlockgocron.NewElector(client.Mutex("leader/jobs"), redlockgocron.Settle(0)) // the default is 5 s
	if err != nil {
		log.Fatal(err)
	}
	defer elector.Close() // before the client
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{}, 1)
	work := func(ctx context.Context) error {
		lease, err := elector.Lease()
		if err != nil {
			return err
		}
		ctx = lease.With(ctx) // ends when another replica may lead
		select {
		case done <- struct{}{}:
		default:
		}
		return ctx.Err()
	}
	if _, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(work)); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	fmt.Println("leading:", elector.IsLeader(context.Background()) == nil)
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// leading: true
}
