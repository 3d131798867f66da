//go:build unix

package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

func TestRun(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{})

	t.Run("passes the command's exit code on", func(t *testing.T) {
		for script, want := range map[string]int{
			"exit 0": 0, "exit 1": 1, "exit 64": 64, "exit 76": 76, "exit 255": 255,
			"kill -KILL $$": 137, "kill -TERM $$": 143, "kill -INT $$": 130,
		} {
			code, _, stderr := run(t, "run", nodes(f), "code", "--", "sh", "-c", script)
			assert.Equal(t, want, code, script)
			assert.Empty(t, stderr, script)
		}
	})
	t.Run("passes the standard streams through", func(t *testing.T) {
		code, stdout, stderr := start(t, strings.NewReader("in"), nil,
			"run", nodes(f), "streams", "--", "sh", "-c", "cat; echo err >&2").wait()
		assert.Equal(t, 0, code)
		assert.Equal(t, "in", stdout)
		assert.Equal(t, "err\n", stderr)
	})
	t.Run("takes the nodes from the environment, and gives the command its own", func(t *testing.T) {
		env := []string{"REDLOCK_NODES=" + strings.Join(f.URLs(), ",")}
		code, stdout, _ := start(t, nil, env, "run", "k1", "k2", "--", "sh", "-c",
			`printf '%s|%s|%s' "$REDLOCK_KEY" "$REDLOCK_FENCE" "$REDLOCK_TOKEN"`).wait()
		assert.Equal(t, 0, code)
		assert.Regexp(t, regexp.MustCompile(`^k1\nk2\|[1-9][0-9]*\|[0-9a-f]{32}:[0-9a-f]{8}:[^ ]+:sh$`), stdout)
	})
	t.Run("gives -- to the command where it is the second", func(t *testing.T) {
		_, stdout, _ := run(t, "run", nodes(f), "dashes", "--", "echo", "--", "--json")
		assert.Equal(t, "-- --json\n", stdout)
	})
	t.Run("renews the lease and releases it", func(t *testing.T) {
		t.Parallel()
		code, _, stderr := run(t, "run", nodes(f), "--ttl=4s", "--kill-after=500ms", "--node-timeout=1s", "renewed", "--", "sleep", "5")
		assert.Equal(t, 0, code, stderr)
		code, _, stderr = run(t, "run", nodes(f), "--wait=0", "--node-timeout=1s", "renewed", "--", "true")
		assert.Equal(t, 0, code, stderr)
	})
	t.Run("exits 75 where another holds the lock", func(t *testing.T) {
		lease, err := newClient(t, f).Mutex("held").Acquire(t.Context())
		require.NoError(t, err)
		for _, wait := range []string{"0", "200ms"} {
			code, stdout, stderr := run(t, "run", nodes(f), "--wait", wait, "held", "--", "echo", "ran")
			assert.Equal(t, 75, code)
			assert.Empty(t, stdout)
			assert.Regexp(t, `^redlock: held by another[^\n]*\n$`, stderr)
			assert.NotContains(t, stderr, lease.Token())
		}
	})
	t.Run("reports in JSON", func(t *testing.T) {
		code, _, stderr := run(t, "run", nodes(f), "--json", "a", "b", "--", "sh", "-c", "sleep 0.1; exit 3")
		assert.Equal(t, 3, code)
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(stderr), &r), stderr)
		assert.Equal(t, "a", r["key"])
		assert.Equal(t, []any{"a", "b"}, r["keys"])
		assert.EqualValues(t, 3, r["exit_code"])
		assert.Equal(t, "exited", r["reason"])
		assert.Greater(t, r["fence"], 0.0)
		assert.GreaterOrEqual(t, r["held_seconds"], 0.1)
		_, _, stderr = run(t, "run", nodes(f), "--json", "a")
		require.NoError(t, json.Unmarshal([]byte(stderr), &r), stderr)
		assert.Equal(t, []any{}, r["keys"])
	})
	t.Run("exits 76 when the lock was taken away", func(t *testing.T) {
		t.Parallel()
		p := start(t, nil, nil, "run", nodes(f), "--ttl=4s", "--kill-after=500ms", "--json", "gone", "--", "sleep", "20")
		spread(t, f, "gone")
		everyNode(t, f, func(n *fleet.Node) error {
			do(t, n, "DEL", "gone")
			return nil
		})
		code, _, stderr := p.wait()
		assert.Equal(t, 76, code)
		assert.Contains(t, stderr, `"reason":"lost"`)
	})
}

func TestRunSays126And127AsAShellDoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o644))
	garbage := filepath.Join(dir, "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte{0, 1, 2, 3}, 0o755))
	for name, want := range map[string]int{
		"no-such-command-anywhere": 127, filepath.Join(dir, "absent"): 127, plain: 126, dir: 126, garbage: 126,
	} {
		code, _, stderr := run(t, "run", "--nodes=embedded", "k", "--", name)
		assert.Equal(t, want, code, name)
		assert.Regexp(t, `^redlock: [^\n]+\n$`, stderr)
	}
}

func TestUsageErrorsExit64AndSayTheRemedy(t *testing.T) {
	t.Parallel()
	for line, remedy := range map[string]string{
		"run k true":                "run KEY -- CMD",
		"run -- true":               "no key",
		"run k --":                  "no command",
		"run k -- true":             "--nodes",
		"run --nope k -- true":      "--help",
		"run --wait soon k -- true": "forever",
		"run --wait -1s k -- true":  "forever",
		"run --max-ttl 2s --kill-after 2s k -- true":                   "--kill-after 900ms or less",
		"run --ttl 10ms --kill-after 0 k -- true":                      "100ms or more",
		"run --ttl 1ns k -- true":                                      "100ms or more",
		"run --ttl 99ms k -- true":                                     "100ms or more",
		"run --max-hold 99ms k -- true":                                "--max-hold 99ms is too short to end a command in; give 100ms or more",
		"run --max-hold 0 k -- true":                                   "--max-hold 0s: give more than 0",
		"run --nodes embedded --ttl 2s --kill-after 2s k -- true":      "--kill-after 900ms or less, or a longer --ttl, up to 30s",
		"run --nodes embedded --max-hold 3s --kill-after 2s k -- true": "--kill-after 2s is too long for --max-hold 3s: give --kill-after 1.35s or less, or a longer --max-hold",
		"run --at-least 20s --max-hold 10s k -- true":                  "--at-least 20s is longer than --max-hold 10s: give --at-least 10s or less, or a longer --max-hold",
		"run --permits 2 k -- true":                                    "give that too",
		"run --semaphore 2 --permits 3 k -- true":                      "--permits 3: give 1 to 2",
		"run --semaphore 2 --permits 0 k -- true":                      "--permits 0: give 1 to 2",
		"run --kill-after -1s k -- true":                               "negative",
		"run --nodes embedded --ttl 1m k -- true":                      "redlock: --ttl 1m0s is above MaxTTL (30s); raise MaxTTL on every client of these nodes and, while none holds a lock, on the nodes: redlock enroll --change-config --max-ttl 1m0s\n",
		"run --nodes embedded --at-least 4m k -- true":                 "redlock: --at-least 4m0s, plus what is added for a round and the clocks, is above MaxTTL (30s)",
		"run --nodes embedded --at-least 4m j -- true":                 "give 28.463s or less, or raise MaxTTL on every client of these nodes and, while none holds a lock, on the nodes: redlock enroll --change-config --max-ttl 4m4s\n",
		"run --nodes a:1,http://x#@y k -- true":                        "--nodes: the 2nd of the URLs: not a URL",
		"run --nodes a:1,a:1,a:1 k -- true":                            "one server has one vote",
		"run --nodes http://a,b:1,c:1 k -- true":                       "redis://",
		"run --nodes redis://a:1,unix://b,redis://c k -- true":         "three slashes",
		"run --nodes embedded --kill-after x k -- true":                "--help",
		"demo --seconds 0":                                             "1 to 3600",
		"demo now":                                                     "now",
		"dance":                                                        "dance",
	} {
		code, stdout, stderr := run(t, strings.Fields(line)...)
		assert.Equal(t, 64, code, line)
		assert.Empty(t, stdout, line)
		assert.Regexp(t, `^redlock: [^\n]+\n$`, stderr, line)
		assert.Contains(t, stderr, remedy, line)
	}
}

// Where a lease is short, so is the usual time between TERM and KILL: only what was asked for can be too long.
func TestAShortLeaseNeedsNoOtherFlag(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--ttl=2s", "--ttl=4s", "--max-ttl=3s", "--ttl=0", "--node-timeout=0"} {
		code, out, errs := run(t, "run", "--nodes=embedded", "--wait=5s", flag, "k", "--", "echo", "ran")
		require.Equal(t, 0, code, "%s: %s", flag, errs)
		require.Equal(t, "ran\n", out)
	}
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	code, _, errs := run(t, "enroll", nodes(f), "--change-config", "--yes", "--max-ttl=2s")
	require.Equal(t, 0, code, errs)
	code, _, errs = run(t, "run", nodes(f), "k", "--", "true") // the nodes decide how long a lease is
	require.Equal(t, 0, code, errs)
	code, _, errs = run(t, "run", nodes(f), "--kill-after=2s", "k", "--", "true")
	require.Equal(t, 64, code)
	require.Contains(t, errs, "--kill-after 2s is too long for --ttl 2s: give --kill-after 900ms or less\n", "no lease is longer there")
	code, _, errs = run(t, "run", nodes(f), "--kill-after=6s", "k", "--", "true")
	require.Equal(t, 64, code)
	require.Contains(t, errs, "--kill-after 6s is too long for --ttl 2s: give --kill-after 900ms or less\n", "not what the usual TTL allows")
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, url := range []string{
		"redis://user:hunter2@127.0.0.1:1", "redis://hunter2@127.0.0.1:1", "user:hunter2@127.0.0.1:1",
		"redis://user:hunter2/x@h:1", "redis://user:1/hunter2@h:1", "redis://user:1#hunter2@h:1", "redis://user:1?hunter2@h:1",
		"redis://user:hunter2 x@h:1", "redis://user:hunter2%zz@h:1", "http://user:hunter2@h:1", "redis://user:hunter2@h:x",
	} {
		for _, flags := range [][]string{{}, {"--json"}, {"--help"}} {
			args := append([]string{"run", "--wait=10ms"}, flags...)
			p := start(t, nil, []string{"REDLOCK_NODES=" + url + ",127.0.0.1:2,127.0.0.1:3"}, append(args, "k", "--", "true")...)
			code, stdout, stderr := p.wait()
			assert.NotContains(t, stdout+stderr, secret, url)
			if len(flags) == 0 {
				assert.Contains(t, []int{64, 69}, code, stderr)
			}
		}
	}
}

func TestHelpOfRunSaysHowToLimitACommandThatHangs(t *testing.T) {
	t.Parallel()
	code, out, _ := run(t, "run", "--help")
	require.Equal(t, 0, code)
	require.Contains(t, out, "a CMD that hangs keeps the lock for ever")
	require.Contains(t, out, "redlock run --max-hold 10m KEY -- CMD")
}

func TestHelpHasAnExample(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"run", "--help"}, {"demo", "--help"}} {
		code, stdout, _ := run(t, args...)
		assert.Equal(t, 0, code)
		assert.Contains(t, stdout, "Examples:\n  redlock ")
	}
}
