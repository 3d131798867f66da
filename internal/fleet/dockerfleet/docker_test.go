//go:build unix

package dockerfleet_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/dockerfleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

// withoutPacketRules hides nsenter and iptables from the fleet, but not what it needs to build an image.
func withoutPacketRules(t *testing.T) {
	dir := t.TempDir()
	for _, program := range []string{"redis-server", "redis-cli", "ldd"} {
		if path, err := exec.LookPath(program); err == nil {
			require.NoError(t, os.Symlink(path, filepath.Join(dir, program)))
		}
	}
	t.Setenv("PATH", dir)
}

// usesPacketRules reports whether a fleet cuts with packet rules. What bypasses them is a socket.
func usesPacketRules(f *fleet.Fleet) bool {
	return strings.HasPrefix(f.Nodes()[0].DirectURL(), "unix:")
}

func TestADockerFleetCutsByItsLinksWherePacketRulesCannotBe(t *testing.T) {
	withoutPacketRules(t)
	f := fleettest.Start(t, fleet.Docker, fleet.Options{Nodes: 1, Links: true})
	require.False(t, usesPacketRules(f))
	n := f.Nodes()[0]
	open := dial(t, n)
	do(t, n, "PING")

	require.NoError(t, n.Cut())
	answered := ask(open, "SET", "k", "v")
	requireMute(t, answered)
	assert.Nil(t, direct(t, n, "GET", "k"))
	require.NoError(t, n.Heal())
	requireAnswer(t, answered)

	require.NoError(t, n.CutReplies())
	answered = ask(open, "SET", "k", "w")
	requireMute(t, answered)
	requireThere(t, n, "k", "w")
	require.NoError(t, n.Heal())
	requireAnswer(t, answered)
}

func TestADockerFleetWithoutLinksOrPacketRulesRefusesToCut(t *testing.T) {
	withoutPacketRules(t)
	n := fleettest.Start(t, fleet.Docker, fleet.Options{Nodes: 1}).Nodes()[0]
	for _, fault := range []func() error{n.Cut, n.CutReplies} {
		err := fault()
		require.ErrorIs(t, err, fleet.ErrUnsupported)
		assert.Contains(t, err.Error(), "docker")
	}
}

func TestPacketRulesNeedNoLink(t *testing.T) {
	f := fleettest.Start(t, fleet.Docker, fleet.Options{Nodes: 1})
	if !usesPacketRules(f) {
		required.Missing(t, "root", errors.New("packet rules need Linux, root, nsenter and iptables"))
	}
	n := f.Nodes()[0]
	open := dial(t, n)
	do(t, n, "PING")
	require.NoError(t, n.CutReplies())
	answered := ask(open, "SET", "k", "v")
	requireMute(t, answered)
	requireThere(t, n, "k", "v")
	require.NoError(t, n.Cut(), "one rule replaces the other, without a gap")
	requireMute(t, answered)
	require.NoError(t, n.Kill())
	require.NoError(t, n.Start(ctx(t), fleet.Kept))
	requireMute(t, ask(dial(t, n), "PING"))
	require.NoError(t, n.Heal())
	require.ErrorIs(t, n.Delay(1), fleet.ErrUnsupported)
	assert.Equal(t, "PONG", do(t, n, "PING"))
}

func TestAMissingEngineIsNamedWithItsRemedy(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	require.ErrorContains(t, fleet.Available(fleet.Docker), "install")
	_, err := fleet.Start(ctx(t), fleet.Docker, fleet.Options{})
	require.ErrorContains(t, err, "/nonexistent/docker.sock")
}

func TestADockerStartThatFailsLeavesNothingAndSaysWhy(t *testing.T) {
	fleettest.Require(t, fleet.Docker)
	_, err := fleet.Start(ctx(t), fleet.Docker, fleet.Options{Nodes: 2, Args: []string{"--no-such-option", "1"}})
	require.Error(t, err)
	assert.Contains(t, err.Error(), "no-such-option")
	assert.Contains(t, err.Error(), "node-2")

	hurried, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond) // while the containers are created
	defer cancel()
	_, err = fleet.Start(hurried, fleet.Docker, fleet.Options{Nodes: 5})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Empty(t, dockerfleet.InEngine(t, dockerfleet.LabelPID+"="+strconv.Itoa(os.Getpid())))
}

func TestAnImageThatCannotBePulledIsBuiltFromThisMachinesServer(t *testing.T) {
	fleettest.Require(t, fleet.Process)
	var log strings.Builder
	f := fleettest.Start(t, fleet.Docker, fleet.Options{Nodes: 1, Image: "127.0.0.1:1/there-is/none:7", Log: &log})
	assert.Contains(t, log.String(), "127.0.0.1:1/there-is/none:7 is not present and cannot be pulled")
	assert.Contains(t, log.String(), "is built from this machine's")
	assert.Equal(t, "PONG", do(t, f.Nodes()[0], "PING"))
}

// Otherwise a fault of another node could not be healed.
func TestARestartCutShortDoesNotTakeThePacketRulesFromTheFleet(t *testing.T) {
	dir := t.TempDir()
	nsenter := filepath.Join(dir, "nsenter")
	if path, err := exec.LookPath("nsenter"); err == nil {
		require.NoError(t, os.Symlink(path, nsenter))
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	f := fleettest.Start(t, fleet.Docker, fleet.Options{Nodes: 2})
	if !usesPacketRules(f) {
		required.Missing(t, "root", errors.New("packet rules need Linux, root, nsenter and iptables"))
	}
	hurt, restarted := f.Nodes()[0], f.Nodes()[1]
	open := dial(t, hurt)
	do(t, hurt, "PING")
	require.NoError(t, hurt.Cut())
	answered := ask(open, "PING")
	require.NoError(t, restarted.Kill())
	require.NoError(t, os.Rename(nsenter, nsenter+".hidden")) // so that every rule fails
	require.Error(t, restarted.Start(ctx(t), fleet.Kept))
	require.NoError(t, os.Rename(nsenter+".hidden", nsenter))
	assert.False(t, restarted.Alive())
	requireMute(t, answered)
	require.NoError(t, hurt.Heal())
	requireAnswer(t, answered)
	require.NoError(t, restarted.Start(ctx(t), fleet.Kept))
	require.NoError(t, restarted.Cut())
}

func TestOnlyTheDeadOfThisHostAreOrphaned(t *testing.T) {
	mine := dockerfleet.OwnerLabels("run")
	assert.False(t, dockerfleet.Orphaned(mine), "this process is running")

	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	for change, want := range map[[2]string]bool{
		{"redlock.fleet.pid", strconv.Itoa(dead.Process.Pid)}: true,
		{"redlock.fleet.started", "1"}:                        true, // the id was reused
		{"redlock.fleet.host", "elsewhere"}:                   false,
		{"redlock.fleet.pid", "?"}:                            false,
	} {
		labels := dockerfleet.OwnerLabels("run")
		labels[change[0]] = change[1]
		if change[0] == "redlock.fleet.host" {
			labels["redlock.fleet.pid"] = strconv.Itoa(dead.Process.Pid)
		}
		assert.Equal(t, want, dockerfleet.Orphaned(labels), "%v", change)
	}
}
