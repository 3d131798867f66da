package subject_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/subject"
)

// myLock is a lock under test: the lock of some application, with the methods of a Subject. It is its own client and
// its own lease.
type myLock struct {
	conn  *redis.Pool
	name  string
	until time.Time
}

func (myLock) Name() string { return "my-lock" }

func (myLock) Open(_ context.Context, o subject.Options) (subject.Client, error) {
	dial := func() (redis.Conn, error) { return redis.DialURL(o.URLs[0]) }
	return myLock{conn: &redis.Pool{Dial: dial, MaxIdle: 1}}, nil
}

func (l myLock) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	conn := l.conn.Get()
	defer conn.Close()
	for ctx.Err() == nil {
		if reply, err := conn.Do("SET", name, "me", "NX", "PX", 1000); err != nil {
			return nil, err
		} else if reply != nil {
			return myLock{l.conn, name, time.Now().Add(time.Second)}, nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil, subject.ErrRefused
}

func (l myLock) Release(context.Context) error {
	conn := l.conn.Get()
	defer conn.Close()
	_, err := conn.Do("DEL", l.name)
	return err
}

func (l myLock) Valid() bool         { return time.Now().Before(l.until) }
func (myLock) Lost() <-chan struct{} { return nil }
func (myLock) Fence() uint64         { return 0 }
func (myLock) Token() string         { return "" }
func (l myLock) Close() error        { return l.conn.Close() }

// To test your own lock, give it the methods of a Subject and run a scenario.
func Example() {
	outcome, err := chaos.Run(context.Background(), chaos.Options{
		Scenario: "flush", Subject: myLock{}, Fleet: "embedded", Nodes: 1, Clients: 2, Length: time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(outcome.Scenario, outcome.Verdict)
	fmt.Println(outcome.Overlaps, "time two clients believed that they held the lock")
	// Output:
	// flush unsafe
	// 1 time two clients believed that they held the lock
}
