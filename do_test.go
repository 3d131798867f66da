package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestAGuardedFunctionWaitsFailsOrIsSkippedWhileItsLockIsHeld(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, ctx := open(t, f), soon(t)
	failure := errors.New("the work's own")
	ran := 0
	guarded := func(ifHeld redlock.IfHeld) func(context.Context, string) error {
		return redlock.Guard(func(name string) redlock.Lock { return c.Mutex(name) },
			func(ctx context.Context, name string) error {
				ran++
				_, err := c.Mutex(name).TryAcquire(context.WithoutCancel(ctx))
				require.ErrorIs(t, err, redlock.ErrHeld, "its context holds the lock")
				return failure
			}, ifHeld)
	}
	for i, ifHeld := range []redlock.IfHeld{redlock.Wait, redlock.Fail, redlock.Skip} {
		require.ErrorIs(t, guarded(ifHeld)(ctx, "x"), failure)
		require.Equal(t, i+1, ran)
		clears(t, f, "x")
	}
	require.ErrorIs(t, guarded(redlock.IfHeld(9))(ctx, "x"), redlock.ErrInvalid)

	held, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	ran = 0
	require.NoError(t, guarded(redlock.Skip)(ctx, "x"))
	require.ErrorIs(t, guarded(redlock.Fail)(ctx, "x"), redlock.ErrHeld)
	require.Zero(t, ran)
	waited := make(chan error, 1)
	go func() { waited <- guarded(redlock.Wait)(ctx, "x") }()
	require.Eventually(t, func() bool { return redlock.InLine(c, "x") == 1 }, 5*time.Second, time.Millisecond)
	require.NoError(t, held.Release(ctx))
	require.ErrorIs(t, <-waited, failure)
	require.Equal(t, 1, ran)
}

// Work without its lock does not run. The error is that of Acquire, and nothing is left behind.
func TestWorkThatCannotHaveItsLockDoesNotRun(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, ctx := open(t, f), soon(t)
	work := func(context.Context, *redlock.Lease) error {
		t.Error("it ran")
		return nil
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, c.Mutex("x").Do(over, work), context.Canceled)
	require.ErrorIs(t, c.Mutex("").Do(ctx, work), redlock.ErrInvalid)
	require.ErrorIs(t, redlock.Lock{}.Do(ctx, work), redlock.ErrInvalid)
	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Kill())
	}
	ran, err := c.Mutex("x").TryDo(ctx, work)
	require.False(t, ran)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	_, err = redlock.DoValue(over, c.Mutex("x"), func(context.Context, *redlock.Lease) (int, error) {
		t.Error("it ran")
		return 1, nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Mutex("x").Do(ctx, work), redlock.ErrClosed)
}

func TestClosingTheClientWhileWorkIsDoneIsToldToIt(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, ctx := open(t, f), soon(t)
	err := c.Mutex("x").Do(ctx, func(ctx context.Context, l *redlock.Lease) error {
		require.NoError(t, c.Close())
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), redlock.ErrClosed)
		require.False(t, l.Valid())
		return nil
	})
	require.ErrorIs(t, err, redlock.ErrClosed)
	clears(t, f, "x")
}

// A function that returns the cause of its context returns what Do adds: the text has it once.
func TestALossThatTheFunctionReturnsIsToldOnce(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c := open(t, f)
	err := c.Mutex("x").WithMaxHold(200*time.Millisecond).Do(soon(t), func(ctx context.Context, _ *redlock.Lease) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	require.ErrorIs(t, err, redlock.ErrLost)
	require.Equal(t, 1, strings.Count(err.Error(), redlock.ErrLost.Error()), err.Error())
	own := errors.New("its own")
	err = c.Mutex("x").WithMaxHold(200*time.Millisecond).Do(soon(t), func(ctx context.Context, _ *redlock.Lease) error {
		<-ctx.Done()
		return own
	})
	require.ErrorIs(t, err, redlock.ErrLost)
	require.ErrorIs(t, err, own)
}

// Do: A program that is told to end may exit as soon as Do has returned. The nodes have let the lock go by then, and nothing
// is logged. A node that is away costs no more than NodeTimeout.
func TestWorkWhoseContextHasEndedReturnsWhenItsLockIsReleased(t *testing.T) {
	for name, c := range map[string]struct {
		away int
		took time.Duration // the release's round trip, or the patience
	}{"all up": {0, 40 * time.Millisecond}, "a majority away": {2, nodeTimeout}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 2)
				var log journal
				client := w.connect(t, 0, log.to)
				other := w.connect(t, 1)
				require.NoError(t, client.Enroll(t.Context()))
				other.Status(t.Context())
				for _, s := range w.servers {
					s.slow(0, 40*time.Millisecond)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var ended time.Time
				err := client.Mutex("x").Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
					for _, s := range w.servers[:c.away] {
						s.links[0].hold(requests, 1)
					}
					cancel()
					ended = time.Now()
					return ctx.Err()
				})
				require.Equal(t, context.Canceled, err)
				require.Equal(t, c.took, time.Since(ended).Round(time.Millisecond))
				_, err = other.Mutex("x").TryAcquire(t.Context())
				if c.away > 0 {
					require.ErrorIs(t, err, redlock.ErrHeld)
					return
				}
				require.NoError(t, err)
				require.Empty(t, log.found("not confirmed"))
			})
		})
	}
}

// Do: The lease is lost while it becomes a reader's, and the function does not say so.
func TestALossInADowngradeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		for name, fn := range map[string]func(context.Context, *redlock.Lease) error{
			"in it": func(ctx context.Context, l *redlock.Lease) error {
				w.deletes("x")
				_, err := l.Downgrade(ctx)
				require.ErrorIs(t, err, redlock.ErrLost)
				return nil
			},
			"after it": func(ctx context.Context, l *redlock.Lease) error {
				reader, err := l.Downgrade(ctx)
				require.NoError(t, err)
				w.deletes("x")
				require.ErrorIs(t, reader.Extend(t.Context()), redlock.ErrLost)
				return nil
			},
			"in the reader's release": func(ctx context.Context, l *redlock.Lease) error {
				reader, err := l.Downgrade(ctx)
				require.NoError(t, err)
				require.NoError(t, reader.Extend(t.Context())) // now all nodes have it
				synctest.Wait()
				w.deletes("x")
				require.ErrorIs(t, reader.Release(t.Context()), redlock.ErrLost)
				return nil
			},
			"not": func(ctx context.Context, l *redlock.Lease) error {
				reader, err := l.Downgrade(ctx)
				require.NoError(t, err)
				return reader.Release(reader.With(t.Context())) // ctx has ended with the writer's lease
			},
		} {
			err := all[0].RWMutex("x").Writer().Do(t.Context(), fn)
			if name == "not" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, redlock.ErrLost, name)
			}
		}
	})
}

// Do: The function has released its own lease of a lock that it had entered again. What becomes of the outer one is not its loss.
func TestALossAfterItsOwnReleaseIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		for _, down := range []bool{false, true} {
			lock := all[0].RWMutex("x").Writer().Reentrant()
			outer, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, lock.Do(outer.With(t.Context()), func(_ context.Context, l *redlock.Lease) error {
				require.NoError(t, l.Release(t.Context()))
				if down {
					outer, err = outer.Downgrade(t.Context())
					require.NoError(t, err)
				}
				w.deletes("x")
				require.ErrorIs(t, outer.Extend(t.Context()), redlock.ErrLost)
				return nil
			}))
		}
	})
}
