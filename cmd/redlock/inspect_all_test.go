//go:build unix

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// listed returns the names of the locks that inspect prints, in their order.
func listed(t *testing.T, code int, args ...string) (names []string) {
	t.Helper()
	got, out, errs := run(t, append([]string{"inspect", "--json", "--node-timeout=2s"}, args...)...)
	require.Equal(t, code, got, "%s%s", out, errs)
	for line := range strings.Lines(out) {
		var l struct {
			Key, State, Error string
			Held              bool
			Nodes             []any
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		require.Equal(t, l.State == "held", l.Held)
		require.Equal(t, code == 69, l.Error != "", line)
		if l.Key != "" {
			require.NotEmpty(t, l.Nodes)
			names = append(names, l.Key)
		}
	}
	return names
}

func TestInspectListsAllLocksThatAreHeldOrThoseOfAnOwner(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "enroll", "--prefix=p[", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Empty(t, listed(t, 0, nodes(f), "--all"))
	code, out, errs := run(t, "inspect", nodes(f), "--all")
	require.Equal(t, 0, code, errs)
	require.Equal(t, "no lock is held\n", out)

	for owner, locks := range map[string]func(*redlock.Client) []redlock.Lock{
		"web-3/4711": func(c *redlock.Client) []redlock.Lock {
			return []redlock.Lock{c.Mutex("nightly").WithOwner("nightly-report"), c.RWMutex("table").Reader().WithOwner("reading"), c.Mutex("a", "b")}
		},
		"web-4/12": func(c *redlock.Client) []redlock.Lock {
			return []redlock.Lock{c.RWMutex("table").Reader(), c.Semaphore("pool", 3).WithOwner("nightly-copy")}
		},
	} {
		c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), Prefix: "p[", Owner: owner, TTL: 20 * time.Second, NodeTimeout: 3 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		for _, lock := range locks(c) {
			lease, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = lease.Release(context.Background()) })
		}
	}
	everyNode(t, f, func(n *fleet.Node) error { // other data, and locks of others
		do(t, n, "SET", "p[cache", "x", "EX", 100)
		do(t, n, "HSET", "p[hash", "a", "b")
		do(t, n, "SET", "px", strings.Repeat("a", 32), "PX", 60000)
		do(t, n, "SET", "elsewhere", strings.Repeat("a", 32), "PX", 60000)
		return nil
	})
	do(t, f.Nodes()[0], "SET", "p[left", strings.Repeat("a", 32), "PX", 60000) // by a try that failed, or of one that has just ended

	require.Equal(t, []string{"a", "b", "nightly", "pool", "table"}, listed(t, 0, nodes(f), "--all"))
	for owner, want := range map[string][]string{
		"nightly-*": {"nightly", "pool"}, "web-4/*": {"pool", "table"}, "web-3/4711": {"a", "b", "nightly", "table"},
		"web-3/4711 (reading)": {"table"}, "*": {"a", "b", "nightly", "pool", "table"}, "nobody": nil,
	} {
		require.Equal(t, want, listed(t, 0, nodes(f), "--owner", owner), owner)
		require.Equal(t, want, listed(t, 0, nodes(f), "--all", "--owner="+owner), owner)
	}
	require.Equal(t, []string{"nightly"}, listed(t, 0, nodes(f), "--owner=nightly-*", "table", "nightly", "free"))
	code, out, errs = run(t, "inspect", "--owner=nobody", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Equal(t, "no such lock is held\n", out)
	code, out, errs = run(t, "inspect", nodes(f), "--owner=nightly-*")
	require.Equal(t, 0, code, errs)
	require.Regexp(t, `(?s)^nightly is held by web-3/4711 \(nightly-report\) on .*\n\npool is shared by 1 on a quorum .*  web-4/12 \(nightly-copy\) has 1 permit `, out)
}

// SCAN is asked again and again, until it has come to the last key.
func TestInspectFindsALockAmongManyKeys(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	everyNode(t, f, func(n *fleet.Node) error {
		do(t, n, "EVAL", "for i = 1, 50000 do redis.call('SET', 'key:' .. i, 'x') end", 0)
		return nil
	})
	var want []string
	client := newClient(t, f)
	for i := range 25 {
		want = append(want, fmt.Sprintf("lock-%02d", i))
		hold(t, client, want[i])
	}
	require.Equal(t, want, listed(t, 0, nodes(f), "--all"))
}

func TestInspectOfAllSaysUnknownWhereTooFewNodesVote(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	lease, err := newClient(t, f).Mutex("held").WithTTL(30 * time.Second).Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Extend(t.Context()))
	everyNode(t, f, func(n *fleet.Node) error {
		eventually(t, "the key on every node", func() bool { return do(t, n, "GET", "held") != nil })
		return nil
	})
	do(t, f.Nodes()[0], "FLUSHALL")
	require.Equal(t, []string{"held"}, listed(t, 0, nodes(f), "--all"), "two are a quorum")
	do(t, f.Nodes()[1], "FLUSHALL")
	require.Equal(t, []string{"held"}, listed(t, 69, nodes(f), "--all"))
	code, out, errs := run(t, "inspect", nodes(f), "--all")
	require.Equal(t, 69, code)
	require.Contains(t, out, "held: unknown: too few nodes vote (1 of 3 nodes, and it takes 2); ")
	require.Contains(t, out, "\nunknown: too few nodes vote or answer, so more locks may be held\n")
	require.Contains(t, errs, "redlock doctor")
	require.Empty(t, listed(t, 69, nodes(f), "--owner=nobody"))
	code, out, _ = run(t, "inspect", "--json", nodes(f), "--owner=nobody")
	require.Equal(t, 69, code)
	require.Regexp(t, `^\{"error":"[^\n]+","kind":"no-quorum"\}\n$`, out)
	code, out, _ = run(t, "inspect", nodes(f), "--owner=nobody", "held")
	require.Equal(t, 69, code)
	require.Equal(t, "unknown: too few nodes vote or answer, so more locks may be held\n", out)
	_ = lease.Release(t.Context())
}

func TestInspectOfAllNeedsTheRightToScan(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	hold(t, newClient(t, f), "x")
	for i, n := range f.Nodes() {
		fleettest.SetUser(t, n, "locker", "on", ">SECRET", "~*", "&*", "+@all", "-scan")
		if i < 2 {
			fleettest.SetUser(t, n, "half", "on", ">SECRET", "~*", "&*", "+@all")
		} else {
			fleettest.SetUser(t, n, "half", "on", ">SECRET", "~*", "&*", "+@all", "-scan")
		}
	}
	as := func(user string) string { return strings.ReplaceAll(nodes(f), "redis://", "redis://"+user+":SECRET@") }
	code, out, errs := run(t, "inspect", as("locker"), "--all")
	require.Equal(t, 1, code, out)
	require.Regexp(t, `^redlock: without a KEY, inspect looks for locks with SCAN: NOPERM [^\n]*allow \+scan, or give each KEY\n$`, errs)
	code, _, errs = run(t, "inspect", as("locker"), "x")
	require.Equal(t, 0, code, errs)
	require.Equal(t, []string{"x"}, listed(t, 0, as("half"), "--all"), "two nodes have all locks that are held")
}

func TestWrongUsageOfInspectIsExplained(t *testing.T) {
	t.Parallel()
	for line, said := range map[string]string{
		"inspect":                       "redlock inspect needs a KEY, --all or --owner; see redlock inspect --help",
		"inspect --all k":               "give each KEY, or --all, not both",
		"inspect --owner [ k":           `--owner "[": give a pattern for owners, such as 'web-3/*'`,
		"inspect --all --owner= --json": `--owner "": give a pattern for owners, such as 'web-3/*'`,
	} {
		code, out, errs := run(t, strings.Fields(line)...)
		require.Equal(t, 64, code, line)
		require.Regexp(t, regexp.QuoteMeta(strings.ReplaceAll(said, "\"", "")), strings.NewReplacer(`\"`, "", `"`, "").Replace(out+errs), line)
	}
}

// Whoever finds a lock of bench held learns who measures.
func TestTheLocksOfBenchSayWhose(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	p := start(t, nil, nil, "bench", nodes(f), "--node-timeout=3s", "--seconds=60", "--owner=the measurement")
	eventually(t, "a lock of bench", func() bool {
		_, out, _ := run(t, "inspect", nodes(f), "--owner=the measurement")
		return regexp.MustCompile(`(?m)^bench/\S+ is held by \S+/\d+ \(the measurement\) on `).MatchString(out)
	})
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.wait()
	code, _, errs := run(t, "bench", nodes(f), "--owner="+strings.Repeat("x", 300))
	require.Equal(t, 64, code)
	require.Contains(t, errs, "redlock: --owner ")
	for name, command := range talkers() { // it is a flag of every command, also where it says nothing
		code, out, errs := run(t, with(command, nodes(f), "--node-timeout=3s", "--owner=me")...)
		require.Equal(t, 0, code, "%s: %s%s", name, out, errs)
	}
}
