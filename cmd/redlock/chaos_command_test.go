//go:build unix

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

// pythonLock is the command that is the lock in Python.
func pythonLock(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../examples/chaos-python/lock.py")
	require.NoError(t, err)
	return required.Python(t) + " '" + path + "'"
}

func TestALockInPythonIsTestedLikeAnyOther(t *testing.T) {
	t.Parallel()
	fleettest.Require(t, fleet.Process)
	lock := pythonLock(t)
	code, stdout, stderr := run(t, "chaos", "run", "--scenario", "control,failover,stopped-holder,dead-holder,client-clock",
		"--subject-command", lock, "--beside", "none", "--seconds", "1", "--ttl", "2s", "--clients", "4", "--json")
	require.Equal(t, 2, code, stdout+stderr) // client-clock was asked for and cannot run
	r := parseReport(t, []byte(stdout))
	require.Equal(t, "not run: client-clock", r.Error)
	require.Len(t, r.Runs, 4)
	for _, one := range r.Runs {
		require.Equal(t, "safe", one.Verdict, one.Scenario)
		require.Equal(t, lock, one.Subject)
		require.Positive(t, one.Acquired, one.Scenario)
	}
	require.Contains(t, stderr, "NOT CHECKED: fencing tokens: the subject has none\n")
	require.Len(t, r.LeftOut, 1)
	require.Equal(t, "client-clock", r.LeftOut[0].Scenario)
	_, flag, _ := strings.Cut(r.Runs[0].Replay, "--subject-command ")
	flag, _, _ = strings.Cut(flag, " --fleet")
	_, same, _ := shell(t, "printf %s "+flag, nil)
	require.Equal(t, lock, same, "the line that repeats the run has the same command")
}

func TestAWrongLockInPythonIsFoundOut(t *testing.T) {
	t.Parallel()
	fleettest.Require(t, fleet.Process)
	for mistake, play := range map[string]string{"single": "failover", "no-validity": "stopped-holder"} {
		for ttl := 1; ; ttl *= 2 { // a busy machine may be too slow for the second holder
			code, stdout, stderr := run(t, "chaos", "run", "--scenario", play, "--subject-command", pythonLock(t)+" "+mistake,
				"--beside", "none", "--seconds", "1", "--ttl", fmt.Sprintf("%ds", ttl), "--clients", "3")
			if code == 1 {
				require.Contains(t, stdout, "unsafe")
				require.Contains(t, stdout, "both believed that they held")
				break
			}
			require.Less(t, ttl, 8, stdout+stderr)
		}
	}
}

// One line says why: it could not start, or it ended in the middle and says nothing any more, so that it looks safe.
func TestACommandThatIsNoLockExitsTwoWithTheReason(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"/nonexistent/lock --x": "not found",
		"echo hello":            `the command wrote the line "hello"`,
		"for i in 1 2 3 4 5 6 7 8 9 10; do read -r line; echo \"$line\"; done | " + pythonLock(t): "the command ended by itself",
	} {
		code, stdout, stderr := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "control", "--subject-command", command,
			"--beside", "none", "--seconds", "5", "--clients", "2", "--json")
		require.Equal(t, 2, code, stdout+stderr)
		require.Contains(t, parseReport(t, []byte(stdout)).Error, want)
		why := 0
		for line := range strings.Lines(stderr) {
			if strings.Contains(line, "the command ") {
				why++
			}
		}
		require.Equal(t, 1, why, stderr)
	}
}

func TestWrongUsageOfASubjectCommandIsNamed(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--subject and --subject-command: give one of them": {"--subject", "redlock", "--subject-command", "true"},
		"--subject-command: it is empty":                    {"--subject-command", " "},
		"--subject-command: it has a control character":     {"--subject-command", "a\nb"},
	} {
		code, stdout, stderr := run(t, append([]string{"chaos", "run", "--fleet", "embedded"}, args...)...)
		require.Equal(t, 64, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
		require.Equal(t, 1, strings.Count(stderr, "\n"))
	}
}

func TestAnInterruptedRunLeavesNoCommandBehind(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	command := fmt.Sprintf("sleep 1000 <&- >&- 2>&- & echo $! >>'%s'; %s", pids, pythonLock(t))
	for _, play := range []string{"control", "stopped-holder"} { // that one has a client in a process of its own
		require.NoError(t, os.WriteFile(pids, nil, 0o600))
		p := start(t, nil, nil, "chaos", "run", "--fleet", "embedded", "--scenario", play, "--subject-command", command,
			"--seconds", "60", "--ttl", "30s", "--clients", "2")
		started := func() []string {
			text, err := os.ReadFile(pids)
			require.NoError(t, err)
			return strings.Fields(string(text))
		}
		want := map[string]int{"control": 2, "stopped-holder": 3}[play]
		eventually(t, "the start of the commands", func() bool { return len(started()) == want })
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
		code, stdout, stderr := p.wait()
		require.Equal(t, 130, code, stdout+stderr)
		for _, text := range started() {
			pid, err := strconv.Atoi(text)
			require.NoError(t, err)
			eventually(t, "the end of "+text, func() bool { return !runs(pid) })
		}
	}
}

// runs reports whether the process runs. One that has ended, and that nobody has waited for, does not.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		return !strings.Contains(string(stat), ") Z ")
	}
	return syscall.Kill(pid, 0) == nil
}

// A wrong password in CI must not look like a safe lock. This lock works while the command tries it, and then never.
func TestALockThatGrantsNothingIsNotCalledSafe(t *testing.T) {
	t.Parallel()
	lock := `while read -r line; do id=${line#*:}; id=${id%%,*}; case $line in ` +
		`*chaos/lock*|*chaos/traffic*) echo "{\"id\":$id,\"error\":\"NOAUTH\"}";; ` +
		`*acquire*) echo "{\"id\":$id,\"ok\":true,\"lease\":\"$id\"}";; *) echo "{\"id\":$id,\"ok\":true}";; esac; done`
	code, stdout, stderr := run(t, "chaos", "run", "--fleet=embedded", "--scenario=control", "--seconds=1", "--clients=2",
		"--beside=none", "--subject-command", lock)
	require.Equal(t, 2, code, "%s%s", stdout, stderr)
	require.Contains(t, stdout, "unsure")
	require.Contains(t, stdout, "no acquire was granted")
}
