package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/history"
)

func TestWhatTheSubjectDoesNotSayIsLeftOut(t *testing.T) {
	both := []string{history.Validity, history.FencingTokens}
	lease := func(op, fence uint64, end history.Event) []history.Event {
		end.Op, end.Until = op, 1
		return []history.Event{
			{Kind: history.Acquire, Client: 1, Op: op, Resource: "r"}, {Kind: history.Granted, Op: op, Fence: fence, Token: "t"}, end,
		}
	}
	judged := func(leases ...[]history.Event) (found []string) {
		events := []history.Event{start()}
		for _, l := range leases {
			events = append(events, l...)
		}
		res, err := Judge(append(events, history.Event{Kind: history.End}))
		require.NoError(t, err)
		for _, l := range res.LeftOut {
			if l.Check == history.Validity || l.Check == history.FencingTokens {
				found = append(found, l.String())
			}
		}
		return found
	}
	released := func(untold ...string) history.Event { return history.Event{Kind: history.Release, Untold: untold} }
	lost := history.Event{Kind: history.Lost, Untold: both}
	require.Empty(t, judged(lease(1, 0, released()), lease(2, 0, released())))
	require.Equal(t, []string{
		"validity: the subject does not say whether a lease is valid: 2 of 3 leases counted as valid for a TTL from their request",
		"fencing tokens: the subject has none",
	}, judged(lease(1, 0, released(both...)), append(lease(2, 0, lost), history.Event{Kind: history.Release, Op: 2, Untold: both}), lease(3, 0, released())))
	require.Equal(t, []string{"fencing tokens: 1 of 2 leases have none, and were requested before there was any"},
		judged(lease(1, 0, released(history.FencingTokens)), lease(2, 7, released())))
}
