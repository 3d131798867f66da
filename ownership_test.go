package redlock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// R3: Work under a lost lease has the drift to stop. A tick that was due when the lease was lost must not release it
// sooner.
func TestALostLeaseIsNotReleasedByATickThatWasDueBefore(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	c, err := New(Config{Nodes: Nodes(f.URLs()...)})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Enroll(context.Background()))
	l, err := c.Mutex("x").Acquire(context.Background())
	require.NoError(t, err)
	h := l.ownership
	released := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.release != nil
	}
	h.lose(errExpired)
	h.tick(c.cfg.Clock.Now())
	require.False(t, released())
	h.tick(h.dueRelease())
	require.True(t, released())
}
