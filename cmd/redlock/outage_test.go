//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// One node holds another configuration, and another is away. Without the second, the others would grant.
func TestAnOutageIsNoWrongUsage(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "enroll", "--nodes=127.0.0.1:1,127.0.0.1:2,"+f.URLs()[2], "--max-ttl=1m", "--yes")
	require.Equal(t, 69, code, errs)
	code, _, errs = run(t, "enroll", nodes(f), "--max-ttl=30s", "--yes")
	require.Equal(t, 64, code, errs)
	require.Contains(t, errs, "2 nodes enrolled: "+namesOf(f.Nodes()[:2])+"; not enrolled: "+namesOf(f.Nodes()[2:])+": this client is configured differently")
	code, _, errs = run(t, "run", nodes(f), "--wait=0", "k", "--", "true")
	require.Equal(t, 0, code, errs)
	require.NoError(t, f.Nodes()[1].Kill())
	for _, line := range []string{"run --wait=0 k -- true", "run --wait=1500ms k -- true", "bench --seconds=0.1"} {
		words := strings.Fields(line)
		code, _, errs := run(t, with(words, nodes(f), "--max-ttl=30s")...)
		assert.Equal(t, 69, code, "%s: %s", line, errs)
	}
}

// All nodes vote, and each refuses what the lock takes. Or so many that no quorum is left.
func TestAWaitForARightThatIsMissingSaysSo(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "default", "-set")
	}
	for _, away := range []int{0, 1} {
		for _, n := range f.Nodes()[:away] {
			require.NoError(t, n.Kill())
		}
		p := start(t, nil, nil, "run", nodes(f), "k", "--", "true")
		eventually(t, "a line", func() bool { return p.said() != "" })
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		code, _, errs := p.wait()
		require.Equal(t, 143, code)
		require.Contains(t, errs, "waiting (--wait forever): no quorum of nodes: acquire")
		require.Contains(t, errs, "; https://github.com/quorumlock/redlock/blob/main/docs/operations.md has the rights that the user needs")
	}
}

func TestARunInAnOutageWaitsForAsLongAsItSays(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	everyNode(t, f, (*fleet.Node).Pause)
	// To ask once takes some six seconds. Another time would end after twelve.
	code, _, errs := run(t, "run", nodes(f), "--json", "--node-timeout=1500ms", "--wait=7s", "k", "--", "true")
	everyNode(t, f, (*fleet.Node).Resume)
	require.Equal(t, 69, code, errs)
	var report struct {
		Waited float64 `json:"waited_seconds"`
	}
	require.NoError(t, json.Unmarshal([]byte(errs), &report))
	require.GreaterOrEqual(t, report.Waited, 7.0)
	require.Less(t, report.Waited, 11.0)
}

// Two of three nodes are away when it begins. Why is said once: while it waits, or else at the end.
func TestARunThatBeginsInAnOutageNamesTheNodesOnce(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Kill())
	}
	why := "too few nodes answer (1 of 3, and it takes 2): " + namesOf(f.Nodes()[1:]) + ": connection refused; redlock doctor says why and what to do"
	for wait, want := range map[string]string{
		"0":     "redlock: " + why + "\n",
		"100ms": "redlock: " + why + " (--wait 100ms)\n",
		"3s":    "redlock: waiting (--wait 3s): " + why + "\nredlock: too few nodes answered (--wait 3s)\n",
	} {
		code, _, errs := run(t, "run", nodes(f), "--wait", wait, "k", "--", "true")
		require.Equal(t, 69, code, errs)
		require.Equal(t, want, errs)
	}
	code, _, errs := run(t, "run", nodes(f), "--json", "--wait=3s", "k", "--", "true")
	require.Equal(t, 69, code, errs)
	var report struct{ Error string }
	require.NoError(t, json.Unmarshal([]byte(errs), &report), errs)
	require.Equal(t, why+" (--wait 3s)", report.Error)
}

// The nodes may hold a quorum that is larger than a majority.
func TestTheQuorumIsTheOneThatTheNodesHold(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), Quorum: 3})
	require.NoError(t, err)
	require.NoError(t, client.Enroll(t.Context()))
	require.NoError(t, client.Close())
	code, out, _ := run(t, "doctor", nodes(f))
	require.Equal(t, 0, code)
	require.Contains(t, out, "✓ 3 of 3 nodes vote, and it takes 3: a quorum")
	require.NoError(t, f.Nodes()[0].Kill())
	code, out, _ = run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	require.Contains(t, out, "✗ 2 of 3 nodes vote, and it takes 3: no quorum")
	code, _, errs := run(t, "run", nodes(f), "--wait=6s", "k", "--", "true")
	require.Equal(t, 69, code)
	require.Contains(t, errs, "2 of 3 nodes vote, and it takes 3; ")
	require.Equal(t, 2, strings.Count(errs, "; redlock doctor says why and what to do\n"), errs)
}

// The outage begins while bench measures.
func TestABenchThatAnOutageEndsSaysThatThereIsNoQuorum(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	p := start(t, nil, nil, "bench", nodes(f), "--seconds=60")
	eventually(t, "the first measurement", func() bool { return strings.Contains(p.said(), "one goroutine") })
	for _, n := range f.Nodes()[:2] {
		require.NoError(t, n.Kill())
	}
	code, _, errs := p.wait()
	require.Equal(t, 69, code, errs)
	require.Regexp(t, `(?m)^redlock: no quorum of nodes: (acquire|release) .*need 2`, errs)
}

// A node restarted without its data while the others are away: nobody can say whether it forgot anything.
func TestDoctorSaysWhatToDoAboutANodeThatNothingCanJudge(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	everyNode(t, f, (*fleet.Node).Kill)
	require.NoError(t, f.Nodes()[0].Start(t.Context(), fleet.Empty))
	code, out, errs := run(t, "doctor", nodes(f), "--max-ttl=30s")
	require.Equal(t, 1, code, errs)
	require.Contains(t, out, "nothing can judge that: too few other nodes answer, or their clocks disagree; mend the other nodes that do not answer")
	require.Contains(t, out, "; its quarantine neither begins nor ends before that\n")
	require.Regexp(t, `(?m)^`+namesOf(f.Nodes()[:1])+` +no +master .* \?$`, out)
}

// The command ends while the nodes are away: its exit code counts, and the lock expires by itself.
func TestAReleaseWithoutAQuorumIsTold(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		t.Run(fmt.Sprint("json=", asJSON), func(t *testing.T) {
			f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
			begun, end := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "end")
			p := start(t, nil, nil, "run", nodes(f), fmt.Sprint("--json=", asJSON), "k", "--",
				"sh", "-c", `touch "$0"; until [ -e "$1" ]; do sleep 0.05; done; exit 7`, begun, end)
			eventually(t, "the command", func() bool { _, err := os.Stat(begun); return err == nil })
			everyNode(t, f, (*fleet.Node).Kill)
			require.NoError(t, os.WriteFile(end, nil, 0o600))
			code, _, errs := p.wait()
			require.Equal(t, 7, code, errs)
			const told = "it is not known whether the lock was released; if not, it expires by itself: "
			if !asJSON {
				require.Contains(t, errs, told)
				return
			}
			var report struct{ Reason, Detail, Error string }
			require.NoError(t, json.Unmarshal([]byte(errs), &report), errs)
			require.Equal(t, "exited", report.Reason)
			require.Contains(t, report.Detail, told)
			require.Empty(t, report.Error, "the command did what it should")
		})
	}
}
