// Package fleettest starts fleets for tests.
package fleettest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/required"
)

// startTimeout bounds a start, including building an image.
const startTimeout = 2 * time.Minute

// tellTimeout is how long a server may take to answer.
const tellTimeout = 5 * time.Second

// requirement is the name of a kind in REDLOCK_REQUIRE. The embedded fleet is always available.
var requirement = map[fleet.Kind]string{fleet.Process: "redis", fleet.Docker: "docker"}

// Start starts a fleet and closes it when the test ends. If the kind is not available on this machine, the test is
// skipped with the reason. It fails instead if REDLOCK_REQUIRE names the kind. This environment variable is a
// comma-separated list of "redis" for process and "docker" for docker. A test of docker fleets imports package dockerfleet.
func Start(t testing.TB, kind fleet.Kind, o fleet.Options) *fleet.Fleet {
	t.Helper()
	Require(t, kind)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	f, err := fleet.Start(ctx, kind, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close the %s fleet: %v", kind, err)
		}
	})
	return f
}

// Tell sends a command to the server of a node, past any proxy, and returns its reply.
func Tell(t testing.TB, n *fleet.Node, command string, args ...any) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	conn, err := n.DialDirect(ctx, tellTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reply, err := conn.Do(command, args...)
	if err != nil {
		t.Fatalf("%s: %s: %v", n.Name(), command, err)
	}
	return reply
}

// AwaitAppendOnlyFile waits until the server writes no append-only file anew, nor is about to: after CONFIG SET appendonly yes,
// INFO says aof_enabled before there is one.
func AwaitAppendOnlyFile(t testing.TB, n *fleet.Node) {
	t.Helper()
	require.Eventually(t, func() bool {
		info := fmt.Sprintf("%s", Tell(t, n, "INFO", "persistence"))
		return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
	}, 10*time.Second, time.Millisecond)
}

// Require skips or fails the test, like Start, if the kind is not available.
func Require(t testing.TB, kind fleet.Kind) {
	t.Helper()
	err := fleet.Available(kind)
	if err == nil {
		return
	}
	required.Missing(t, requirement[kind], fmt.Errorf("no %s fleet: %w", kind, err))
}
