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
)

func TestWhoeverKnowsTheTokenCanReleaseTheLock(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f), open(t, f), soon(t)
		l, err := a.Mutex("x").WithMinHold(5 * time.Second).Acquire(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, b.ReleaseToken(ctx, "x", l.Token()[:32]), redlock.ErrLost, "a part of it is not enough")
		require.NoError(t, b.ReleaseToken(ctx, "x", l.Token()))
		clears(t, f, "x")
		next, err := b.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, l.Extend(ctx), redlock.ErrLost)

		err = a.ReleaseToken(ctx, "x", l.Token())
		require.ErrorIs(t, err, redlock.ErrLost, "it takes the lock from nobody else")
		require.ErrorContains(t, err, "no lease has this token")
		require.NotContains(t, err.Error(), next.Token()[:32])
		require.NoError(t, next.Extend(ctx))
		require.NoError(t, next.Release(ctx))
		require.ErrorIs(t, a.ReleaseToken(ctx, "x", l.Token()), redlock.ErrLost, "nobody has it")

		for _, token := range []string{"", "next:0123456789abcdef0123456789abcdef"} {
			require.ErrorIs(t, a.ReleaseToken(ctx, "x", token), redlock.ErrInvalid, "%q", token)
		}
		require.ErrorIs(t, a.ReleaseToken(ctx, "", l.Token()), redlock.ErrInvalid)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, a.ReleaseToken(ended, "x", l.Token()), context.Canceled)
		require.NoError(t, b.Close())
		require.ErrorIs(t, b.ReleaseToken(ctx, "x", l.Token()), redlock.ErrClosed)
	})
}

// S1: The entry of a reader or of a holder of permits is no owner token, and what only looks like one is no error of the nodes.
func TestAReleaseByTokenReleasesNobodyWhoShares(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		a, b, ctx := open(t, f), open(t, f), soon(t)
		reader, err := a.RWMutex("x").Reader().Acquire(ctx)
		require.NoError(t, err)
		permit, err := a.Semaphore("y", 1).Acquire(ctx)
		require.NoError(t, err)
		for name, token := range map[string]string{"x": reader.Token(), "y": permit.Token()} {
			for _, token := range []string{token, "reader " + token, "permit 0/1 " + token, "permit " + token, "permit x"} {
				require.ErrorIs(t, b.ReleaseToken(ctx, name, token), redlock.ErrLost, token)
			}
		}
		for _, l := range []*redlock.Lease{reader, permit} {
			require.NoError(t, l.Extend(ctx))
			require.NoError(t, l.Release(ctx))
		}
	})
}

// A waiter gets its message from this release too.
func TestAReleaseByTokenWakesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, 3)
		holder, other := w.connect(t, 0), w.connect(t, 1)
		waiter := w.connect(t, 2, redlock.LostPoll(time.Hour))
		require.NoError(t, holder.Enroll(t.Context()))
		l, err := holder.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			next, err := waiter.Mutex("x").Acquire(t.Context())
			if err == nil {
				err = next.Release(t.Context())
			}
			got <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, redlock.Waiters(waiter))
		began := time.Now()
		require.NoError(t, other.ReleaseToken(t.Context(), "x", l.Token()))
		require.NoError(t, <-got)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.ErrorIs(t, l.Release(t.Context()), redlock.ErrLost)
	})
}

// L3: A node that is away gets the release when it is back. Until a quorum has answered, nobody can say that the lock is
// released, nor that it was not held.
func TestAReleaseByTokenThatReachesTooFewNodesIsAnOutage(t *testing.T) {
	for _, away := range []int{1, 2} {
		t.Run(fmt.Sprint(away, " away"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 2)
				holder, other := w.connect(t, 0), w.connect(t, 1)
				require.NoError(t, holder.Enroll(t.Context()))
				other.Status(t.Context())
				l, err := holder.Mutex("x").WithoutRenewal().Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Extend(t.Context()))
				synctest.Wait()
				for _, s := range w.servers[:away] {
					hold([]*link{s.links[1]}, +1)
				}
				err = other.ReleaseToken(t.Context(), "x", l.Token())
				if away == 1 {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
					require.NotErrorIs(t, err, redlock.ErrLost)
				}
				for _, s := range w.servers[:away] {
					require.Positive(t, s.timeToLive("x"))
					hold([]*link{s.links[1]}, -1)
				}
				time.Sleep(3 * time.Second)
				for _, s := range w.servers {
					require.Zero(t, s.timeToLive("x"), "it gets the release when it is back")
				}
			})
		})
	}
}

// The caller's end cuts its wait, and not the release.
func TestAReleaseByTokenGoesOnWithoutItsCaller(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	a, b, ctx := open(t, f), open(t, f), soon(t)
	l, err := a.Mutex("x").WithoutRenewal().Acquire(ctx)
	require.NoError(t, err)
	b.Status(ctx)
	for _, n := range f.Nodes() {
		require.NoError(t, n.Delay(50*time.Millisecond))
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.ReleaseToken(short, "x", l.Token()), context.DeadlineExceeded)
	clears(t, f, "x")
}
