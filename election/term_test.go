package election

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/redlocktest"
)

// What an earlier leader still says, because a message was late, does not touch the record of the present one.
func TestOnlyTheOwnerOfTheLockCanChangeTheRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, err := redlock.New(redlock.Config{Nodes: redlocktest.Start(t, 3).Nodes()})
		require.NoError(t, err)
		defer client.Close()
		e := New(client, "x", Options{Label: "a"})
		records := func() (stored []string) {
			synctest.Wait()
			for node := range e.nodes.Nodes() {
				e.nodes.Get(node, e.leaderKey, func(record string, _ error) {
					if record != "" {
						stored = append(stored, record)
					}
				})
				synctest.Wait()
			}
			return stored
		}
		first, err := e.Campaign(t.Context())
		require.NoError(t, err)
		require.Contains(t, records(), Leader{"a", first.number, first.token}.record())
		require.NoError(t, first.Resign(t.Context()))
		require.Empty(t, records())

		second, err := e.Campaign(t.Context())
		require.NoError(t, err)
		before := records()
		require.Contains(t, before, Leader{"a", second.number, second.token}.record())
		require.False(t, first.announce(), "it has resigned")
		first.tellAll(announceScript, first.token, "late", "1000")
		first.tellAll(retractScript, first.token, "1", "released")
		require.Equal(t, before, records())
		require.True(t, second.Valid())

		// Once a term has begun to end, nothing is announced, though its lease may still be valid.
		second.end(true)
		require.True(t, second.Valid())
		require.False(t, second.announce())
		require.Empty(t, records())
	})
}
