package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func open(t testing.TB, f *fleet.Fleet, change ...func(*redlock.Config)) *redlock.Client {
	t.Helper()
	cfg := redlock.Config{Nodes: redlock.Nodes(f.URLs()...)}
	for _, ch := range change {
		ch(&cfg)
	}
	c, err := redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// owners reads who holds the key on each node, past any proxy; "" where nobody does.
func owners(t testing.TB, f *fleet.Fleet, key string) []string {
	t.Helper()
	all := make([]string, len(f.Nodes()))
	for i, n := range f.Nodes() {
		conn, err := n.DialDirect(soon(t), 5*time.Second)
		require.NoError(t, err)
		owner, err := redis.String(conn.Do("GET", key))
		conn.Close()
		if err != redis.ErrNil {
			require.NoError(t, err)
		}
		all[i] = owner
	}
	return all
}

func TestSmoke(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			f := fleettest.Start(t, kind, fleet.Options{})
			a, b := open(t, f), open(t, f)
			ctx := soon(t)
			l, err := a.Mutex("x").Acquire(ctx)
			require.NoError(t, err)
			fmt.Println(l.Fence(), l.Remaining(), owners(t, f, "x"))
			_, err = b.Mutex("x").TryAcquire(ctx)
			fmt.Println(err)
			require.ErrorIs(t, err, redlock.ErrHeld)
			got := make(chan *redlock.Lease)
			go func() {
				l, err := b.Mutex("x").Acquire(ctx)
				fmt.Println(err)
				got <- l
			}()
			time.Sleep(50 * time.Millisecond)
			require.NoError(t, l.Extend(ctx))
			s := time.Now()
			require.NoError(t, l.Release(ctx))
			l2 := <-got
			fmt.Println("handover", time.Since(s), l2.Fence() > l.Fence())
			require.NoError(t, l2.Release(ctx))
			fmt.Println(owners(t, f, "x"))
		})
	}
}

func BenchmarkCycle(b *testing.B) {
	f := fleettest.Start(b, fleet.Process, fleet.Options{})
	c := open(b, f)
	ctx := context.Background()
	m := c.Mutex("bench")
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.TryAcquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
