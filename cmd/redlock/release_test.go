//go:build unix

package main_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// Whoever has the token of a lease can release it, from any process, and takes the lock from nobody else.
func TestReleaseByTheTokenOfTheLease(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	lease, err := client.Mutex("a", "b").Acquire(t.Context())
	require.NoError(t, err)
	token := lease.Token()
	code, out, errs := run(t, "release", nodes(f), "--token", token, "a", "b")
	require.Equal(t, 0, code, errs)
	require.Equal(t, "a was released\nb was released\n", out)

	other := hold(t, client, "a")
	code, out, errs = run(t, "release", nodes(f), "--token", token, "a")
	require.Equal(t, 76, code)
	require.Empty(t, out)
	require.Contains(t, errs, "redlock: no lease of a has this token: it was released, it expired, or it never was")
	require.NotContains(t, errs, token)
	require.True(t, other.Valid())
	code, out, errs = run(t, "release", nodes(f), "--json", "--token", token, "a", "b")
	require.Equal(t, 76, code, errs)
	require.Equal(t, 2, strings.Count(out, "\n"), out)
	require.Equal(t, 2, strings.Count(out, `"released":false`), out)
	require.Equal(t, 2, strings.Count(out, `"kind":"lost"`), out)
	code, out, errs = start(t, strings.NewReader(other.Token()+"\n"), nil, "release", nodes(f), "--json", "--token=-", "a").wait()
	require.Equal(t, 0, code, errs)
	require.Equal(t, `{"key":"a","released":true}`+"\n", out)

	// The command under the lock may hand it on: here it releases it at once.
	code, out, errs = start(t, nil, []string{"REDLOCK_NODES=" + strings.Join(f.URLs(), ",")}, "run", "--pass-nodes", "c", "--", "sh", "-c",
		`"$0" release --token "$REDLOCK_TOKEN" "$REDLOCK_KEY"`, binary).wait()
	require.Contains(t, out, "c was released")
	require.Contains(t, []int{0, 76}, code, errs) // redlock run learns of it, or the command ends before that

	for line, said := range map[string]string{
		"release k":                               "--token of the lease",
		"release --token= k":                      "--token: it is no owner token",
		"release --token=next:01 k":               "--token: it is no owner token",
		"release --token=x --force k":             "give one of them",
		"release --token=x --foreign k":           "give one of them",
		"release --token=- --nodes-file=- k":      "--token and --nodes-file cannot both be read from standard input",
		"release --token=x a b a":                 `KEY "a" is given twice`,
		"release --force a b a":                   `KEY "a" is given twice`,
		"release --nodes a:1,b:1,c:1 --token=- k": "--token: it is no owner token",
	} {
		code, _, errs := run(t, strings.Fields(line)...)
		require.Equal(t, 64, code, line)
		require.Contains(t, errs, said, line)
	}
	code, _, errs = start(t, strings.NewReader(token+"\n"), []string{"REDLOCK_NODES_FILE=-"}, "release", "--token=-", "a").wait()
	require.Equal(t, 64, code, errs)
	require.Contains(t, errs, "--token and REDLOCK_NODES_FILE cannot both be read from standard input")
	code, _, errs = start(t, strings.NewReader(token+"\n"), []string{"REDLOCK_NODES_FILE=-"}, "release", nodes(f), "--token=-", "gone").wait()
	require.Equal(t, 76, code, "a flag is stronger: %s", errs)

	code, out, errs = run(t, "release", nodes(f), "--token", token, "a", "b")
	require.Equal(t, 76, code)
	require.Empty(t, out)
	require.Regexp(t, `^redlock: no lease of a has this token[^\n]*\nredlock: no lease of b has this token[^\n]*\n$`, errs)
	everyNode(t, f, (*fleet.Node).Kill)
	code, _, errs = run(t, "release", nodes(f), "--token", token, "a")
	require.Equal(t, 69, code, errs)
}

// What cannot be printed is released all the same: every KEY of it.
func TestReleaseOfSeveralKeysNeedsNoOutput(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	mute := func(args ...string) (code int, errs string) {
		command := []string{"-c", `exec "$0" "$@" 1<"$0"`, binary, "release", nodes(f), "--node-timeout=3s"}
		code, _, errs = startProgram(t, nil, nil, "sh", append(command, args...)...).wait()
		return code, errs
	}
	free := func() {
		t.Helper()
		for _, key := range []string{"a", "b"} {
			state, err := client.Inspect(t.Context(), key)
			require.NoError(t, err)
			require.False(t, state.Held, key)
		}
	}
	for _, flag := range []string{"--json=false", "--json"} {
		hold(t, client, "a")
		hold(t, client, "b")
		code, errs := mute(flag, "--force", "a", "b")
		require.Equal(t, 1, code, errs)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
		free()
		lease, err := client.Mutex("a", "b").Acquire(t.Context())
		require.NoError(t, err)
		code, errs = mute(flag, "--token", lease.Token(), "a", "b")
		require.Equal(t, 1, code, errs)
		free()
		code, errs = mute(flag, "--token", lease.Token(), "a", "b")
		if flag == "--json" { // in text there is nothing to print
			require.Contains(t, errs, "bad file descriptor")
		}
		require.Equal(t, 76, code, errs)
		require.Contains(t, errs, "no lease of a has this token")
		require.Contains(t, errs, "no lease of b has this token")
	}
}

// The keys that were released are told, and then the signal, once.
func TestASignalEndsReleaseBetweenTwoKeys(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	client := newClient(t, f)
	keys := []string{"k0"}
	for i := range 100 {
		keys = append(keys, fmt.Sprint("other", i))
	}
	last := hold(t, client, keys[100])
	for _, flag := range []string{"--json", "--json=false"} {
		first := hold(t, client, "k0")
		everyNode(t, f, func(n *fleet.Node) error { return n.Delay(30 * time.Millisecond) })
		p := start(t, nil, nil, append([]string{"release", nodes(f), flag, "--node-timeout=4s", "--token", first.Token()}, keys...)...)
		eventually(t, "the first release", func() bool { return do(t, f.Nodes()[0], "EXISTS", "k0").(int64) == 0 })
		before := scriptsRun(t, f.Nodes()[0])
		eventually(t, "several others", func() bool { return scriptsRun(t, f.Nodes()[0]) >= before+6 })
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		code, out, errs := p.wait()
		require.Equal(t, 143, code, errs)
		if flag == "--json" {
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			require.Empty(t, errs)
			require.Equal(t, `{"key":"k0","released":true}`, lines[0])
			require.Greater(t, len(lines), 2)
			require.Less(t, len(lines), 100)
			for i, line := range lines[1 : len(lines)-1] {
				require.Contains(t, line, fmt.Sprintf(`{"key":"other%d","released":false,`, i))
			}
			require.Equal(t, `{"error":"interrupted by SIGTERM","kind":"interrupted"}`, lines[len(lines)-1])
		} else {
			require.Equal(t, "k0 was released\n", out)
			require.Regexp(t, `^redlock: no lease of other0 has [^\n]*\n(redlock: no lease of other\d+ has [^\n]*\n)*redlock: interrupted by SIGTERM\n$`, errs)
		}
		everyNode(t, f, (*fleet.Node).Heal)
	}
	require.NoError(t, last.Extend(t.Context()))
}

// scriptsRun is how many scripts the server has run.
func scriptsRun(t *testing.T, n *fleet.Node) (calls int) {
	stats := string(do(t, n, "INFO", "commandstats").([]byte))
	_, evalsha, found := strings.Cut(stats, "cmdstat_evalsha:calls=")
	require.True(t, found, stats)
	_, err := fmt.Sscan(evalsha[:strings.IndexByte(evalsha, ',')], &calls)
	require.NoError(t, err)
	return calls
}

// Either all of them are locks, or nothing is deleted.
func TestReleaseOfSeveralKeys(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	a, b := hold(t, client, "a"), hold(t, client, "b")
	everyNode(t, f, func(n *fleet.Node) error { do(t, n, "SET", "data", "x"); return nil })
	code, out, errs := run(t, "release", "--force", nodes(f), "a", "data", "b")
	require.Equal(t, 64, code)
	require.Empty(t, out)
	require.Contains(t, errs, "--foreign")
	require.NoError(t, a.Extend(t.Context()))
	require.NoError(t, b.Extend(t.Context()))
	code, out, errs = run(t, "release", "--force", nodes(f), "a", "b", "free")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "\na was released\n\nb is held by ")
	require.Contains(t, out, "\nb was released\n\nfree is free")
	code, out, errs = run(t, "release", "--force", "--json", nodes(f), "a", "b")
	require.Equal(t, 0, code, errs)
	require.Equal(t, 2, strings.Count(out, "\n"))
}

func TestTheFlagVersionDoesWhatTheCommandDoes(t *testing.T) {
	t.Parallel()
	code, out, errs := run(t, "--version")
	require.Equal(t, 0, code, errs)
	_, want, _ := run(t, "version")
	require.Equal(t, want, out)
}
