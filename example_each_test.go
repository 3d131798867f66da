package redlock_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/quorumlock/redlock"
)

func ExampleEach() {
	client, end := exampleClient()
	defer end()

	invoices := []string{"41", "42", "43"}
	var charged atomic.Int32
	errs := redlock.Each(context.Background(), invoices, 2, // two at a time
		func(id string) redlock.Lock { return client.Mutex("invoice/" + id).WithOwner("monthly run") },
		func(ctx context.Context, id string) error {
			charged.Add(1)
			return nil
		}, redlock.Wait)
	fmt.Println(charged.Load(), "charged,", errs)
	// Output: 3 charged, [<nil> <nil> <nil>]
}
