package goredis_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/adapters/goredis"
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
	nodes, err := goredis.Nodes(
		&redis.Options{Addr: addresses[0], DB: 3},
		&redis.Options{Addr: addresses[1], DB: 3},
		&redis.Options{Addr: addresses[2], DB: 3},
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
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "locks", SentinelAddrs: []string{"10.0.0.9:26379"}})
	defer sentinel.Close()
	_, err := goredis.Node(sentinel.Options())
	fmt.Println(err)
	// Output:
	// redlock: invalid: Options.Addr: these are the options of a Sentinel client, and a lock must not follow a failover: the new master may lack locks. Give the address of one master, which no Sentinel watches
}
