package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func newRedsync(t *testing.T, f *fleet.Fleet) *redsync.Redsync {
	var pools []rsredis.Pool
	for _, n := range f.Nodes() {
		pool := &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) { return redis.DialURL(n.URL()) }}
		t.Cleanup(func() { pool.Close() })
		pools = append(pools, rsredigo.NewPool(pool))
	}
	return redsync.New(pools...)
}

func newRedlock(t *testing.T, f *fleet.Fleet) *redlock.Client {
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...)})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.Enroll(context.Background()))
	return c
}

func TestEachSideRefusesWhatTheOtherHolds(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	ours, theirs := newRedlock(t, f), newRedsync(t, f)
	ctx := context.Background()

	lease, err := ours.Mutex("shared").Acquire(ctx)
	require.NoError(t, err)
	mutex := theirs.NewMutex("shared", redsync.WithTries(1))
	var taken *redsync.ErrTaken
	require.ErrorAs(t, mutex.Lock(), &taken)
	require.NoError(t, lease.Release(ctx))

	require.NoError(t, theirs.NewMutex("shared", redsync.WithTries(1)).Lock())
	_, err = ours.Mutex("shared").TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrHeld)
}

func TestExclusionHoldsBothWaysUnderContention(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	theirs := newRedsync(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
	defer cancel()

	var counter, inside, overlaps, byUs, byThem atomic.Int64
	work := func(side *atomic.Int64) {
		if inside.Add(1) > 1 {
			overlaps.Add(1)
		}
		read := counter.Load()
		time.Sleep(200 * time.Microsecond)
		counter.Store(read + 1)
		inside.Add(-1)
		side.Add(1)
	}
	var wg sync.WaitGroup
	for range 2 {
		client := newRedlock(t, f)
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := client.Mutex("shared").Do(ctx, func(context.Context, *redlock.Lease) error { work(&byUs); return nil })
					if !errors.Is(err, context.DeadlineExceeded) {
						assert.NoError(t, err)
					}
					time.Sleep(time.Millisecond) // gives the polling side a chance
				}
			})
		}
	}
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				m := theirs.NewMutex("shared", redsync.WithTries(1))
				if m.Lock() != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				work(&byThem)
				_, err := m.Unlock()
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	t.Logf("acquired %d times by redlock, %d by redsync", byUs.Load(), byThem.Load())
	assert.Zero(t, overlaps.Load())
	assert.Equal(t, byUs.Load()+byThem.Load(), counter.Load(), "lost updates")
	assert.Greater(t, byUs.Load(), int64(20))
	assert.Greater(t, byThem.Load(), int64(20))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, n := range f.Nodes() {
			conn, err := n.DialDirect(context.Background(), time.Second)
			if !assert.NoError(c, err) {
				return
			}
			keys, err := redis.Strings(conn.Do("KEYS", "*"))
			conn.Close()
			assert.NoError(c, err)
			for _, key := range keys {
				assert.True(c, strings.HasPrefix(key, "redlock:"), key)
			}
		}
	}, 10*time.Second, 50*time.Millisecond)
}
