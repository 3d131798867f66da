package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/fence"
	"github.com/quorumlock/redlock/internal/fleet"
)

// exampleClient returns a client of three nodes inside this process, and a function that ends both.
func exampleClient() (*redlock.Client, func()) {
	nodes, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		log.Fatal(err)
	}
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(nodes.URLs()...)})
	if err != nil {
		log.Fatal(err)
	}
	// These nodes are new, so no lease can be out on them.
	if err := client.Enroll(context.Background()); err != nil {
		log.Fatal(err)
	}
	return client, func() { client.Close(); nodes.Close() }
}

// exampleRedis returns a connection to a Redis inside this process, and a function that ends both. It is not one of the
// nodes that grant locks.
func exampleRedis() (redis.Conn, func()) {
	server, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 1})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := redis.DialURL(server.URLs()[0])
	if err != nil {
		log.Fatal(err)
	}
	return conn, func() { conn.Close(); server.Close() }
}

// A holder is paused for longer than its lease. Meanwhile the next holder gets the lock, and writes. When the first one
// wakes up, the gate refuses it.
func Example() {
	client, end := exampleClient()
	defer end()
	ctx := context.Background()
	lock := client.Mutex("plan")

	var plan string
	var gate fence.Gate // in the process that has the plan
	write := func(lease *redlock.Lease, text string) error {
		return gate.Do(ctx, "plan", lease.Fence(), func() error {
			plan = text
			return nil
		})
	}

	paused, err := lock.WithTTL(100 * time.Millisecond).WithoutRenewal().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	next, err := lock.Acquire(ctx) // after the first lease has expired
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release(ctx)
	fmt.Println("next holder:", write(next, "new"))
	fmt.Println("paused holder refused:", errors.Is(write(paused, "old"), fence.ErrStale))
	fmt.Println("the plan:", plan)
	// Output:
	// next holder: <nil>
	// paused holder refused: true
	// the plan: new
}

func ExampleGate_Do() {
	var gate fence.Gate
	ctx := context.Background()
	work := func() error { return nil }

	fmt.Println(gate.Do(ctx, "plan", 33, work))
	fmt.Println(gate.Do(ctx, "plan", 34, work))
	fmt.Println(gate.Do(ctx, "plan", 33, work))
	// Output:
	// <nil>
	// <nil>
	// fence: stale: "plan" has seen the fencing token 34, and 33 is smaller: another holder came later
}

// Read, and write what follows from it: the token comes first.
func ExampleSet() {
	conn, end := exampleRedis()
	defer end()
	ctx := context.Background()

	add := func(token uint64, amount int) error {
		if err := fence.Check(ctx, conn, "account/42", token); err != nil {
			return err
		}
		balance, err := redis.Int(conn.Do("GET", "account/42"))
		if err != nil && !errors.Is(err, redis.ErrNil) {
			return err
		}
		return fence.Set(ctx, conn, "account/42", fmt.Sprint(balance+amount), token)
	}
	fmt.Println(add(33, 100))
	fmt.Println(add(34, 20))
	fmt.Println(errors.Is(add(33, 100), fence.ErrStale))
	fmt.Println(redis.Int(conn.Do("GET", "account/42")))
	// Output:
	// <nil>
	// <nil>
	// true
	// 120 <nil>
}

// Commands other than SET, here with redigo. Each client has a call that runs a script.
func ExampleScript() {
	conn, end := exampleRedis()
	defer end()

	// KEYS[1] and ARGV[1] are the token. The commands have the rest.
	pay := redis.NewScript(2, fence.Script("return redis.call('HSET', KEYS[2], 'paid', ARGV[2])"))
	try := func(token uint64) error {
		_, err := pay.Do(conn, fence.TokenKey("invoice/42"), "invoice/42", token, "yes")
		return fence.RedisError(err, "invoice/42", token)
	}
	fmt.Println(try(34))
	fmt.Println(errors.Is(try(33), fence.ErrStale))
	// Output:
	// <nil>
	// true
}

// The resource is all that a transaction changes. Check comes first in it.
func ExampleTable_Check() {
	table := fence.Table{Dialect: fence.Postgres} // create it once, with table.Create(ctx, db) or in a migration

	pay := func(ctx context.Context, db *sql.DB, lease *redlock.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := table.Check(ctx, tx, "invoice/42", lease.Fence()); err != nil {
			return err // fence.ErrStale: another holder came later. Stop
		}
		if _, err := tx.ExecContext(ctx, "UPDATE invoice SET paid = true WHERE id = 42"); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = pay
}

// The resource is one row, which has a column for the token. No table is needed.
func Example_row() {
	pay := func(ctx context.Context, db *sql.DB, lease *redlock.Lease) error {
		result, err := db.ExecContext(ctx,
			"UPDATE invoice SET paid = true, fence = $1 WHERE id = $2 AND fence <= $1", int64(lease.Fence()), 42)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		if err == nil && rows == 0 {
			err = fence.ErrStale // or there is no such invoice
		}
		return err
	}
	_ = pay
}
