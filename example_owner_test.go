package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/quorumlock/redlock"
)

func ExampleRoundError_Holder() {
	client, end := exampleClient()
	defer end()

	ctx := context.Background()
	lease, err := client.Mutex("report").WithOwner("nightly").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	_, err = client.Mutex("report").TryAcquire(ctx)
	var round *redlock.RoundError
	if errors.As(err, &round) {
		if holder, ok := round.Holder(); ok {
			fmt.Println("held for:", holder.Label)
			fmt.Println("for some seconds more:", holder.Remaining > 0)
		}
	}
	// Output:
	// held for: nightly
	// for some seconds more: true
}

func ExampleLock_WithOwner() {
	client, end := exampleClient()
	defer end()

	ctx := context.Background()
	err := client.Mutex("shard/7").WithOwner("10.0.0.7:8080").Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
		state, err := client.Inspect(ctx, "shard/7")
		if err != nil {
			return err
		}
		holder, _ := state.Holder()
		fmt.Println("served by", holder.Label)
		return nil
	})
	fmt.Println(err)
	// Output:
	// served by 10.0.0.7:8080
	// <nil>
}

func ExampleLeaseFrom() {
	client, end := exampleClient()
	defer end()

	save := func(ctx context.Context, text string) { // deep below the code that took the lock
		if lease, ok := redlock.LeaseFrom(ctx); ok && lease.Valid() {
			fmt.Printf("save %q under %q\n", text, lease.Names())
		}
	}
	err := client.Mutex("report").Do(context.Background(), func(ctx context.Context, _ *redlock.Lease) error {
		save(ctx, "done")
		return nil
	})
	fmt.Println(err)
	// Output:
	// save "done" under ["report"]
	// <nil>
}

func ExampleClient_ReleaseToken() {
	client, end := exampleClient()
	defer end()

	ctx := context.Background()
	lease, err := client.Mutex("import/7").WithoutRenewal().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	token := lease.Token() // to be stored with the job: another process finishes it

	fmt.Println(client.ReleaseToken(ctx, "import/7", token))
	err = client.ReleaseToken(ctx, "import/7", token)
	fmt.Println("once more:", errors.Is(err, redlock.ErrLost))
	// Output:
	// <nil>
	// once more: true
}

func ExampleLease_Wanted() {
	client, end := exampleClient()
	defer end()

	ctx := context.Background()
	lease, err := client.Mutex("cache").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	next := make(chan error)
	go func() { // somebody else, in this process or another
		next <- client.Mutex("cache").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
	}()

	for working := true; working; {
		select {
		case <-lease.Wanted(): // stop between two pieces of work
			working = false
		case <-lease.Context().Done():
			working = false
		default: // a piece of work
		}
	}
	fmt.Println("let the next one in:", lease.Release(ctx))
	fmt.Println(<-next)
	// Output:
	// let the next one in: <nil>
	// <nil>
}
