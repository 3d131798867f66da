//go:build unix

package main_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// topOnce returns what top prints of one look, with an exit code of 0.
func topOnce(t *testing.T, args ...string) topLine {
	t.Helper()
	code, out, errs := run(t, append([]string{"top", "--json", "--count=1", "--node-timeout=3s"}, args...)...)
	require.Equal(t, 0, code, "%s%s", out, errs)
	return topLines(t, out)[0]
}

// fill writes so many keys that are no locks to every node. It writes them in parts, because an answer is given up after
// 5 s, and on a busy machine a script that writes all takes longer.
func fill(t *testing.T, f *fleet.Fleet, keys int) {
	const atOnce = 10_000
	everyNode(t, f, func(n *fleet.Node) error {
		for first := 1; first <= keys; first += atOnce {
			do(t, n, "EVAL", "for i = ARGV[1], ARGV[2] do redis.call('SET', 'key:' .. i, 'x') end", 0,
				first, min(first+atOnce-1, keys))
		}
		return nil
	})
}

// Only the keys that no lock may have are left out, not all that begin as these do.
func TestLocksAreFoundWhoseKeysBeginAsTheLibrarysOwn(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "redlock:"} {
		f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
		code, _, errs := run(t, "enroll", "--prefix="+prefix, nodes(f))
		require.Equal(t, 0, code, errs)
		client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), Prefix: prefix, NodeTimeout: 3 * time.Second, TTL: 20 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { client.Close() })
		name := strings.TrimPrefix("redlock:deploy", prefix)
		hold(t, client, name)
		everyNode(t, f, func(n *fleet.Node) error {
			for _, own := range []string{"redlock:leader:deploy", "redlock:wait:x", "redlock:rw:x", strings.Repeat("x", 1025)} {
				do(t, n, "SET", own, strings.Repeat("a", 32), "PX", 60000)
			}
			return nil
		})
		line := topOnce(t, nodes(f))
		require.Len(t, line.Locks, 1)
		require.Equal(t, []string{name, "held"}, []string{line.Locks[0].Lock, line.Locks[0].State})
		require.Equal(t, []string{name}, listed(t, 0, nodes(f), "--all"))
	}
}

// Keys that are no locks take the place of none. They filled the list, so a single look saw no lock among 5000 others.
func TestASingleLookFindsALockAmongManyKeys(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	fill(t, f, 25_000) // more than one question asks for
	hold(t, newClient(t, f), "x")
	line := topOnce(t, nodes(f), "--limit=10")
	require.Equal(t, []any{1, false}, []any{line.Held, line.More})
	require.Equal(t, "x", line.Locks[0].Lock)
	code, out, errs := run(t, "top", "--count=1", "--node-timeout=3s", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Regexp(t, `(?m)^\S+Z votes=3/3 held=1 waiters=0$`, out)
}

// A watch goes on where the last look had no more time, and says until then that there may be more.
func TestAWatchFindsALockAmongManyKeys(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	fill(t, f, 200_000) // no server is asked for all of them in half of the interval
	hold(t, newClient(t, f), "x")
	p := start(t, nil, nil, "top", "--interval=100ms", "--node-timeout=3s", nodes(f))
	within(t, 3*time.Minute, "the lock, and then that all keys were looked at", func() bool {
		lines := strings.Split(p.stdout.String(), "\n")
		return len(lines) > 2 && strings.Contains(lines[len(lines)-2], " lock=x ") && strings.HasSuffix(lines[len(lines)-3], " held=1 waiters=0")
	})
	first, _, _ := strings.Cut(p.stdout.String(), "\n")
	require.Regexp(t, ` held=[01] waiters=0 more=true$`, first)
	require.NoError(t, p.cmd.Process.Kill())
	p.wait()
}

func TestLocksThatAreLeftOutShowInEveryFormOfOutput(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	for i := range 3 {
		hold(t, client, fmt.Sprint("lock-", i))
	}
	code, out, errs := run(t, "top", "--count=3", "--interval=100ms", "--limit=2", "--node-timeout=3s", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Equal(t, 3, strings.Count(out, " held=2 waiters=0 more=true\n"), out)
	require.False(t, topOnce(t, nodes(f), "--limit=3").More)
}

// A user with rights for some keys sees the locks there. One key of others took the votes from every node.
func TestAKeyThatTheUserMayNotReadHidesNoOtherLock(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	hold(t, client, "jobs/nightly")
	hold(t, client, "other")
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "jobs", "on", ">SECRET", "~jobs/*", "~redlock:*", "&*", "+@all")
		fleettest.SetUser(t, n, "blind", "on", ">SECRET", "~*", "&*", "+@all", "-pttl")
	}
	as := func(user string) string { return strings.ReplaceAll(nodes(f), "redis://", "redis://"+user+":SECRET@") }
	line := topOnce(t, as("jobs"))
	require.Equal(t, []any{3, 1, 1, "jobs/nightly"}, []any{line.Votes, line.Held, len(line.Locks), line.Locks[0].Lock})
	require.Equal(t, []string{"jobs/nightly"}, listed(t, 0, as("jobs"), "--all"))
	code, out, errs := run(t, "top", "--count=1", "--node-timeout=3s", as("jobs"), "jobs/nightly", "other")
	require.Equal(t, 0, code, errs)
	require.Regexp(t, `(?m)^\S+Z votes=3/3 held=1 waiters=0$`, out)
	require.Regexp(t, `(?m) lock=other holder=no-right held=- `, out)

	for _, names := range [][]string{{"other"}, nil} {
		code, out, errs = run(t, append([]string{"top", "--count=1", "--node-timeout=3s", as("blind")}, names...)...)
		require.Equal(t, 69, code, out)
		require.Contains(t, out, "votes=0/3 held=0")
		require.Regexp(t, `^redlock: too few nodes answer: [^\n]+; https://github.com/quorumlock/redlock/blob/main/docs/operations.md has the rights [^\n]*\n$`, errs)
	}
}

// An empty text is no free lock. A released permit that is reserved for a waiter is nothing that another program wrote.
func TestTopTellsAnEmptyValueFromAFreeLock(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	everyNode(t, f, func(n *fleet.Node) error {
		do(t, n, "SET", "empty", "", "PX", 60000)
		do(t, n, "SET", "path", "next:/home")
		do(t, n, "ZADD", "pool", 9e15, "permit 1/3 next:"+strings.Repeat("a", 32))
		do(t, n, "PEXPIRE", "pool", 60000)
		return nil
	})
	states := map[string]string{}
	for _, l := range topOnce(t, nodes(f), "empty", "path", "pool", "nothing").Locks {
		states[l.Lock] = l.State
	}
	require.Equal(t, map[string]string{"empty": "foreign", "path": "foreign", "pool": "free", "nothing": "free"}, states)
}

// Whoever watches for weeks outlives changes of the rights. A node that had once refused SCAN was never asked again.
func TestAWatchFindsLocksAgainWhenARightWasMissingForAWhile(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	p := start(t, nil, nil, "top", "--interval=100ms", "--node-timeout=3s", nodes(f))
	everyNode(t, f, func(n *fleet.Node) error { // one after the other
		do(t, n, "ACL", "SETUSER", "default", "-scan")
		eventually(t, "a refusal", func() bool { return strings.Contains(fmt.Sprintf("%s", do(t, n, "ACL", "LOG")), "scan") })
		do(t, n, "ACL", "SETUSER", "default", "+scan")
		return nil
	})
	hold(t, newClient(t, f), "x")
	eventually(t, "the lock", func() bool { return strings.Contains(p.stdout.String(), " lock=x ") })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, _, errs := p.wait()
	require.Equal(t, 0, code, errs)
}
