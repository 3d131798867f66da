package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/redlocktest"
)

type traceKey struct{}

// traced is one call of Hooks.Traced: the value that the caller put into its context, and what the hook was told.
type traced struct {
	from any
	ctx  context.Context
	redlock.Operation
}

// tracing makes a client that sends what its hook is told.
func tracing(t *testing.T, f *fleet.Fleet, with ...func(*redlock.Config)) (*redlock.Client, chan traced) {
	told := make(chan traced, 1000)
	with = append(with, func(cfg *redlock.Config) {
		cfg.Hooks.Traced = func(ctx context.Context, op redlock.Operation) {
			told <- traced{ctx.Value(traceKey{}), ctx, op}
		}
	})
	return open(t, f, with...), told
}

func from(t *testing.T, who string) context.Context {
	return context.WithValue(soon(t), traceKey{}, who)
}

func TestEachCallIsTracedUnderItsContext(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, told := tracing(t, f)
	ctx, cancel := context.WithCancel(from(t, "acquire"))
	before := time.Now()
	lease, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	cancel()
	op := <-told
	require.Equal(t, "acquire", op.from)
	require.NoError(t, op.ctx.Err(), "a call that is over must not end what the hook does for it")
	require.Equal(t, "acquire", op.Op)
	require.NoError(t, op.Err)
	require.Equal(t, redlock.LeaseInfo{Names: []string{"x"}, Token: lease.Token(), Fence: lease.Fence(),
		Held: op.Lease.Held, Left: op.Lease.Left, At: op.Lease.At}, op.Lease)
	require.Len(t, op.Rounds, 1)
	require.GreaterOrEqual(t, op.Rounds[0].Granted, 2)
	require.Equal(t, 3, op.Rounds[0].Granted+op.Rounds[0].Denied+op.Rounds[0].Unknown)
	require.False(t, op.Begun.Before(before.Round(0)))
	require.False(t, op.Rounds[0].Begun.Before(op.Begun))
	require.LessOrEqual(t, op.Rounds[0].Took, op.Took)

	_, err = c.Mutex("x").TryAcquire(from(t, "try"))
	require.ErrorIs(t, err, redlock.ErrHeld)
	op = <-told
	require.Equal(t, "try", op.from)
	require.Equal(t, err, op.Err)
	require.Empty(t, op.Lease.Token)
	require.NotEmpty(t, op.Rounds)
	require.ErrorIs(t, op.Rounds[0].Err, redlock.ErrHeld)

	require.NoError(t, lease.Extend(from(t, "extend")))
	op = <-told
	require.Equal(t, []any{"extend", "extend", 0}, []any{op.from, op.Op, op.Renewal})

	require.NoError(t, lease.Release(from(t, "release")))
	op = <-told
	require.Equal(t, []any{"release", "release"}, []any{op.from, op.Op})
	require.Positive(t, op.Lease.Held)
	require.ErrorIs(t, lease.Extend(from(t, "too late")), redlock.ErrReleased)

	_, err = redlock.Lock{}.Acquire(from(t, "wrong"))
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.NoError(t, c.Close())
	for len(told) > 0 {
		op = <-told
		require.NotContains(t, []any{"wrong", "too late"}, op.from, "%v", op)
	}
}

// A hook is called later, so it is told when it was, and how much longer the lease was valid. What it is told of a release is as
// things were when the lease ended.
func TestHooksAreToldWhenItWasAndWhatKindOfLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		told := make(chan redlock.LeaseInfo, 8)
		c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), Hooks: redlock.Hooks{
			Acquired: func(l redlock.LeaseInfo, _ time.Duration, _ int) { told <- l },
			Released: func(l redlock.LeaseInfo, _ error) { told <- l },
			Lost:     func(l redlock.LeaseInfo, _ error) { told <- l },
		}})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Enroll(t.Context()))
		nodes.Delay(0, 10*time.Millisecond) // so that a release takes a while
		nodes.Delay(1, 10*time.Millisecond)
		for _, kind := range []struct {
			lock redlock.Lock
			like redlock.LeaseInfo
		}{
			{c.Mutex("x"), redlock.LeaseInfo{}},
			{c.RWMutex("x").Writer(), redlock.LeaseInfo{}},
			{c.RWMutex("x").Reader(), redlock.LeaseInfo{Reader: true}},
			{c.Semaphore("x", 5).WithPermits(2), redlock.LeaseInfo{Permits: 2, Of: 5}},
		} {
			lease, err := kind.lock.WithoutRenewal().Acquire(t.Context())
			require.NoError(t, err)
			acquired := time.Now()
			info := <-told
			require.Equal(t, acquired, info.At)
			require.Positive(t, info.Left)
			until := info.At.Add(info.Left)
			like := kind.like
			like.Names, like.Token, like.Fence = []string{"x"}, lease.Token(), lease.Fence()
			like.Held, like.Left, like.At = info.Held, info.Left, info.At
			require.Equal(t, like, info)

			time.Sleep(time.Second)
			called := time.Now()
			require.NoError(t, lease.Release(t.Context()))
			info = <-told
			require.Equal(t, called, info.At, "and not when the nodes had answered")
			require.Equal(t, until, info.At.Add(info.Left))
			like.Held, like.Left, like.At = info.Held, until.Sub(called), called
			require.Equal(t, like, info)
			require.NotEqual(t, called, time.Now())
		}

		lease, err := c.Mutex("x").WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		<-told
		time.Sleep(time.Hour)
		require.ErrorIs(t, lease.Release(t.Context()), redlock.ErrLost)
		require.Zero(t, (<-told).Left)
	})
}

// A deferred Release after one whose error was looked at asks no node.
func TestOnlyTheFirstReleaseIsTraced(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, told := tracing(t, f)
	lease, err := c.Mutex("x").Acquire(from(t, "acquire"))
	require.NoError(t, err)
	require.NoError(t, lease.Release(from(t, "release")))
	require.NoError(t, lease.Release(from(t, "again")))
	require.NoError(t, c.Close()) // after it, all was told
	require.Equal(t, "acquire", (<-told).from)
	require.Equal(t, "release", (<-told).from)
	require.Empty(t, told)
}

func TestTheReleaseOfALostLeaseIsTraced(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	c, told := tracing(t, f, func(cfg *redlock.Config) { cfg.TTL = time.Second })
	err := c.Mutex("x").Do(from(t, "do"), func(ctx context.Context, l *redlock.Lease) error {
		require.NoError(t, c.ForceRelease(ctx, "x"))
		<-ctx.Done() // the next renewal notices it
		return nil
	})
	require.ErrorIs(t, err, redlock.ErrLost)
	for op := range told {
		if op.Op == "release" {
			require.Equal(t, "do", op.from)
			require.ErrorIs(t, op.Err, redlock.ErrLost)
			return
		}
	}
}

func TestAHandOverIsTraced(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, told := tracing(t, f)
	lease, err := c.Mutex("x").Acquire(from(t, "giver"))
	require.NoError(t, err)
	ticket, err := lease.Detach(from(t, "detach"))
	require.NoError(t, err)
	taken, err := c.Adopt(from(t, "taker"), ticket)
	require.NoError(t, err)
	_, err = c.Adopt(from(t, "late"), ticket)
	require.ErrorIs(t, err, redlock.ErrTicketUsed)
	require.NoError(t, taken.Release(soon(t)))
	var ops []string
	for range 6 {
		op := <-told
		ops = append(ops, fmt.Sprint(op.from, " ", op.Op, " ", op.Err == nil, " ", op.Lease.Token == taken.Token()))
	}
	require.Equal(t, []string{"giver acquire true false", "detach extend true false", "detach detach true false",
		"taker adopt true true", "late adopt false false", "<nil> release true true"}, ops)
}

// The client renews by itself. These renewals belong to whoever acquired the lock, whose own context may be over.
func TestARenewalIsTracedUnderTheContextOfItsAcquire(t *testing.T) {
	t.Parallel() // it waits for renewals, and for the end of a lease that must not end before them
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, told := tracing(t, f, func(cfg *redlock.Config) { cfg.TTL, cfg.NodeTimeout = 6*time.Second, time.Second })
	ctx, cancel := context.WithCancel(from(t, "job"))
	lease, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	cancel()
	next := func(succeeds bool) traced {
		for {
			select {
			case op := <-told:
				if op.Op == "extend" && (op.Err == nil) == succeeds {
					return op
				}
			case <-lease.Context().Done():
				require.Fail(t, "the lease ended", "%v", context.Cause(lease.Context()))
			}
		}
	}
	first := next(true)
	require.Equal(t, "job", first.from)
	require.Positive(t, first.Renewal)
	require.NoError(t, first.ctx.Err())
	require.Equal(t, lease.Token(), first.Lease.Token)
	require.Greater(t, next(true).Renewal, first.Renewal)

	require.NoError(t, f.Nodes()[0].Kill())
	require.NoError(t, f.Nodes()[1].Kill())
	failed := next(false)
	require.Equal(t, "job", failed.from)
	require.ErrorIs(t, failed.Err, redlock.ErrNoQuorum)
	require.Greater(t, failed.Renewal, first.Renewal)
	<-lease.Context().Done()
}

func TestAnInterruptedWaitIsTraced(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	holder := open(t, f)
	held, err := holder.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	c, told := tracing(t, f)
	ctx, cancel := context.WithTimeout(from(t, "waiter"), 200*time.Millisecond)
	defer cancel()
	_, err = c.Mutex("x").Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	op := <-told
	require.Equal(t, "waiter", op.from)
	require.Equal(t, err, op.Err)
	require.NotEmpty(t, op.Rounds)
	require.NoError(t, held.Release(soon(t)))
}
