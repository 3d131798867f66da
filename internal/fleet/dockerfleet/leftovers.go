package dockerfleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ory/dockertest/v3/docker"
)

// Everything that we create in the engine has these labels.
const (
	label       = "redlock.fleet"         // the run
	labelHost   = "redlock.fleet.host"    // the host of the process that owns it
	labelPID    = "redlock.fleet.pid"     // the id of that process
	labelBorn   = "redlock.fleet.started" // when that process began, because ids are reused
	unknownBorn = ""                      // if there is no /proc
)

func ownerLabels(run string) map[string]string {
	return map[string]string{
		label: run, labelHost: thisHost(), labelPID: strconv.Itoa(os.Getpid()), labelBorn: bornAt(os.Getpid()),
	}
}

// thisHost names the namespace of process ids.
func thisHost() string {
	host, _ := os.Hostname()
	space, _ := os.Readlink("/proc/self/ns/pid")
	return host + " " + space
}

// bornAt returns when a process began, in the clock ticks of /proc/<pid>/stat.
func bornAt(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return unknownBorn
	}
	// The name, in parentheses, may contain anything. starttime is field 22, the 20th after the name.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return unknownBorn
	}
	return fields[19]
}

// orphaned reports whether the owner is a process of this host that has ended.
func orphaned(labels map[string]string) bool {
	pid, err := strconv.Atoi(labels[labelPID])
	if err != nil || labels[labelHost] != thisHost() || pid <= 0 {
		return false
	}
	// Without /proc this is unknown. Then it is better to leave something behind than to remove it from a running test.
	return bornAt(os.Getpid()) != unknownBorn && bornAt(pid) != labels[labelBorn]
}

// RemoveLeftovers removes the containers and networks of docker fleets whose process on this host has ended without
// Close, and returns how many it removed. It does not touch those of running processes and of other hosts, nor the
// shared image.
func RemoveLeftovers(ctx context.Context) (removed int, err error) {
	pool, err := newPool(ctx)
	if err != nil {
		return 0, fmt.Errorf("fleet: %w", err)
	}
	client := pool.Client
	client.SetTimeout(callTimeout)
	containers, err := client.ListContainers(docker.ListContainersOptions{
		All: true, Filters: map[string][]string{"label": {label}}, Context: ctx,
	})
	if err != nil {
		return 0, fmt.Errorf("fleet: list containers: %w", err)
	}
	var errs []error
	count := func(what string, err error) {
		if err == nil {
			removed++
		} else if !isAbsent(err) {
			errs = append(errs, fmt.Errorf("fleet: remove %s: %w", what, err))
		}
	}
	for _, c := range containers {
		if orphaned(c.Labels) {
			count(c.ID, client.RemoveContainer(docker.RemoveContainerOptions{ID: c.ID, Force: true, RemoveVolumes: true, Context: ctx}))
		}
	}
	networks, err := client.FilteredListNetworks(docker.NetworkFilterOpts{"label": {label: true}})
	if err != nil {
		errs = append(errs, fmt.Errorf("fleet: list networks: %w", err))
	}
	for _, n := range networks {
		if orphaned(n.Labels) {
			count(n.Name, client.RemoveNetwork(n.ID))
		}
	}
	return removed, errors.Join(errs...)
}
