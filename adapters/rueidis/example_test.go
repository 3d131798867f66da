package rueidis_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/redis/rueidis"

	"github.com/quorumlock/redlock"
	redlockrueidis "github.com/quorumlock/redlock/adapters/rueidis"
	"github.com/quorumlock/redlock/internal/fleet"
)

// servers starts three servers inside this process, and returns their addresses and a function that ends them.
func servers() (addresses []string, end func()) {
	f, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		log.Fatal(err)
	}
	for _, url := range f.URLs() {
		addresses = append(addresses, strings.TrimPrefix(url, "redis://"))
	}
	return addresses, func() { f.Close() }
}

func Example() {
	addresses, end := servers() // yours are 10.0.0.1:6379 and so on
	defer end()

	// The options that you have, one for each master.
	nodes, err := redlockrueidis.Nodes(
		rueidis.ClientOption{InitAddress: addresses[0:1], SelectDB: 3},
		rueidis.ClientOption{InitAddress: addresses[1:2], SelectDB: 3},
		rueidis.ClientOption{InitAddress: addresses[2:3], SelectDB: 3},
	)
	if err != nil {
		log.Fatal(err)
	}
	client, err := redlock.New(redlock.Config{Nodes: nodes})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := client.Enroll(context.Background(), redlock.OnlyNew()); err != nil { // once, on new servers
		log.Fatal(err)
	}
	err = client.Mutex("report").Do(context.Background(), func(ctx context.Context, l *redlock.Lease) error {
		fmt.Println("working")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// working
	// <nil>
}

// What redlock cannot do for a lock is an error that names the field.
func ExampleNode_refused() {
	_, err := redlockrueidis.Node(rueidis.ClientOption{InitAddress: []string{"10.0.0.1:6379", "10.0.1.1:6379"}})
	fmt.Println(err)
	// Output:
	// redlock: invalid: ClientOption.InitAddress: it has 2 addresses, and a node is one server. Give one, and make a node for each master
}
