//go:build unix

package redlock_test

import (
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
