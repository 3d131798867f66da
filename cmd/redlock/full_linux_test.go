package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// Whoever redirects the output to a disk that is full learns that it is not there, once, also with --json.
func TestAnOutputThatCannotBeWrittenIsSaid(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"chaos list": 1,
		"chaos matrix --fleet embedded --scenario client-clock":                           2,
		"chaos matrix --fleet embedded --scenario client-clock --json":                    2,
		"chaos scoreboard --fleet embedded --scenario control --subject getset --seeds 1": 2,
		"bench --nodes embedded --node-timeout 3s --seconds 0.05 --json":                  1,
		"top --nodes embedded --count 1 --json":                                           1,
		"version --json":                                                                  1,
	} {
		args := append([]string{"-c", `exec "$0" "$@" >/dev/full`, binary}, strings.Fields(line)...)
		code, _, errs := startProgram(t, nil, nil, "sh", args...).wait()
		require.Equal(t, want, code, "%s: %s", line, errs)
		require.Equal(t, 1, strings.Count(errs, "no space left"), "%s: %s", line, errs)
	}
}

func TestAHistoryThatCannotBeWrittenIsSaidOnce(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	require.NoError(t, os.Symlink("/dev/full", filepath.Join(out, "history.jsonl")))
	code, stdout, errs := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "control", "--seconds", "1", "--clients", "2",
		"--beside", "none", "--out", out)
	require.Equal(t, 2, code, errs)
	require.Equal(t, 1, strings.Count(stdout+errs, "no space left"), "%s%s", stdout, errs)
}

// As in a pipe that ends after the first line, which gives redlock a SIGPIPE: the lock must be released all the same.
func TestALockIsReleasedAlthoughNobodyReadsWhoHeldIt(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	hold(t, newClient(t, f), "k")
	code, _, errs := startProgram(t, nil, nil, "sh", "-c", `exec "$0" "$@" >/dev/full`, binary, "release", "--force", nodes(f), "k").wait()
	require.Equal(t, 1, code, errs)
	require.Contains(t, errs, "no space left")
	code, out, errs := run(t, "inspect", nodes(f), "k")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "k is free")
}

// The exit code says what came of the command, and not that the report of it is missing: a command that has run must not be
// started again for that.
func TestAReportThatCannotBeWrittenLeavesTheExitCode(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	hold(t, newClient(t, f), "held")
	for line, want := range map[string]int{
		"free -- true":           0,
		"free -- sh -c exit\t3":  3,
		"--wait=0 held -- true":  75,
		"--wait=never k -- true": 64,
	} {
		args := []string{"-c", `exec "$0" "$@" 2>/dev/full`, binary, "run", "--json", "--node-timeout=3s", nodes(f)}
		for _, arg := range strings.Split(line, " ") {
			args = append(args, strings.ReplaceAll(arg, "\t", " "))
		}
		code, _, _ := startProgram(t, nil, nil, "sh", args...).wait()
		require.Equal(t, want, code, line)
	}
}
