//go:build unix

package dockerfleet_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

const (
	soon = 30 * time.Second       // time limit for expected events, even on a busy machine
	mute = 300 * time.Millisecond // how long to wait for an answer that must not come
)

// onEach runs the test on a fleet of every kind: with links, and also without them unless o asks for links.
func onEach(t *testing.T, o fleet.Options, test func(t *testing.T, f *fleet.Fleet)) {
	with := o
	with.Links = true
	for _, kind := range fleet.Kinds() {
		if !o.Links {
			t.Run(string(kind), func(t *testing.T) {
				t.Parallel()
				test(t, fleettest.Start(t, kind, o))
			})
		}
		t.Run(string(kind)+" behind links", func(t *testing.T) {
			t.Parallel()
			test(t, fleettest.Start(t, kind, with))
		})
	}
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), soon)
	t.Cleanup(cancel)
	return c
}

func dial(t testing.TB, n *fleet.Node) redis.Conn {
	t.Helper()
	conn, err := n.Dial(ctx(t), soon)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func do(t testing.TB, n *fleet.Node, cmd string, args ...any) any {
	t.Helper()
	reply, err := dial(t, n).Do(cmd, args...)
	require.NoError(t, err)
	return reply
}

// direct sends a command that bypasses the link.
func direct(t testing.TB, n *fleet.Node, cmd string, args ...any) any {
	t.Helper()
	conn, err := n.DialDirect(ctx(t), soon)
	require.NoError(t, err)
	defer conn.Close()
	reply, err := conn.Do(cmd, args...)
	require.NoError(t, err)
	return reply
}

// ask sends a command. Its reply arrives on the channel.
func ask(conn redis.Conn, cmd string, args ...any) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := conn.Do(cmd, args...)
		done <- err
	}()
	return done
}

func requireMute(t testing.TB, answered <-chan error) {
	t.Helper()
	select {
	case err := <-answered:
		t.Fatalf("unexpected answer: %v", err)
	case <-time.After(mute):
	}
}

// requireThere waits until a request was executed. Without an answer, its time is unknown.
func requireThere(t testing.TB, n *fleet.Node, key, want string) {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) {
		got := direct(t, n, "GET", key)
		if fmt.Sprintf("%s", got) == want {
			return
		}
		require.True(t, time.Now().Before(end), "%s is %q, not %q", key, got, want)
	}
}

func requireAnswer(t testing.TB, answered <-chan error) {
	t.Helper()
	select {
	case err := <-answered:
		require.NoError(t, err)
	case <-time.After(soon):
		t.Fatal("no answer")
	}
}

func requireRefused(t testing.TB, n *fleet.Node) {
	t.Helper()
	_, err := n.Dial(ctx(t), soon)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func runID(t testing.TB, n *fleet.Node) string {
	t.Helper()
	id, err := n.RunID(ctx(t))
	require.NoError(t, err)
	require.Len(t, id, 40)
	return id
}

// processID asks the server for its process id, which is that of this machine if it is not in a container.
func processID(t testing.TB, url string) int {
	t.Helper()
	conn, err := redis.DialURL(url, redis.DialReadTimeout(soon))
	require.NoError(t, err)
	defer conn.Close()
	info, err := redis.String(conn.Do("INFO", "server"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(info, "\nprocess_id:")
	id, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	require.NoError(t, err)
	return id
}
