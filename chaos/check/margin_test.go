package check

import (
	"cmp"
	"slices"
	"testing"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/stretchr/testify/require"
)

const ms = int64(1e6)

// held are the events of a lease: granted, and then lost or released.
func held(op uint64, from, to int64, end history.Kind) [3]history.Event {
	return [3]history.Event{
		{At: from * ms, Kind: history.Acquire, Op: op, Client: int(op), Resource: "k"},
		{At: from * ms, Kind: history.Granted, Op: op},
		{At: to * ms, Kind: end, Op: op, Until: to * ms},
	}
}

func marginOf(t *testing.T, leases ...[3]history.Event) *float64 {
	t.Helper()
	var events []history.Event
	for _, l := range leases {
		events = append(events, l[:]...)
	}
	res, err := Judge(append(inOrder(events), history.Event{At: 1000 * ms, Kind: history.End}))
	require.NoError(t, err)
	return res.Margin
}

func TestTheMarginIsTheLeastTimeFromALeaseThatEndedByItselfToTheNextGrant(t *testing.T) {
	require.Nil(t, marginOf(t, held(1, 10, 20, history.Lost)), "nobody came after it")
	require.Nil(t, marginOf(t, held(1, 10, 20, history.Release), held(2, 21, 30, history.Lost)), "the first gave it up")
	require.InDelta(t, 4, *marginOf(t, held(1, 10, 20, history.Lost), held(2, 24, 30, history.Release),
		held(3, 31, 40, history.Lost), held(4, 50, 60, history.Release)), 0)
}

func TestTheMarginOfAnOverlapIsBelowZeroAlsoIfTheFirstReleased(t *testing.T) {
	require.InDelta(t, -6, *marginOf(t, held(1, 10, 30, history.Release), held(2, 24, 40, history.Release)), 0)
	require.InDelta(t, -5, *marginOf(t, held(1, 10, 30, history.Lost), held(2, 15, 16, history.Release),
		held(3, 25, 40, history.Lost))+10, 0, "the longest of several")
}

// inOrder puts the start before the events, which it sorts by time.
func inOrder(events []history.Event) []history.Event {
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	return append([]history.Event{start()}, events...)
}
