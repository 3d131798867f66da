//go:build unix

package redlock_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// standStill stops this process, soon, for so long: as a debugger does, or a limit of processor time. It returns a
// function that waits until it is over.
func standStill(t *testing.T, d time.Duration) (over func()) {
	t.Helper()
	stop := exec.Command("sh", "-c", fmt.Sprintf("kill -STOP %[1]d; sleep %[2]f; kill -CONT %[1]d", os.Getpid(), d.Seconds()))
	require.NoError(t, stop.Start())
	return func() { require.NoError(t, stop.Wait()) }
}

// A3: A node that answered in time is not called silent because this process stood still. It stops beyond the time that
// it waits for answers (NodeTimeout, 250ms), and in one case beyond that after which a server counts as stalled (1s).
func TestAnswersThatCameWhileTheProcessStoodStillCount(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c := open(t, f)
	whileStill := func(d time.Duration, call func() error) error {
		for _, n := range f.Nodes() {
			tell(t, n, "CLIENT", "PAUSE", 150, "ALL") // so that the answers come while this process stands still
		}
		over := standStill(t, d)
		defer over()
		return call()
	}
	for i, still := range []time.Duration{400 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond} {
		var lease *redlock.Lease
		require.NoError(t, whileStill(still, func() (err error) {
			lease, err = c.Mutex(fmt.Sprint("x", i)).TryAcquire(soon(t))
			return err
		}), "try %d", i)
		require.NoError(t, whileStill(still, func() error { return lease.Release(soon(t)) }), "release %d", i)
	}
}

// T1: An Acquire whose time ends while this process stands still says nothing of the nodes: their answers are here, and nobody
// has read them.
func TestAWaitThatEndsWhileTheProcessStandsStillIsNoOutage(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	patient := func(cfg *redlock.Config) { cfg.NodeTimeout = time.Second }
	holder, c := open(t, f, patient), open(t, f, patient)
	for _, kind := range []struct {
		name       string
		held, lock redlock.Lock
	}{
		{"mutex", holder.Mutex("m"), c.Mutex("m")},
		{"fair", holder.Mutex("f"), c.Mutex("f").Fair()},
		{"reader", holder.RWMutex("rw").Writer(), c.RWMutex("rw").Reader()},
		{"permit", holder.Semaphore("s", 1), c.Semaphore("s", 1)},
	} {
		l, err := kind.held.Acquire(soon(t))
		require.NoError(t, err)
		_, err = kind.lock.TryAcquire(soon(t)) // its connections are open, and the lock is contended
		require.ErrorIs(t, err, redlock.ErrHeld)
		for _, n := range f.Nodes() {
			tell(t, n, "CLIENT", "PAUSE", 300, "ALL") // so that the answers come while this process stands still
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		over := standStill(t, 1500*time.Millisecond)
		_, err = kind.lock.Acquire(ctx)
		over()
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, kind.name)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum, kind.name)
		require.NoError(t, l.Release(soon(t)), kind.name)
	}
}
