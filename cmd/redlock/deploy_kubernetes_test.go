//go:build unix

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// listOf returns the words of a list in a manifest, such as command: ["a", "b"].
func listOf(t *testing.T, manifest, name string) (words []string) {
	list := regexp.MustCompile(`(?s)\b` + name + `: \[([^\]]*)\]`).FindStringSubmatch(manifest)
	require.NotNil(t, list, name)
	for _, word := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(list[1], -1) {
		words = append(words, word[1])
	}
	return words
}

// A server with the command of the manifest is fit, its probe finds it, and what it knows is on its disk.
func TestTheServersOfTheManifestAreFit(t *testing.T) {
	t.Parallel()
	manifest, conf := textOf(t, deploy+"kubernetes.yaml"), textOf(t, deploy+"redis/redlock.conf")
	command := listOf(t, strings.SplitN(manifest, "containers:", 2)[1], "command")
	require.Equal(t, []string{"redis-server", "/etc/redlock/redlock.conf", "--dir", "/data"}, command[:4])
	settings := command[4:]
	require.Len(t, settings, 6)
	for i := 0; i < len(settings); i += 2 { // those that redlock.conf has as comments
		require.Contains(t, conf, "#   "+strings.TrimPrefix(settings[i], "--")+" "+settings[i+1]+"\n")
	}
	servers := startAsDeployed(t, 3)
	for _, s := range servers {
		s.kill()
		s.start(t, settings...)
	}
	nodes := "--nodes=" + strings.Join(urlsOf(servers), ",")
	code, _, errs := run(t, "enroll", "--only-new", nodes)
	require.Equal(t, 0, code, errs)
	code, out, _ := run(t, "doctor", nodes)
	require.Equal(t, 0, code, out)
	require.NotRegexp(t, `(?m)^[!✗]`, out)

	probes := regexp.MustCompile(`exec: \{command: \["sh", "-c", "([^"]+)"\]\}`).FindAllStringSubmatch(manifest, -1)
	require.Len(t, probes, 2)
	_, port, _ := strings.Cut(servers[0].url, "127.0.0.1:")
	for _, probe := range probes {
		at := func(port string) error {
			return exec.Command("sh", "-c", strings.Replace(probe[1], "redis-cli ", "redis-cli -p "+port+" ", 1)).Run()
		}
		require.NoError(t, at(port))
		require.Error(t, at("1"))
	}
}

// A pod counts as there only after its quarantine, and the clients' list has every pod.
func TestTheManifestWaitsForTheQuarantine(t *testing.T) {
	t.Parallel()
	manifest, page := textOf(t, deploy+"kubernetes.yaml"), textOf(t, "../../docs/kubernetes.md")
	number := func(after, name string) int {
		_, rest, found := strings.Cut(manifest, after)
		require.True(t, found, after)
		match := regexp.MustCompile(`\b` + name + `: (\d+)`).FindStringSubmatch(rest)
		require.NotNil(t, match, name)
		n, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		return n
	}
	const quarantine = 31 // s, MaxTTL + NodeTimeout + MaxClockSkew + ClockBand, as docs/operations.md says
	require.Contains(t, textOf(t, "../../docs/operations.md"), "It lasts `MaxTTL` + `NodeTimeout` + `MaxClockSkew` + `ClockBand`: about "+strconv.Itoa(quarantine)+" s")
	for _, wait := range []int{number("spec:", "minReadySeconds"), number("readinessProbe:", "initialDelaySeconds")} {
		require.Greater(t, wait, quarantine+10)
		require.Contains(t, page, strconv.Itoa(wait))
	}
	silent := number("livenessProbe:", "periodSeconds") * number("livenessProbe:", "failureThreshold")
	require.Equal(t, 2*time.Minute, time.Duration(silent)*time.Second)
	require.Equal(t, 1, number("PodDisruptionBudget", "maxUnavailable"))
	require.Contains(t, manifest, "clusterIP: None")
	require.NotContains(t, strings.ToLower(manifest), "initcontainers")

	require.Equal(t, 3, number("StatefulSet", "replicas"))
	require.Contains(t, page, `redlock-%s.redlock.redlock.svc.cluster.local\n" 0 1 2 |`)
	for _, name := range []string{"redlock-conf", "redlock-users"} {
		require.Contains(t, manifest, "name: "+name)
		require.Contains(t, page, " "+name+" --from-file=")
	}
	for _, file := range []string{"kubernetes.yaml", "kubernetes-job.yaml"} {
		require.Contains(t, textOf(t, "../../docs/operations.md"), "deploy/"+file)
	}
}

// secretMode returns with which rights the file of a Secret is mounted.
func secretMode(t *testing.T, manifest string) os.FileMode {
	match := regexp.MustCompile(`\bdefaultMode: (0\d+)`).FindStringSubmatch(manifest)
	if match == nil {
		return 0o644 // the default of Kubernetes
	}
	mode, err := strconv.ParseUint(match[1], 8, 32)
	require.NoError(t, err)
	return os.FileMode(mode)
}

// The command of the CronJob, as two pods of one tick run it.
func TestTheCronJobOfTheManifestRunsOnce(t *testing.T) {
	t.Parallel()
	manifest := textOf(t, deploy+"kubernetes-job.yaml")
	require.Contains(t, manifest, "values: [75]")
	require.Contains(t, manifest, "secretName: redlock-nodes")
	servers, dir := startAsDeployed(t, 3), t.TempDir()
	list, job := filepath.Join(dir, "nodes"), filepath.Join(dir, "report.sh")
	require.NoError(t, os.WriteFile(list, []byte(strings.Join(urlsOf(servers), "\n")+"\n"), secretMode(t, manifest)))
	require.NoError(t, os.WriteFile(job, []byte("#!/bin/sh\necho ran $REDLOCK_KEY\n"), 0o700))
	code, _, errs := run(t, "enroll", "--only-new", "--nodes-file", list)
	require.Equal(t, 0, code, errs)

	command := listOf(t, manifest, "command")
	require.Equal(t, "redlock", command[0])
	args := strings.Split(strings.NewReplacer("/etc/redlock/nodes", list, "/opt/report.sh", job).Replace(strings.Join(command[1:], "\n")), "\n")
	args = slices.Insert(args, 1, "--node-timeout=1s") // for a busy machine
	code, out, errs := run(t, args...)
	require.Equal(t, 0, code, errs)
	require.Equal(t, "ran report\n", out)
	require.Empty(t, errs, "each tick would have it in its log")
	code, out, errs = run(t, args...)
	require.Equal(t, 75, code, errs)
	require.Empty(t, out)
}
