//go:build unix

package dockerfleet

import (
	"slices"
	"testing"

	"github.com/ory/dockertest/v3/docker"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// OwnerLabels and Orphaned let a test pretend that an owner has died.
var (
	OwnerLabels = ownerLabels
	Orphaned    = orphaned
)

// Labels of what is in the engine: its fleet, and the process that owns it.
const (
	LabelRun = label
	LabelPID = labelPID
)

// RunOf returns the name of a docker fleet in the engine.
func RunOf(t testing.TB, f *fleet.Fleet) string {
	ip, _, err := f.Nodes()[0].PeerAddress()
	require.NoError(t, err)
	for _, c := range containers(t, LabelRun) {
		for _, n := range c.Networks.Networks {
			if n.IPAddress == ip {
				return c.Labels[LabelRun]
			}
		}
	}
	t.Fatalf("no container has the address %s", ip)
	return ""
}

// PIDs returns the servers in running containers with the label, if they are processes of this machine.
func PIDs(t testing.TB, label string) (pids []int) {
	client := engine(t)
	if _, err := findPacketRules(client.Endpoint()); err != nil {
		return nil
	}
	for _, c := range containers(t, label) {
		state, err := client.InspectContainerWithContext(c.ID, t.Context())
		require.NoError(t, err)
		pids = append(pids, state.State.Pid)
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == 0 }) // not running
}

// InEngine names all containers and networks with the label.
func InEngine(t testing.TB, label string) (names []string) {
	for _, c := range containers(t, label) {
		names = append(names, c.Names...)
	}
	networks, err := engine(t).FilteredListNetworks(docker.NetworkFilterOpts{"label": {label: true}})
	require.NoError(t, err)
	for _, n := range networks {
		names = append(names, n.Name)
	}
	return names
}

func containers(t testing.TB, label string) []docker.APIContainers {
	found, err := engine(t).ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {label}}})
	require.NoError(t, err)
	return found
}

func engine(t testing.TB) *docker.Client {
	pool, err := newPool(t.Context())
	require.NoError(t, err)
	return pool.Client
}
