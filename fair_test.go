package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// places returns the waiters of a fair lock on the node, in the order of their tickets.
func places(t testing.TB, n *fleet.Node, key string) []string {
	t.Helper()
	members, err := redis.Strings(tell(t, n, "ZRANGE", "redlock:fair:ticket:"+key, 0, -1), nil)
	require.NoError(t, err)
	return members
}

// arrived waits until the fair lock has so many waiters on a quorum of the nodes.
func arrived(t testing.TB, f *fleet.Fleet, key string, count int) {
	t.Helper()
	require.Eventually(t, func() bool {
		nodes := 0
		for _, n := range f.Nodes() {
			if n.Alive() && len(places(t, n, key)) == count {
				nodes++
			}
		}
		return nodes > len(f.Nodes())/2
	}, 15*time.Second, time.Millisecond, "there are not %d waiters", count)
}

// An arrival is an Acquire of a fair lock that is running.
type arrival struct {
	cancel context.CancelFunc
	ended  chan error
}

// A roll records who got a fair lock, one after the other. Each holder releases it at once.
type roll struct {
	t    testing.TB
	hold time.Duration
	mu   sync.Mutex
	got  []int
}

func (r *roll) join(number int, lock redlock.Lock) arrival {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	r.t.Cleanup(cancel)
	a := arrival{cancel, make(chan error, 1)}
	go func() {
		l, err := lock.Acquire(ctx)
		if err == nil {
			r.mu.Lock()
			r.got = append(r.got, number)
			r.mu.Unlock()
			time.Sleep(r.hold)
			err = l.Release(context.Background())
		}
		a.ended <- err
	}()
	return a
}

func (r *roll) order() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func count(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// O2: Waiters of several clients get a fair lock in the order in which they arrived.
func TestAFairLockIsGrantedInOrderOfArrival(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	clients := []*redlock.Client{open(t, f), open(t, f), open(t, f)}
	held, err := clients[0].Mutex("x").Fair().Acquire(soon(t))
	require.NoError(t, err)
	r := &roll{t: t}
	var all []arrival
	const waiters = 30
	for i := range waiters {
		all = append(all, r.join(i, clients[(i*7/2)%3].Mutex("x").Fair()))
		arrived(t, f, "x", i+1)
	}
	began := time.Now()
	require.NoError(t, held.Release(soon(t)))
	for _, a := range all {
		require.NoError(t, <-a.ended)
	}
	require.Equal(t, count(waiters), r.order())
	t.Logf("%d hand-overs, %v each", waiters, time.Since(began)/waiters)
	for _, n := range f.Nodes() {
		require.Eventually(t, func() bool { return len(places(t, n, "x")) == 0 }, 5*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return len(queue(t, n, "x")) == 0 }, 5*time.Second, time.Millisecond)
	}
}

var _ = errors.Is
var _ = fmt.Sprint
var _ = assert.Equal
