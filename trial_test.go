package redlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestATrialFindsWhatANodesUserMayNotDo(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c, ctx := open(t, f), soon(t)
	problems, err := c.Trial(ctx)
	require.NoError(t, err)
	require.Equal(t, make([]error, 5), problems)
	for i, right := range []string{"-set", "-zadd", "-pexpire", "-zpopmin"} {
		tell(t, f.Nodes()[i], "ACL", "SETUSER", "default", right)
	}
	problems, err = c.Trial(ctx)
	require.NoError(t, err)
	for i, problem := range problems[:4] {
		require.Error(t, problem, "%d", i)
		require.Regexp(t, "its user lacks the right|NOPERM", problem.Error(), "%d", i)
	}
	require.NoError(t, problems[4])
	require.NoError(t, f.Nodes()[4].Kill())
	problems, err = c.Trial(ctx)
	require.NoError(t, err)
	require.Error(t, problems[4])
	require.NoError(t, c.Close()) // Close sends the releases that it owed
	for i, n := range f.Nodes()[:4] {
		if i != 3 { // without ZPOPMIN, the trial's queue stays
			require.Empty(t, tell(t, n, "KEYS", "*doctor/*"), "%d", i)
		}
	}
	_, err = c.Trial(ctx)
	require.ErrorIs(t, err, redlock.ErrClosed)
}

func TestATrialLeavesNothingBehind(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c := open(t, f)
		problems, err := c.Trial(soon(t))
		require.NoError(t, err)
		require.Equal(t, make([]error, 5), problems)
		for _, n := range f.Nodes() {
			require.Empty(t, tell(t, n, "KEYS", "*doctor/*"))
		}
	})
}
