//go:build unix

package main_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

var do = fleettest.Tell

// talkers are the commands that talk to nodes, each with valid arguments.
func talkers() map[string][]string {
	return map[string][]string{
		"run": {"run", "--wait=0", "lock-name", "--", "true"}, "inspect": {"inspect", "lock-name"},
		"release": {"release", "--force", "lock-name"}, "doctor": {"doctor"}, "enroll": {"enroll"},
		"bench": {"bench", "--seconds=0.05"}, "top": {"top", "--count=1", "lock-name"},
	}
}

// with inserts flags after the name of the command.
func with(command []string, flags ...string) []string {
	return append(append([]string{command[0]}, flags...), command[1:]...)
}

// The rights are those of docs/operations.md, but for a prefix instead of all keys.
func TestEveryCommandWorksUnderTheDocumentedRightsOfAPrefix(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	rights := regexp.MustCompile(`(?m)^user locker on >SECRET ~\* (.*)$`).FindSubmatch(text)
	require.NotNil(t, rights, "the rights in docs/operations.md")
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	var urls []string
	for _, n := range f.Nodes() {
		rules := []string{"on", ">SECRET", "~lock:*", "~redlock:*"}
		fleettest.SetUser(t, n, "locker", append(rules, strings.Fields(string(rights[1]))...)...)
		urls = append(urls, strings.Replace(n.URL(), "redis://", "redis://locker:SECRET@", 1))
	}
	file := filepath.Join(t.TempDir(), "nodes")
	require.NoError(t, os.WriteFile(file, []byte("# the nodes\n"+strings.Join(urls[:2], ",")+"\n\n"+urls[2]+"\n"), 0o600))
	code, _, errs := run(t, "enroll", "--nodes-file", file, "--prefix=lock:")
	require.Equal(t, 0, code, errs)
	for name, command := range talkers() {
		code, out, errs := run(t, with(command, "--nodes-file", file, "--prefix=lock:", "--max-ttl=30s", "--ttl=8s", "--node-timeout=500ms")...)
		assert.Equal(t, 0, code, "%s: %s%s", name, out, errs)
	}
	code, out, _ := run(t, "doctor", "--nodes-file", file, "--prefix=other:")
	assert.Equal(t, 1, code, out)

	p := start(t, strings.NewReader(strings.Join(urls, "\n")), nil, "inspect", "--nodes-file=-", "--prefix=lock:", "k")
	code, out, errs = p.wait()
	assert.Equal(t, 0, code, errs)
	assert.Contains(t, out, "k is free")
}

func TestTheFlagsOfTheClientReachIt(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	code, out, errs := run(t, "enroll", nodes(f), "--max-ttl=5s", "--prefix=p:", "--no-fence")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "; leases of up to 5s")
	code, out, errs = run(t, "run", nodes(f), "--max-ttl=5s", "--prefix=p:", "--no-fence", "--kill-after=1s", "k", "--", "sh", "-c",
		`echo "fence $REDLOCK_FENCE"; exec "$0" inspect --json --no-fence --max-ttl 5s "$1" --prefix p: k`, binary, nodes(f))
	require.Equal(t, 0, code, errs)
	first, rest, _ := strings.Cut(out, "\n")
	require.Equal(t, "fence 0", first)
	var l struct {
		State           string
		RemainingMillis int `json:"remaining_millis"`
	}
	require.NoError(t, json.Unmarshal([]byte(rest), &l))
	require.Equal(t, "held", l.State)
	require.LessOrEqual(t, l.RemainingMillis, 5000, "the usual TTL is above --max-ttl")
	code, out, _ = run(t, "doctor", nodes(f), "--durable", "--max-ttl=5s")
	require.Equal(t, 1, code)
	require.Contains(t, out, "appendonly")
}

// A flag that is given counts, also where its value is what a client without a configuration has.
func TestAFlagThatIsGivenTheZeroValueIsNotDropped(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	code, _, errs := run(t, "enroll", nodes(f), "--prefix=p:", "--durable", "--no-fence", "--max-ttl=20s")
	require.Equal(t, 0, code, errs)
	for _, c := range []struct{ flag, differs, remedy, change string }{
		{"--prefix=", `Prefix is "" here and "p:" there`, `give --prefix "p:"`, `--prefix ""`},
		{"--durable=false", "Durable is false here and true there", "give --durable=true", "--durable=false"},
		{"--no-fence=false", "NoFence is false here and true there", "give --no-fence=true", "--no-fence=false"},
	} {
		code, out, errs := run(t, "run", nodes(f), c.flag, "k", "--", "echo", "ran")
		require.Equal(t, 64, code, "%s: %s", c.flag, errs)
		require.Empty(t, out)
		require.Contains(t, errs, c.differs)
		require.Contains(t, errs, c.remedy)
		require.Contains(t, errs, "`redlock enroll --change-config "+c.change+"`")
		_, out, _ = run(t, "inspect", nodes(f), c.flag, "k")
		require.Contains(t, out, c.differs)

		code, _, errs = run(t, "enroll", "--change-config", nodes(f), c.flag)
		require.Equal(t, 64, code)
		require.Contains(t, errs, "it changes on all: "+strings.Fields(c.differs)[0]+" from ")
		code, _, errs = run(t, "enroll", "--change-config", "--yes", nodes(f), c.flag)
		require.Equal(t, 0, code, errs)
		code, out, errs = run(t, "run", nodes(f), "--wait=0", c.flag, "k", "--", "echo", "ran")
		require.Equal(t, 0, code, errs)
		require.Equal(t, "ran\n", out)
	}
	config := do(t, f.Nodes()[0], "GET", "redlock:config").([]byte)
	for _, line := range []string{`Prefix ""`, "Durable false", "NoFence false", "MaxTTL 20000ms"} {
		require.Contains(t, string(config), line)
	}
}

// With --json, a failure is reported as JSON too.
func TestFailuresAreReportedInJSON(t *testing.T) {
	t.Parallel()
	for name, command := range talkers() {
		for kind, c := range map[string]struct {
			code  int
			flags []string
		}{
			"no-quorum": {69, []string{"--nodes=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"}},
			"usage":     {64, nil},
			"bad flag":  {64, []string{"--nope"}},
			"bad node":  {64, []string{"--nodes=http://a"}},
			"negative":  {64, []string{"--nodes=embedded", "--ttl=-1s"}},
		} {
			if name == "doctor" && kind == "no-quorum" {
				kind, c.code = "no-vote", 1
			}
			code, out, errs := run(t, with(command, append([]string{"--json"}, c.flags...)...)...)
			assert.Equal(t, c.code, code, "%s %s: %s%s", name, kind, out, errs)
			if name == "run" { // its standard output belongs to the command
				out, errs = errs, out
			}
			assert.Empty(t, errs, name)
			var failure struct{ Error, Kind string }
			require.NoError(t, json.Unmarshal([]byte(out), &failure), "%s %s: one line of JSON: %q", name, kind, out)
			assert.NotEmpty(t, failure.Error)
			if c.code == 64 {
				kind = "usage"
			}
			assert.Equal(t, kind, failure.Kind, name)
		}
	}
	for flags, asJSON := range map[string]bool{"--json=1": true, "--json=T": true, "--json=false": false, "--json --json=0": false} {
		code, out, errs := run(t, with([]string{"doctor"}, append(strings.Fields(flags), "--nodes=http://a")...)...)
		assert.Equal(t, 64, code, flags)
		assert.Equal(t, asJSON, errs == "" && json.Valid([]byte(out)), "%s: %s%s", flags, out, errs)
	}
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	lease, err := newClient(t, f).Mutex("k").Acquire(t.Context())
	require.NoError(t, err)
	code, _, errs := run(t, "run", nodes(f), "--node-timeout=3s", "--json", "--wait=0", "k", "--", "true")
	assert.Equal(t, 75, code)
	assert.Contains(t, errs, `"kind":"held"`)
	require.NoError(t, lease.Release(t.Context()))
}

func TestWrongUsageIsOneLineAnd64InEveryCommand(t *testing.T) {
	t.Parallel()
	lines := []string{"inspect", "inspect --nodes a:1", "release k", "release --force --token=x k", "release --force", "doctor now", "enroll now", "bench now",
		"bench --nodes embedded --seconds 0", "demo now", "demo --nope", "dance", "run", "run k --", "run --at-least -1s k -- true",
		"run --semaphore 0 k -- true", "run --read --semaphore 2 k -- true", "run --read k l -- true", "run --read --at-least 1s k -- true",
		"inspect --nodes embedded redlock:fence", "doctor --nodes redis://a?database=3"}
	for name, command := range talkers() {
		for _, flags := range [][]string{nil, {"--nope"}, {"--nodes=http://a"}, {"--nodes=a:1,a:1"}, {"--nodes=a:1", "--nodes-file=x"},
			{"--nodes-file=/nonexistent"}, {"--nodes-file=/dev/null"}, {"--nodes=embedded", "--ttl=1ms"}, {"--nodes=embedded", "--max-ttl=-1s"},
			{"--nodes=embedded", "--ttl=40s"}, {"--nodes=embedded", "--node-timeout=9s"}, {"--ttl=x"}} {
			_ = name
			lines = append(lines, strings.Join(with(command, flags...), " "))
		}
	}
	for _, line := range lines {
		code, out, errs := run(t, strings.Fields(line)...)
		if line == "inspect --nodes a:1" {
			line += " (no KEY)"
		}
		assert.Equal(t, 64, code, "%s: %s%s", line, out, errs)
		assert.Empty(t, out, line)
		assert.Regexp(t, `^redlock: [^\n]+\n$`, errs, line)
	}
}

// An operation may have succeeded where only its report could not be written.
func TestAnOutputThatCannotBeWrittenIsNoWrongUsage(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	for _, line := range []string{"inspect k", "inspect --json k", "doctor", "doctor --json", "enroll", "enroll --json", "release --force k",
		"release --force --json k", "bench --seconds=0.01", "bench --seconds=0.01 --json", "top --count=1 k"} {
		args := append([]string{"-c", `exec "$0" "$@" 1<"$0"`, binary}, with(strings.Fields(line), nodes(f), "--node-timeout=3s")...)
		code, _, errs := startProgram(t, nil, nil, "sh", args...).wait()
		assert.Equal(t, 1, code, "%s: %s", line, errs)
	}
}

func TestASignalEndsBenchAndTopAsTheySay(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	for sig, want := range endings {
		p := start(t, nil, nil, "bench", nodes(f), "--node-timeout=3s", "--seconds=60")
		eventually(t, "the first measurement", func() bool { return p.said() != "" })
		require.NoError(t, p.cmd.Process.Signal(sig))
		code, _, errs := p.wait()
		require.Equal(t, want, code, errs)
		require.Contains(t, errs, "redlock: interrupted by "+signalName(sig)+"\n")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	p := start(t, nil, nil, "top", "--nodes", silent.Addr().String(), "--node-timeout=4s", "k")
	conn, err := silent.Accept() // and so it waits for the answer
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, out, errs := p.wait()
	require.Equal(t, 0, code, errs)
	require.Empty(t, out+errs)
}
