package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/election"
	"github.com/quorumlock/redlock/internal/fleet"
)

// exampleNodes starts three nodes inside this process.
func exampleNodes() (urls []string, end func()) {
	nodes, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		log.Fatal(err)
	}
	client := exampleClient(nodes.URLs())
	defer client.Close()
	// These nodes are new, so no lease can be out on them.
	if err := client.Enroll(context.Background()); err != nil {
		log.Fatal(err)
	}
	return nodes.URLs(), func() { nodes.Close() }
}

// exampleClient is what each process has.
func exampleClient(urls []string) *redlock.Client {
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(urls...), TTL: 5 * time.Second, NodeTimeout: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// Two processes want to lead. A third one observes them.
func Example() {
	urls, end := exampleNodes()
	defer end()
	one, two, three := exampleClient(urls), exampleClient(urls), exampleClient(urls)
	defer one.Close()
	defer two.Close()
	defer three.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	first, err := election.New(one, "scheduler", election.Options{Label: "web-1"}).Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("web-1 leads:", first.Valid())

	follower := make(chan *election.Term)
	go func() {
		term, err := election.New(two, "scheduler", election.Options{Label: "web-2"}).Campaign(ctx) // waits
		if err != nil {
			log.Fatal(err)
		}
		follower <- term
	}()

	for leader := range election.New(three, "scheduler", election.Options{}).Observe(ctx) {
		if leader.None() {
			continue // between two leaders
		}
		fmt.Println("observed:", leader.Label)
		if leader.Label == "web-2" {
			break
		}
		if err := first.Resign(ctx); err != nil {
			log.Fatal(err)
		}
	}
	second := <-follower
	fmt.Println("resigned:", errors.Is(context.Cause(first.Context()), redlock.ErrReleased))
	fmt.Println("the number grew:", second.Number() > first.Number())
	// Output:
	// web-1 leads: true
	// observed: web-1
	// observed: web-2
	// resigned: true
	// the number grew: true
}

// Run campaigns again and again, until its context ends or the function returns an error.
func ExampleElection_Run() {
	urls, end := exampleNodes()
	defer end()
	client := exampleClient(urls)
	defer client.Close()

	done := errors.New("nothing left to do")
	jobs := []string{"first job", "second job"}
	e := election.New(client, "scheduler", election.Options{Label: "web-1"})
	err := e.Run(context.Background(), func(ctx context.Context, term *election.Term) error {
		for _, job := range jobs {
			if !term.Valid() {
				return nil // stop: another process may lead
			}
			fmt.Println(term.Label(), "does the", job) // and gives term.Number() with each change
		}
		return done
	})
	fmt.Println(err)
	// Output:
	// web-1 does the first job
	// web-1 does the second job
	// nothing left to do
}
