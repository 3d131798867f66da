package redlock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func openSharded(t *testing.T, groups int) (*redlock.Sharded, []redlock.Config) {
	var configs []redlock.Config
	for range groups {
		f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
		configs = append(configs, redlock.Config{Nodes: redlock.Nodes(f.URLs()...)})
	}
	s, err := redlock.NewSharded(configs...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Enroll(soon(t)))
	return s, configs
}

func TestShardedLocksSpreadOverTheGroupsAndExclude(t *testing.T) {
	s, configs := openSharded(t, 3)
	again, err := redlock.NewSharded(configs[2], configs[0], configs[1]) // the order does not matter
	require.NoError(t, err)
	defer again.Close()
	ctx := soon(t)
	perGroup := map[*redlock.Client]int{}
	for i := range 300 {
		name := fmt.Sprint("order/", i)
		perGroup[s.Group(name)]++
		if i%10 > 0 {
			continue
		}
		l, err := s.Mutex(name).Acquire(ctx)
		require.NoError(t, err)
		_, err = again.Mutex(name).TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, l.Release(ctx))
	}
	require.Len(t, perGroup, 3)
	require.ElementsMatch(t, slices.Collect(maps.Keys(perGroup)), s.Groups())
	for _, c := range s.Groups() {
		require.Equal(t, 2, c.Quorum())
	}
	for _, names := range perGroup {
		require.Greater(t, names, 60, "of 300, over three groups")
	}
	for _, group := range s.Status(ctx) {
		for _, node := range group {
			require.NoError(t, node.Err)
		}
	}
}

func TestShardedNamesOfDifferentGroupsCannotBeLockedAtOnce(t *testing.T) {
	s, configs := openSharded(t, 2)
	var other string
	for i := 0; other == ""; i++ {
		if name := fmt.Sprint("n", i); s.Group(name) != s.Group("first") {
			other = name
		}
	}
	_, err := s.Mutex("first", other).TryAcquire(context.Background())
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.ErrorContains(t, err, "different groups")

	_, err = redlock.NewSharded(configs[0], configs[0])
	require.ErrorIs(t, err, redlock.ErrInvalid)
	_, err = redlock.NewSharded()
	require.ErrorIs(t, err, redlock.ErrInvalid)
}
