//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A log is a file to which commands append a line at each run.
type runLog string

func newRunLog(t *testing.T) runLog { return runLog(filepath.Join(t.TempDir(), "log")) }

func (l runLog) lines() (lines []string) {
	text, _ := os.ReadFile(string(l))
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(line, "\n") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// count is how many lines begin so.
func (l runLog) count(prefix string) (n int) {
	for _, line := range l.lines() {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

func (l runLog) await(t *testing.T, prefix string, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " of ", prefix), func() bool { return l.count(prefix) >= n })
}

// lead starts redlock run --every with a shell script, which has the log as $0.
func lead(t *testing.T, f *fleet.Fleet, log runLog, key, script string, flags ...string) *process {
	t.Helper()
	args := append([]string{"run", nodes(f), "--node-timeout=1s"}, flags...)
	return start(t, nil, nil, append(args, key, "--", "bash", "-c", script, string(log))...)
}

// Two hosts run the same line. One of them runs the command, with one token; when it is killed, the other takes over.
func TestOneHostRunsTheCommandAgainAndAgainUntilItDies(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	hosts := map[string]*process{}
	for _, host := range []string{"one", "two"} {
		hosts[host] = lead(t, f, log, "job", "echo "+host+" $REDLOCK_FENCE $REDLOCK_KEY >>\"$0\"", "--every=100ms")
	}
	log.await(t, "", 5)
	first, second := "one", "two"
	if log.count("two") > 0 {
		first, second = second, first
	}
	eventually(t, "the other to wait", func() bool { return strings.Contains(hosts[second].said(), "waiting") })
	require.Zero(t, log.count(second))
	require.NoError(t, hosts[first].cmd.Process.Kill())
	hosts[first].wait()
	log.await(t, second, 3)
	require.Contains(t, hosts[second].said(), "redlock: waiting (--wait forever): job is held by ")

	require.NoError(t, hosts[second].cmd.Process.Signal(syscall.SIGTERM))
	hosts[second].wait()
	of, tokens := "", map[string]string{}
	for _, line := range log.lines() {
		words := strings.Fields(line)
		require.Len(t, words, 3)
		require.Equal(t, "job", words[2])
		require.False(t, words[0] == first && of == second, "they take turns: %v", log.lines())
		of = words[0]
		require.Contains(t, []string{"", words[1]}, tokens[of], "one lease has one token")
		tokens[of] = words[1]
	}
	require.Greater(t, tokens[second], tokens[first], "both have as many digits")
	lease, err := newClient(t, f).Mutex("job").TryAcquire(t.Context()) // it was released
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

func TestACommandThatFailsRunsAgain(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	const script = `echo run >>"$0"; case $(wc -l <"$0") in 1) exit 3;; 2) kill -KILL $$;; 3) exit 76;; 4) exit 75;; esac`
	p := lead(t, f, log, "plain", script, "--every=50ms")
	log.await(t, "run", 6)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	_, _, errs := p.wait()
	lines := strings.Split(errs, "\n")
	for i, how := range []string{"exit code 3", "signal 9", "exit code 76", "exit code 75"} {
		require.Regexp(t, `^redlock: the command failed \(`+how+`\); it runs again in [0-9.]+m?s$`, lines[i])
	}
	require.NotContains(t, strings.Join(lines[4:], ""), "failed")

	log = newRunLog(t)
	p = lead(t, f, log, "json", script, "--every=50ms", "--json")
	log.await(t, "run", 6)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, _, errs := p.wait()
	var r struct {
		Runs, Fence int
		RunsFailed  int     `json:"runs_failed"`
		ExitCode    int     `json:"exit_code"`
		Held        float64 `json:"held_seconds"`
	}
	require.NoError(t, json.Unmarshal([]byte(errs), &r), errs)
	require.Contains(t, []int{log.count("run"), log.count("run") + 1}, r.Runs, "the last may have ended before it wrote anything")
	require.GreaterOrEqual(t, r.RunsFailed, 4)
	require.Equal(t, code, r.ExitCode)
	require.Positive(t, r.Fence)
	require.Positive(t, r.Held)
}

// As in a run without --every. Then it waits for the lock again, and gets a new token.
func TestALeaderThatLostItsLeaseEndsTheCommandAndWaitsAgain(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	const script = `trap 'echo "got TERM" >>"$0"; exit 5' TERM; echo began "$REDLOCK_FENCE" >>"$0"; while :; do sleep 0.02; done`
	p := lead(t, f, log, "job", script, "--every=100ms", "--ttl=9s", "--kill-after=4s")
	log.await(t, "began", 1)
	spread(t, f, "job")
	code, _, errs := run(t, "release", "--force", "--node-timeout=3s", nodes(f), "job")
	require.Equal(t, 0, code, errs)
	log.await(t, "began", 2)
	require.Regexp(t, `(?m)^redlock: the lock was taken away: [^\n]*: the command was told to end, and ended [^\n]*; waiting for the lock again$`, p.said()) // a shell may say that its sleep was terminated
	require.Equal(t, []string{"began", "got TERM", "began"}, []string{strings.Fields(log.lines()[0])[0], log.lines()[1], strings.Fields(log.lines()[2])[0]})
	require.Less(t, log.lines()[0], log.lines()[2], "a new lease has a larger token")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, _, errs = p.wait()
	require.Equal(t, 5, code, errs)
}

// Where no command runs, there is nothing to end.
func TestALeaderThatLosesItsLeaseBetweenTwoRunsWaitsAgain(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p := lead(t, f, log, "job", `echo run >>"$0"`, "--every=10m", "--ttl=9s")
	log.await(t, "run", 1)
	code, _, errs := run(t, "release", "--force", "--node-timeout=3s", nodes(f), "job")
	require.Equal(t, 0, code, errs)
	log.await(t, "run", 2)
	require.Regexp(t, `^redlock: [^\n]*(taken away|lease was lost)[^\n]* between two runs; waiting for the lock again\n`, p.said())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, _, errs = p.wait()
	require.Contains(t, []int{143, 0}, code, errs) // 0: the second command was ending, by itself
}

// Each wait is as long as --wait says. Nobody leads after it.
func TestALeaderWaitsNoLongerThanItIsToldAgain(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p := lead(t, f, log, "job", `echo run >>"$0"`, "--every=10m", "--ttl=9s", "--wait=6s")
	log.await(t, "run", 1)
	other := make(chan *redlock.Lease, 1)
	wait(t, f, "job", other)
	eventually(t, "the other to wait", func() bool {
		_, out, _ := run(t, "top", "--count=1", nodes(f), "job")
		return strings.Contains(out, "waiters=1")
	})
	code, _, errs := run(t, "release", "--force", "--node-timeout=3s", nodes(f), "job") // it is reserved for the other
	require.Equal(t, 0, code, errs)
	lease := <-other
	require.NotNil(t, lease)
	code, _, errs = p.wait()
	require.Equal(t, 75, code, errs)
	require.Contains(t, errs, "waiting for the lock again\n")
	require.Regexp(t, `\(--wait 6s\)\n$`, errs)
	require.NoError(t, lease.Release(t.Context()))
}

func TestASignalEndsALeaderAfterItsCommand(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for sig, want := range endings {
		name := strings.TrimPrefix(signalName(sig), "SIG")
		// The command runs: it gets the signal, and ends when it wants to.
		log := newRunLog(t)
		p := lead(t, f, log, "running-"+name, `trap 'echo "got signal" >>"$0"; exit 9' `+name+`; echo run >>"$0"; while :; do sleep 0.02; done`, "--every=50ms")
		log.await(t, "run", 1)
		require.NoError(t, p.cmd.Process.Signal(sig))
		code, _, errs := p.wait()
		assert.Equal(t, 9, code, "%s: %s", name, errs)
		assert.NotContains(t, errs, "redlock") // a shell may say how its sleep ended
		assert.Equal(t, []string{"run", "got signal"}, log.lines(), name)

		// None runs.
		log = newRunLog(t)
		p = lead(t, f, log, "pausing-"+name, `echo run >>"$0"; exit 3`, "--every=10m")
		eventually(t, "the end of the command", func() bool { return strings.Contains(p.said(), "it runs again in ") })
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGUSR1)) // nobody is there to get it
		require.NoError(t, p.cmd.Process.Signal(sig))
		code, _, errs = p.wait()
		assert.Equal(t, want, code, "%s: %s", name, errs)
		assert.Regexp(t, `^redlock: the command failed [^\n]*\nredlock: interrupted by SIG`+name+` between two runs\n$`, errs)
		assert.Equal(t, []string{"run"}, log.lines(), name)

		for _, key := range []string{"running-", "pausing-"} {
			lease, err := newClient(t, f).Mutex(key + name).TryAcquire(t.Context()) // it was released
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
	}
}

func TestARunThatASignalEndedCountsAsFailed(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p := lead(t, f, log, "job", `echo run >>"$0"; while :; do sleep 0.02; done`, "--every=50ms", "--json")
	log.await(t, "run", 1)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, _, errs := p.wait()
	require.Equal(t, 143, code, errs)
	require.Contains(t, errs, `"runs":1,"runs_failed":1`)
}

// Runs never overlap.
func TestACommandThatTakesLongerThanTheIntervalIsNotRunTwiceAtOnce(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	p := lead(t, f, log, "job", `echo "began $(date +%s%N)" >>"$0"; sleep 0.6; echo ended >>"$0"`, "--every=500ms")
	log.await(t, "ended", 3)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.wait()
	var began []int64
	for i, line := range log.lines() {
		if i%2 == 1 {
			require.Equal(t, "ended", line, "%v", log.lines())
			continue
		}
		nanos, err := strconv.ParseInt(strings.TrimPrefix(line, "began "), 10, 64)
		require.NoError(t, err)
		began = append(began, nanos)
	}
	for i, at := range began[1:] {
		require.GreaterOrEqual(t, time.Duration(at-began[i]), 600*time.Millisecond)
	}
}

func TestACommandThatCannotBeExecutedEndsALeader(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/no/such\n"), 0o755))
	code, _, errs := run(t, "run", nodes(f), "--every=1m", "k", "--", script)
	require.Equal(t, 126, code, errs)
	code, _, errs = run(t, "run", nodes(f), "--wait=0", "k", "--", "true")
	require.Equal(t, 0, code, errs)
	code, _, _ = run(t, "run", nodes(f), "--every=1m", "k", "--", "no-such-command-anywhere")
	require.Equal(t, 127, code)
}

func TestWhatMakesNoSenseWithEveryIsRefused(t *testing.T) {
	t.Parallel()
	for flags, said := range map[string]string{
		"--every=0s": "--every 0s: give more than 0", "--every=-1s": "--every -1s: give more than 0", "--every=1m --max-hold=1m": "--max-hold",
		"--every=1m --at-least=1s": "--at-least", "--every=1m --read": "--read", "--every=1m --semaphore=2": "--semaphore",
	} {
		code, out, errs := run(t, append(append([]string{"run", "--nodes=embedded"}, strings.Fields(flags)...), "k", "--", "true")...)
		require.Equal(t, 64, code, flags)
		require.Empty(t, out)
		require.Regexp(t, `^redlock: [^\n]*`+regexp.QuoteMeta(said)+`[^\n]*\n$`, errs)
	}
}
