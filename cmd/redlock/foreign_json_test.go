//go:build unix

package main_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

func TestInspectSaysInJSONThatAKeyIsNoLock(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	hold(t, client, "mutex")
	reader, err := client.RWMutex("reader").Reader().Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, reader.Extend(t.Context()))
	everyNode(t, f, func(n *fleet.Node) error {
		do(t, n, "SET", "string", "data", "PX", 60000)
		do(t, n, "HSET", "hash", "a", "b")
		do(t, n, "SET", "for-ever", "0123456789abcdef0123456789abcdef")
		return nil
	})
	for key, want := range map[string]bool{"mutex": false, "reader": false, "free": false, "string": true, "hash": true, "for-ever": true} {
		code, out, errs := run(t, "inspect", "--json", nodes(f), key)
		require.Equal(t, 0, code, errs)
		var l struct {
			Foreign bool
			Nodes   []struct{ Foreign bool }
		}
		require.NoError(t, json.Unmarshal([]byte(out), &l))
		require.Equal(t, want, l.Foreign, out)
		for _, n := range l.Nodes {
			require.Equal(t, want, n.Foreign, out)
		}
	}
	require.NoError(t, reader.Release(t.Context()))
}
