//go:build unix

package fleet

import (
	"os"
	"strconv"
	"testing"

	"github.com/ory/dockertest/v3/docker"
	"github.com/stretchr/testify/require"
)

// ServerPIDs returns the running server processes of the fleet.
func ServerPIDs(f *Fleet) []int {
	var pids []int
	for _, n := range f.nodes {
		switch b := n.backend.(type) {
		case *process:
			if c := b.running.Load(); c != nil {
				pids = append(pids, c.cmd.Process.Pid)
			}
		case *container:
			if b.pid != 0 && b.launcher.rules != nil { // they are processes of this machine
				pids = append(pids, b.pid)
			}
		}
	}
	return pids
}

// Leftovers names everything that a closed fleet has left behind.
func Leftovers(t testing.TB, f *Fleet) (left []string) {
	switch l := f.launcher.(type) {
	case *processLauncher:
		if _, err := os.Stat(l.root); !os.IsNotExist(err) {
			left = append(left, l.root)
		}
	case *dockerLauncher:
		if _, err := os.Stat(l.root); l.root != "" && !os.IsNotExist(err) {
			left = append(left, l.root)
		}
		containers, err := l.client.ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {label + "=" + l.run}}})
		require.NoError(t, err)
		for _, c := range containers {
			left = append(left, c.Names...)
		}
		networks, err := l.client.FilteredListNetworks(docker.NetworkFilterOpts{"label": {label + "=" + l.run: true}})
		require.NoError(t, err)
		for _, n := range networks {
			left = append(left, n.Name)
		}
	}
	return left
}

// OwnerLabels and Orphaned let a test pretend that an owner has died.
var (
	OwnerLabels = ownerLabels
	Orphaned    = orphaned
)

// UsesPacketRules reports whether a docker fleet cuts with packet rules.
func UsesPacketRules(f *Fleet) bool { return f.nodes[0].backend.cutter() != nil }

// HidePacketRules makes every rule fail during meanwhile.
func HidePacketRules(f *Fleet, meanwhile func()) {
	rules := f.launcher.(*dockerLauncher).rules
	nsenter := rules.nsenter
	rules.nsenter = "/nonexistent/nsenter"
	defer func() { rules.nsenter = nsenter }()
	meanwhile()
}

// InEngine names all containers and networks in the engine that belong to fleets of a process.
func InEngine(t testing.TB, pid int) (names []string) {
	pool, err := newPool(t.Context())
	require.NoError(t, err)
	owned := labelPID + "=" + strconv.Itoa(pid)
	containers, err := pool.Client.ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {owned}}})
	require.NoError(t, err)
	for _, c := range containers {
		names = append(names, c.Names...)
	}
	networks, err := pool.Client.FilteredListNetworks(docker.NetworkFilterOpts{"label": {owned: true}})
	require.NoError(t, err)
	for _, n := range networks {
		names = append(names, n.Name)
	}
	return names
}
