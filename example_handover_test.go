package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/quorumlock/redlock"
)

func ExampleLease_Detach() {
	client, end := exampleClient()
	defer end()

	ctx := context.Background()
	lease, err := client.Mutex("import/7").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ticket, err := lease.Detach(ctx) // the work has stopped
	if err != nil {
		log.Fatal(err)
	}
	text, err := ticket.MarshalText() // to be sent to the process that goes on
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.17s…\n", text)
	fmt.Println("the giver still holds it:", lease.Valid())

	_, err = client.Mutex("import/7").TryAcquire(ctx)
	fmt.Println("anybody else can have it:", !errors.Is(err, redlock.ErrHeld))
	// Output:
	// redlock-ticket-1.…
	// the giver still holds it: false
	// anybody else can have it: false
}

func ExampleClient_Adopt() {
	client, end := exampleClient()
	defer end()

	ctx := context.Background()
	lease, err := client.Mutex("import/7").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ticket, err := lease.Detach(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// In another process, which has got the text of the ticket:
	taken, err := client.Adopt(ctx, ticket)
	if err != nil {
		log.Fatal(err)
	}
	defer taken.Release(ctx)
	fmt.Println("a larger fencing token:", taken.Fence() > lease.Fence())

	_, err = client.Adopt(ctx, ticket)
	fmt.Println("only once:", errors.Is(err, redlock.ErrTicketUsed))
	// Output:
	// a larger fencing token: true
	// only once: true
}
