package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// exampleClient returns a client of three nodes inside this process, and a function that ends both.
func exampleClient() (*redlock.Client, func()) {
	nodes, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		log.Fatal(err)
	}
	// On a busy machine, a node may answer later than within the default NodeTimeout.
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(nodes.URLs()...), NodeTimeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	// These nodes are new, so no lease can be out on them.
	if err := client.Enroll(context.Background()); err != nil {
		log.Fatal(err)
	}
	return client, func() { client.Close(); nodes.Close() }
}

func ExampleNew() {
	_, err := redlock.New(redlock.Config{Nodes: redlock.Nodes("10.0.0.1", "10.0.1.1", "10.0.0.1:6379")})
	fmt.Println(err)
	// Output: redlock: invalid: Nodes[2]: 10.0.0.1:6379 is the address of Nodes[0] too; one server has one vote
}

func ExampleClient_Mutex() {
	client, end := exampleClient()
	defer end()

	lease, err := client.Mutex("invoice/42").Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("valid:", lease.Valid())
	_, err = client.Mutex("invoice/42").TryAcquire(context.Background())
	fmt.Println("held:", errors.Is(err, redlock.ErrHeld))
	fmt.Println("released:", lease.Release(context.Background()) == nil)
	// Output:
	// valid: true
	// held: true
	// released: true
}

func ExampleClient_Mutex_severalNames() {
	client, end := exampleClient()
	defer end()

	// Both accounts or none, in one round; the order of the names does not matter.
	transfer := client.Mutex("account/1", "account/2")
	err := transfer.Do(context.Background(), func(ctx context.Context, l *redlock.Lease) error {
		fmt.Println(l.Names())
		return nil
	})
	fmt.Println(err)
	// Output:
	// [account/1 account/2]
	// <nil>
}

func ExampleLock_Do() {
	client, end := exampleClient()
	defer end()

	err := client.Mutex("report").Do(context.Background(), func(ctx context.Context, l *redlock.Lease) error {
		fmt.Println("working")
		return ctx.Err() // ctx ends before anyone else can have the lock
	})
	fmt.Println(err)
	// Output:
	// working
	// <nil>
}

func ExampleLock_TryDo() {
	client, end := exampleClient()
	defer end()
	ctx := context.Background()

	lock := client.Mutex("nightly")
	err := lock.Do(ctx, func(context.Context, *redlock.Lease) error {
		ran, err := lock.TryDo(ctx, func(context.Context, *redlock.Lease) error { return nil }) // another process, say
		fmt.Println(ran, err)
		return nil
	})
	fmt.Println(err)
	// Output:
	// false <nil>
	// <nil>
}

// Every process calls this at each tick. The work takes a moment, and the ticks of two processes are a moment apart.
// Without the minimum hold, the second process would find the lock free and run the work again.
func ExampleLock_WithMinHold() {
	client, end := exampleClient()
	defer end()

	tick := func(process string) {
		ran, err := client.Mutex("send-reminders").WithMinHold(20*time.Second).TryDo(context.Background(),
			func(context.Context, *redlock.Lease) error { return nil })
		fmt.Println(process, "ran:", ran, err)
	}
	tick("first")
	tick("second")
	// Output:
	// first ran: true <nil>
	// second ran: false <nil>
}

func ExampleLock_Fair() {
	client, end := exampleClient()
	defer end()
	ctx := context.Background()

	// Requests are served in the order in which they arrive, whichever process they come to.
	ticket := client.Mutex("ticket window").Fair()
	lease, err := ticket.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	_, err = ticket.TryAcquire(ctx)
	fmt.Println(errors.Is(err, redlock.ErrHeld))
	// Output: true
}

func ExampleClient_RWMutex() {
	client, end := exampleClient()
	defer end()
	ctx := context.Background()
	catalogue := client.RWMutex("catalogue")

	one, err := catalogue.Reader().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	two, err := catalogue.Reader().Acquire(ctx)
	fmt.Println("a second reader gets in:", err == nil)
	_, err = catalogue.Writer().TryAcquire(ctx)
	fmt.Println("a writer does not:", errors.Is(err, redlock.ErrHeld))
	_ = one.Release(ctx)
	_ = two.Release(ctx)
	err = catalogue.Writer().Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
	fmt.Println("then it does:", err == nil)
	// Output:
	// a second reader gets in: true
	// a writer does not: true
	// then it does: true
}

func ExampleLease_Downgrade() {
	client, end := exampleClient()
	defer end()
	ctx := context.Background()

	writer, err := client.RWMutex("catalogue").Writer().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// Write, and then go on reading what was written. No other writer gets in between.
	reader, err := writer.Downgrade(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("writes:", writer.Valid(), "reads:", reader.Valid())
	fmt.Println("released:", reader.Release(ctx) == nil)
	// Output:
	// writes: false reads: true
	// released: true
}

func ExampleClient_Semaphore() {
	client, end := exampleClient()
	defer end()
	ctx := context.Background()

	for range 3 { // at most two at a time call the service, in all processes together
		_, err := client.Semaphore("slow service", 2).TryAcquire(ctx)
		fmt.Println("held:", errors.Is(err, redlock.ErrHeld))
	}
	// Output:
	// held: false
	// held: false
	// held: true
}

func ExampleLock_WithPermits() {
	client, end := exampleClient()
	defer end()
	ctx := context.Background()

	big, err := client.Semaphore("memory", 8).WithPermits(6).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Semaphore("memory", 8).WithPermits(3).TryAcquire(ctx)
	fmt.Println("three more:", err == nil)
	_, err = client.Semaphore("memory", 8).WithPermits(2).TryAcquire(ctx)
	fmt.Println("two more:", err == nil)
	state, err := client.Inspect(ctx, "memory")
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range state.Sharers {
		fmt.Println(len(s.Slots), "of", s.Permits)
	}
	_ = big.Release(ctx)
	// Unordered output:
	// three more: false
	// two more: true
	// 6 of 8
	// 2 of 8
}

func ExampleDoValue() {
	client, end := exampleClient()
	defer end()

	number, err := redlock.DoValue(context.Background(), client.Mutex("counter"),
		func(ctx context.Context, l *redlock.Lease) (int, error) { return 7, nil })
	fmt.Println(number, err)
	// Output: 7 <nil>
}

func ExampleGuard() {
	client, end := exampleClient()
	defer end()

	charge := redlock.Guard(
		func(order string) redlock.Lock { return client.Mutex("order/" + order) },
		func(ctx context.Context, order string) error { fmt.Println("charging", order); return nil },
		redlock.Wait)
	fmt.Println(charge(context.Background(), "42"))
	// Output:
	// charging 42
	// <nil>
}

// A resource that refuses smaller fencing tokens than the largest it has seen is safe even from a holder that was
// paused for longer than its lease.
func ExampleLease_Fence() {
	client, end := exampleClient()
	defer end()
	ctx := context.Background()

	var highest uint64
	write := func(fence uint64, what string) {
		if fence < highest {
			fmt.Println("refused:", what)
			return
		}
		highest = fence
		fmt.Println("written:", what)
	}

	paused, _ := client.Mutex("file").WithTTL(50 * time.Millisecond).WithoutRenewal().Acquire(ctx)
	next, _ := client.Mutex("file").Acquire(ctx) // after the first has expired
	write(next.Fence(), "by the next holder")
	write(paused.Fence(), "by the one that was paused")
	next.Release(ctx)
	// Output:
	// written: by the next holder
	// refused: by the one that was paused
}

func ExampleLease_Context() {
	client, end := exampleClient()
	defer end()

	lease, _ := client.Mutex("job").WithMaxHold(20 * time.Millisecond).Acquire(context.Background())
	<-lease.Context().Done()
	fmt.Println(errors.Is(context.Cause(lease.Context()), redlock.ErrLost), lease.Valid())
	// Output: true false
}

// New nodes are enrolled once, when no lease can be out on them. Status says whether each of them votes, and if not,
// why.
func ExampleClient_Enroll() {
	ctx := context.Background()
	nodes, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer nodes.Close()
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(nodes.URLs()...)})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	votes := func() (n int) {
		for _, node := range client.Status(ctx) {
			if node.Err == nil {
				n++
			}
		}
		return n
	}
	fmt.Println("votes before:", votes())
	if err := client.Enroll(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("votes after:", votes())
	// Output:
	// votes before: 0
	// votes after: 3
}

// Two groups of three nodes: each name belongs to one of them.
func ExampleNewSharded() {
	ctx := context.Background()
	var groups []redlock.Config
	for range 2 {
		nodes, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{Nodes: 3})
		if err != nil {
			log.Fatal(err)
		}
		defer nodes.Close()
		groups = append(groups, redlock.Config{Nodes: redlock.Nodes(nodes.URLs()...)})
	}
	locks, err := redlock.NewSharded(groups...)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	if err := locks.Enroll(ctx); err != nil { // the nodes are new
		log.Fatal(err)
	}
	err = locks.Mutex("invoice/42").Do(ctx, func(context.Context, *redlock.Lease) error {
		fmt.Println("alone")
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone
	// <nil>
}

func ExampleLock_Reentrant() {
	client, end := exampleClient()
	defer end()

	lock := client.Mutex("report").Reentrant()
	publish := func(ctx context.Context) error { // needs the lock, whether or not its caller has it
		return lock.Do(ctx, func(context.Context, *redlock.Lease) error {
			fmt.Println("published")
			return nil
		})
	}
	err := lock.Do(context.Background(), func(ctx context.Context, _ *redlock.Lease) error { return publish(ctx) })
	fmt.Println(err)
	// Output:
	// published
	// <nil>
}

func ExampleClient_Inspect() {
	client, end := exampleClient()
	defer end()

	lease, err := client.Mutex("invoice/42").Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	state, err := client.Inspect(context.Background(), "invoice/42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", state.Held, "by us:", state.Token == lease.Token(), "fence:", state.Fence == lease.Fence())
	// Output: held: true by us: true fence: true
}

func ExampleClient_ForceRelease() {
	client, end := exampleClient()
	defer end()

	gone, err := client.Mutex("invoice/42").Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	// An operator knows that the holder will not come back.
	if err := client.ForceRelease(context.Background(), "invoice/42"); err != nil {
		log.Fatal(err)
	}
	next, err := client.Mutex("invoice/42").TryAcquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("a larger fencing token:", next.Fence() > gone.Fence())
	// Output: a larger fencing token: true
}

type requestKey struct{}

// The hook runs later, with the values of the caller's context. So its spans or log lines join the caller's.
func ExampleHooks_traced() {
	nodes, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer nodes.Close()
	client, err := redlock.New(redlock.Config{
		Nodes: redlock.Nodes(nodes.URLs()...),
		Hooks: redlock.Hooks{Traced: func(ctx context.Context, op redlock.Operation) {
			fmt.Println(ctx.Value(requestKey{}), op.Op, op.Lease.Names, "rounds:", len(op.Rounds), "error:", op.Err)
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Enroll(context.Background(), redlock.OnlyNew()); err != nil {
		log.Fatal(err)
	}
	ctx := context.WithValue(context.Background(), requestKey{}, "request 7:")
	lease, err := client.Mutex("invoice/42").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_ = lease.Release(ctx)
	client.Close() // waits until the hooks were called
	// Output:
	// request 7: acquire [invoice/42] rounds: 1 error: <nil>
	// request 7: release [invoice/42] rounds: 0 error: <nil>
}
