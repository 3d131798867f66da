//go:build unix

package dockerfleet_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/dockerfleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestEveryNodeOfAStartedFleetAnswers(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		require.Len(t, f.Nodes(), 3)
		ids, urls := map[string]bool{}, map[string]bool{}
		for i, n := range f.Nodes() {
			assert.Equal(t, "PONG", do(t, n, "PING"))
			assert.True(t, n.Alive())
			assert.Equal(t, f.URLs()[i], n.URL())
			ids[runID(t, n)], urls[n.URL()] = true, true
		}
		assert.Len(t, ids, 3)
		assert.Len(t, urls, 3)
		assert.Equal(t, "node-2", f.Nodes()[1].Name())
	})
}

func TestProcessesAreTheServerThatTheEnvironmentNames(t *testing.T) {
	fleettest.Require(t, fleet.Process)
	real, err := fleet.Server()
	require.NoError(t, err)
	named := filepath.Join(t.TempDir(), "another-server")
	require.NoError(t, os.WriteFile(named, []byte("#!/bin/sh\nexec '"+real+"' \"$@\" --maxclients 77\n"), 0o700))
	t.Setenv(fleet.ServerVariable, named)
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	require.Equal(t, []any{[]byte("maxclients"), []byte("77")}, do(t, f.Nodes()[0], "CONFIG", "GET", "maxclients"))

	t.Setenv(fleet.ServerVariable, named+"-that-is-not-there")
	require.ErrorContains(t, fleet.Available(fleet.Process), "REDLOCK_SERVER="+named+"-that-is-not-there")
}

func TestAKilledNodeRefusesAndComesBackEmpty(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		url, before := n.URL(), runID(t, n)
		open := dial(t, n)
		do(t, n, "SET", "k", "v")
		do(t, n, "SCRIPT", "LOAD", "return 42")

		require.NoError(t, n.Kill())
		assert.False(t, n.Alive())
		requireRefused(t, n)
		_, err := open.Do("PING")
		assert.Error(t, err, "an open connection must end with the node")
		require.NoError(t, n.Kill(), "a second kill has no effect")

		require.NoError(t, n.Start(ctx(t), fleet.Empty))
		assert.Equal(t, url, n.URL())
		assert.Nil(t, do(t, n, "GET", "k"))
		assert.Equal(t, []any{int64(0)}, do(t, n, "SCRIPT", "EXISTS", "1fa00e76656cc152ad327c13fe365858fd7be306"))
		assert.NotEqual(t, before, runID(t, n))
		assert.Error(t, n.Start(ctx(t), fleet.Empty), "it is up")
	})
}

func TestSavedDataIsKeptOverAKill(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 1}, func(t *testing.T, f *fleet.Fleet) {
		n := f.Nodes()[0]
		before := runID(t, n)
		do(t, n, "SET", "k", "old", "PX", 60000)
		do(t, n, "HSET", "h", "field", "value")
		do(t, n, "SCRIPT", "LOAD", "return 42")
		require.NoError(t, n.Save(ctx(t)))
		do(t, n, "SET", "k", "new")
		do(t, n, "SET", "after", "save")

		require.NoError(t, n.Kill())
		require.NoError(t, n.Start(ctx(t), fleet.Kept))
		assert.Equal(t, []byte("old"), do(t, n, "GET", "k"), "it has the saved data")
		assert.InDelta(t, 60000, do(t, n, "PTTL", "k"), 10000)
		assert.Equal(t, []byte("value"), do(t, n, "HGET", "h", "field"))
		assert.Nil(t, do(t, n, "GET", "after"))
		assert.Equal(t, []any{int64(0)}, do(t, n, "SCRIPT", "EXISTS", "1fa00e76656cc152ad327c13fe365858fd7be306"))
		assert.NotEqual(t, before, runID(t, n))

		require.NoError(t, n.Stop(ctx(t)))
		requireRefused(t, n)
		require.NoError(t, n.Start(ctx(t), fleet.Empty))
		assert.Nil(t, do(t, n, "GET", "k"))
		require.NoError(t, n.Kill())
		require.NoError(t, n.Start(ctx(t), fleet.Kept))
		assert.Nil(t, do(t, n, "GET", "k"), "an empty start removes the saved data too")
	})
}

func TestAnEmbeddedNodeThatWasNeverSavedKeepsAllItHad(t *testing.T) {
	n := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1}).Nodes()[0]
	before := runID(t, n)
	do(t, n, "SET", "k", "v")
	do(t, n, "SET", "short", "v", "PX", 1)
	do(t, n, "XADD", "stream", "*", "a", "b")
	do(t, n, "SCRIPT", "LOAD", "return 42")
	err := n.Save(ctx(t))
	require.ErrorIs(t, err, fleet.ErrUnsupported, "streams cannot be copied")
	require.NoError(t, n.Kill())
	require.NoError(t, n.Start(ctx(t), fleet.Kept))
	assert.Equal(t, []byte("v"), do(t, n, "GET", "k"))
	time.Sleep(5 * time.Millisecond) // a kill and a start may take less than the TTL
	assert.Nil(t, do(t, n, "GET", "short"))
	assert.EqualValues(t, 1, do(t, n, "XLEN", "stream"))
	assert.Equal(t, []any{int64(0)}, do(t, n, "SCRIPT", "EXISTS", "1fa00e76656cc152ad327c13fe365858fd7be306"))
	assert.NotEqual(t, before, runID(t, n))
	waiting := ask(dial(t, n), "BLPOP", "list", 0)
	requireMute(t, waiting)
	do(t, n, "RPUSH", "list", "v")
	requireAnswer(t, waiting)
	do(t, n, "DEL", "stream")
	for cmd, args := range map[string][]any{"SADD": {"set", "m"}, "ZADD": {"zset", 1.5, "m"}, "RPUSH": {"list", "a", "b"}} {
		do(t, n, cmd, args...)
	}
	require.NoError(t, n.Save(ctx(t)))
	require.NoError(t, n.Stop(ctx(t)))
	require.NoError(t, n.Start(ctx(t), fleet.Kept))
	assert.EqualValues(t, 1, do(t, n, "SISMEMBER", "set", "m"))
	assert.Equal(t, []byte("1.5"), do(t, n, "ZSCORE", "zset", "m"))
	assert.Equal(t, []any{[]byte("a"), []byte("b")}, do(t, n, "LRANGE", "list", 0, -1))
}

func TestAnAppendOnlyFileIsKeptOverAKill(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Process, fleet.Docker} {
		t.Run(string(kind), func(t *testing.T) {
			f := fleettest.Start(t, kind, fleet.Options{Nodes: 1, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
			n := f.Nodes()[0]
			do(t, n, "SET", "k", "v")
			require.NoError(t, n.Kill())
			require.NoError(t, n.Start(ctx(t), fleet.Kept))
			assert.Equal(t, []byte("v"), do(t, n, "GET", "k"))
		})
	}
}

func TestAFaultThatAFleetCannotDoIsRefused(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			n := fleettest.Start(t, kind, fleet.Options{Nodes: 1}).Nodes()[0]
			for _, fault := range []func() error{n.Cut, n.CutReplies, func() error { return n.Delay(time.Second) }} {
				err := fault()
				require.ErrorIs(t, err, fleet.ErrUnsupported)
				assert.Contains(t, err.Error(), string(kind))
				assert.Contains(t, err.Error(), "Options.Links")
			}
			assert.NoError(t, n.Heal())
			assert.Equal(t, "PONG", do(t, n, "PING"))
		})
	}
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	onEach(t, fleet.Options{Nodes: 3}, func(t *testing.T, f *fleet.Fleet) {
		nodes := f.Nodes()
		pids, left := belongings(t, f)
		require.NoError(t, nodes[0].Pause())
		require.NoError(t, nodes[1].Kill())
		require.NoError(t, f.Close())
		require.NoError(t, f.Close())
		for _, n := range nodes {
			requireRefusedOrAbsent(t, n)
			assert.False(t, n.Alive())
			assert.Error(t, n.Start(ctx(t), fleet.Empty), "the fleet is closed")
		}
		for _, pid := range pids {
			// A server in a container is the child of another program, which may still have to read how it ended.
			assert.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, 10*time.Second, time.Millisecond)
		}
		assert.Empty(t, left())
	})
}

// belongings are the servers of a fleet. left names everything else of it that is still there.
func belongings(t *testing.T, f *fleet.Fleet) (pids []int, left func() []string) {
	var files []string // one in the fleet's directory
	run := ""
	switch f.Kind() {
	case fleet.Process:
		for _, n := range f.Nodes() {
			pids = append(pids, processID(t, n.DirectURL()))
		}
		dir, err := redis.Strings(direct(t, f.Nodes()[0], "CONFIG", "GET", "dir"), nil)
		require.NoError(t, err)
		files = append(files, dir[1])
	case fleet.Docker:
		run = dockerfleet.LabelRun + "=" + dockerfleet.RunOf(t, f)
		pids = dockerfleet.PIDs(t, run)
		if socket, ok := strings.CutPrefix(f.Nodes()[0].DirectURL(), "unix://"); ok {
			files = append(files, socket)
		}
	}
	return pids, func() (names []string) {
		for _, file := range files {
			root := filepath.Dir(filepath.Dir(file))
			if _, err := os.Stat(root); !os.IsNotExist(err) {
				names = append(names, root)
			}
		}
		if run != "" {
			names = append(names, dockerfleet.InEngine(t, run)...)
		}
		return names
	}
}

func requireRefusedOrAbsent(t testing.TB, n *fleet.Node) {
	t.Helper()
	_, err := n.Dial(ctx(t), soon)
	if !errors.Is(err, os.ErrNotExist) {
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
}

func TestAStartThatFailsLeavesNothingAndSaysWhy(t *testing.T) {
	fleettest.Require(t, fleet.Process)
	_, err := fleet.Start(ctx(t), fleet.Process, fleet.Options{Nodes: 2, Args: []string{"--no-such-option", "1"}})
	require.Error(t, err)
	assert.Contains(t, err.Error(), "no-such-option")
	assert.Contains(t, err.Error(), "node-2")

	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		_, err = fleet.Start(cancelled, kind, fleet.Options{Nodes: 2})
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestAUnixSocketIsTheURLWhereItIsAskedFor(t *testing.T) {
	for _, links := range []bool{false, true} {
		f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 2, Unix: true, Links: links})
		n := f.Nodes()[1]
		require.True(t, strings.HasPrefix(n.URL(), "unix:///"), n.URL())
		do(t, n, "SET", "k", "v")
		require.NoError(t, n.Kill())
		requireRefused(t, n)
		require.NoError(t, n.Start(ctx(t), fleet.Empty))
		assert.Nil(t, do(t, n, "GET", "k"))
	}
}

func TestAPasswordAmongTheArgumentsIsInTheURL(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1, Links: true, Args: []string{"--requirepass", "s3cret"}})
	n := f.Nodes()[0]
	assert.Contains(t, n.URL(), "redis://:s3cret@127.0.0.1:")
	conn, err := redis.DialURL(n.URL())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Do("PING")
	require.NoError(t, err)
}

func TestTheLogHasALineForEachDeed(t *testing.T) {
	var log strings.Builder
	f, err := fleet.Start(ctx(t), fleet.Embedded, fleet.Options{Nodes: 1, Log: &log})
	require.NoError(t, err)
	require.Error(t, f.Nodes()[0].Cut())
	require.NoError(t, f.Nodes()[0].Kill())
	require.NoError(t, f.Close())
	for _, want := range []string{"node-1: start empty", "node-1: cut: failed", "node-1: kill", "fleet: closed"} {
		assert.Contains(t, log.String(), want)
	}
}
