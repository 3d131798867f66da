//go:build unix

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

type topLine struct {
	Votes, Nodes, Held, Waiters int
	More                        bool
	Kind                        string
	Locks                       []struct {
		Lock, State, Token, Owner string
		Held                      int64 `json:"held_millis"`
		Left                      int64 `json:"left_millis"`
		Waiting                   int64 `json:"waiting_millis"`
		Busy                      int   `json:"busy_percent"`
		Waiters, Turns            int
		Longer                    bool
	}
}

func topLines(t *testing.T, out string) (lines []topLine) {
	for line := range strings.Lines(out) {
		var l topLine
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		lines = append(lines, l)
	}
	return lines
}

// thisProcess is the owner that this test's clients name.
func thisProcess() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// hold acquires a lock on every node until the test ends.
func hold(t *testing.T, c *redlock.Client, name string) *redlock.Lease {
	t.Helper()
	lease, err := c.Mutex(name).Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Extend(t.Context()))
	t.Cleanup(func() { _ = lease.Release(t.Context()) })
	return lease
}

// wait lets another client wait for the lock, and sends what it gets.
func wait(t *testing.T, f *fleet.Fleet, name string, got chan<- *redlock.Lease) {
	client := newClient(t, f)
	go func() {
		lease, _ := client.Mutex(name).Acquire(t.Context())
		got <- lease
	}()
}

func TestTopShowsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	nightly := hold(t, client, "nightly")
	hourly := hold(t, client, "hourly")
	everyNode(t, f, func(n *fleet.Node) error { // other data
		do(t, n, "SET", "cache", "x", "EX", 100)
		do(t, n, "HSET", "hash", "a", "b")
		do(t, n, "RPUSH", "redlock:wait:hash", "no queue")
		return nil
	})
	next := make(chan *redlock.Lease, 1)
	wait(t, f, "nightly", next)

	output := filepath.Join(t.TempDir(), "output")
	watch := startProgram(t, nil, []string{"OUTPUT=" + output}, "bash", "-c", `exec "$0" "$@" >"$OUTPUT"`,
		binary, "top", "--json", "--interval=100ms", nodes(f))
	printed := func() string {
		text, _ := os.ReadFile(output)
		return string(text[:bytes.LastIndexByte(text, '\n')+1])
	}
	eventually(t, "the waiter", func() bool { return strings.Contains(printed(), `"waiters":1`) })
	require.NoError(t, nightly.Release(t.Context()))
	second := <-next
	require.NotNil(t, second)
	eventually(t, "the second holder", func() bool { return strings.Contains(printed(), second.Token()[:8]) })
	require.NoError(t, watch.cmd.Process.Signal(syscall.SIGTERM))
	code, _, errs := watch.wait()
	require.Equal(t, 0, code, errs)
	out := printed()
	lines := topLines(t, out)
	first, last := lines[0], lines[len(lines)-1]
	require.Equal(t, []int{3, 3, 2}, []int{first.Votes, first.Nodes, first.Held})
	require.Len(t, first.Locks, 2, "nothing that is no lock: %s", out)
	byName := map[string]int{}
	for i, l := range last.Locks {
		byName[l.Lock] = i
	}
	n, h := last.Locks[byName["nightly"]], last.Locks[byName["hourly"]]
	require.Equal(t, second.Token()[:8], n.Token, out)
	require.Equal(t, 2, n.Turns)
	require.False(t, n.Longer)
	require.Equal(t, []any{"held", hourly.Token()[:8], 1, true, 0}, []any{h.State, h.Token, h.Turns, h.Longer, h.Busy})
	require.Positive(t, h.Held)
	require.Positive(t, h.Left)
	require.Equal(t, thisProcess(), h.Owner)
	require.NotContains(t, out, nightly.Token(), "whoever has a token can release the lock")
	require.NoError(t, second.Release(t.Context()))

	// Lines for people and scripts.
	code, out, errs = run(t, "top", "--count=2", "--interval=100ms", nodes(f), "hourly", "nobody has it", "hash", "cache")
	require.Equal(t, 0, code, errs)
	require.Regexp(t, `(?m)^\S+Z votes=3/3 held=1 waiters=0$`, out)
	require.Regexp(t, `(?m)^\S+Z lock=hourly holder=`+regexp.QuoteMeta(thisProcess())+` held=\d+ms\+ left=\d\.\ds waiters=0 waiting=- busy=0% turns=1$`, out)
	require.Regexp(t, `(?m)^\S+Z lock="nobody has it" holder=- held=- left=- waiters=0`, out)
	require.Regexp(t, `(?m)^\S+Z lock=cache holder=no-lock`, out)
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 2*5)
	require.NotContains(t, out, "\x1b")
}

func TestTopCountsThoseThatShareALock(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	for range 2 {
		for _, lock := range []redlock.Lock{client.RWMutex("table").Reader(), client.Semaphore("pool", 5)} {
			lease, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Extend(t.Context()))
			defer func() { _ = lease.Release(context.Background()) }()
		}
	}
	next := make(chan *redlock.Lease, 1)
	wait(t, f, "table", next)
	eventually(t, "both, and the writer that waits", func() bool {
		_, out, _ := run(t, "top", "--count=1", nodes(f))
		return strings.Contains(out, `lock=table holder="2 readers" `) && strings.Contains(out, `lock=pool holder="2 holders of permits" `) &&
			strings.Contains(out, "held=2 waiters=1")
	})
	code, out, errs := run(t, "top", "--json", "--count=1", nodes(f), "table")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, `"state":"held","sharers":2,`)
	require.Greater(t, topLines(t, out)[0].Locks[0].Left, int64(3000))
	everyNode(t, f, func(n *fleet.Node) error {
		do(t, n, "SET", "data", "readers of the news", "PX", 60000)
		return nil
	})
	_, out, _ = run(t, "top", "--json", "--count=1", nodes(f), "data")
	require.Equal(t, "foreign", topLines(t, out)[0].Locks[0].State, "what another program wrote is shared by nobody")
}

func TestTopCountsWaitersAndHowLongTheyWait(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	lease := hold(t, newClient(t, f), "x")
	got := make(chan *redlock.Lease, 3) // in the order in which they get it
	for range 3 {
		wait(t, f, "x", got)
	}
	eventually(t, "three waiters, of whom one has waited for a while", func() bool {
		_, out, _ := run(t, "top", "--json", "--count=1", nodes(f), "x")
		x := topLines(t, out)[0].Locks[0]
		return x.Waiters == 3 && x.Waiting > 300 && x.Busy == 100
	})
	require.NoError(t, lease.Release(t.Context()))
	for range 3 {
		require.NoError(t, (<-got).Release(t.Context()))
	}
}

// It needs no right that a lock does not need, but to SCAN where no names are given. Keys are those of the prefix.
func TestTopFindsTheLocksOfAPrefix(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "locker", "on", ">SECRET", "~*", "&*", "+@all", "-scan")
	}
	code, _, errs := run(t, "enroll", "--prefix=a*[", nodes(f))
	require.Equal(t, 0, code, errs)
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), Prefix: "a*["})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	hold(t, client, "x")
	do(t, f.Nodes()[0], "SET", "ab[x", strings.Repeat("a", 32), "PX", 60000) // what the prefix is not

	code, out, errs := run(t, "top", "--count=1", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Regexp(t, `(?m) lock=x holder=`+regexp.QuoteMeta(thisProcess())+` `, out)
	require.Equal(t, 1, strings.Count(out, "lock="), out)
	asLocker := strings.ReplaceAll(nodes(f), "redis://", "redis://locker:SECRET@")
	code, out, errs = run(t, "top", "--count=1", asLocker)
	require.Equal(t, 1, code, out)
	require.Regexp(t, `^redlock: without names, top looks for locks with SCAN: NOPERM [^\n]*allow \+scan, or give the names\n$`, errs)
	code, out, errs = run(t, "top", "--count=1", asLocker, "x")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "held=1")
}

func TestTopIsBoundedAndSaysSo(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 1})
	pipe := func(i int) []any { return []any{strings.Repeat("k", i), strings.Repeat("a", 32), "PX", 60000} }
	for i := 1; i <= 30; i++ {
		do(t, f.Nodes()[0], "SET", pipe(i)...)
	}
	code, out, _ := run(t, "top", "--json", "--count=1", "--limit=20", nodes(f))
	require.Equal(t, 0, code)
	one := topLines(t, out)[0]
	require.Len(t, one.Locks, 20)
	require.True(t, one.More)
	for _, line := range []string{"--limit=0", "--limit=20000", "--interval=1ms", "--interval=2h", "--count=-1", "--limit=1 a b", "redlock:node"} {
		code, out, errs := run(t, append([]string{"top", nodes(f)}, strings.Fields(line)...)...)
		require.Equal(t, 64, code, line)
		require.Empty(t, out)
		require.Regexp(t, `^redlock: [^\n]+\n$`, errs)
	}
}

// A server that is stopped, and later one that is dead, delays nothing and hides nothing.
func TestTopGoesOnWhileNodesFail(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	hold(t, newClient(t, f), "x")
	require.NoError(t, f.Nodes()[0].Pause())
	code, out, errs := run(t, "top", "--json", "--count=5", "--interval=100ms", "--node-timeout=1s", nodes(f))
	require.Equal(t, 0, code, errs)
	last := topLines(t, out)[4]
	require.Equal(t, []int{2, 1}, []int{last.Votes, last.Held}, out)
	require.NoError(t, f.Nodes()[1].Kill())
	code, out, errs = run(t, "top", "--json", "--count=2", "--interval=100ms", nodes(f), "x")
	require.Equal(t, 69, code, errs)
	last = topLines(t, out)[1]
	require.Equal(t, "no-quorum", last.Kind)
	require.Equal(t, "unknown", last.Locks[0].State)
	code, out, errs = run(t, "top", "--count=1", nodes(f), "x")
	require.Equal(t, 69, code)
	require.Contains(t, out, "votes=1/3 held=0")
	require.Contains(t, out, "lock=x holder=? ")
	require.Contains(t, errs, "redlock doctor")
	require.NoError(t, f.Nodes()[0].Resume())
}

// A node that comes back is asked again.
func TestTopConnectsAgain(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 1})
	p := start(t, nil, nil, "top", "--json", "--interval=100ms", nodes(f), "x")
	eventually(t, "the first line", func() bool { return p.stdout.String() != "" })
	require.NoError(t, f.Nodes()[0].Kill())
	require.NoError(t, f.Nodes()[0].Start(t.Context(), fleet.Empty))
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	hold(t, newClient(t, f), "x")
	eventually(t, "top to see the holder", func() bool { // after the pause before it connects again
		lines := strings.Split(p.stdout.String(), "\n")
		return len(lines) > 1 && strings.Contains(lines[len(lines)-2], `"state":"held"`)
	})
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	code, _, errs = p.wait()
	require.Equal(t, 0, code, errs)
}

// SCRIPT FLUSH takes the script from top's connections. What they then answer is not that the lock is free. A node that does
// not answer them is not counted, though it votes.
func TestTopCallsNoLockFreeThatItDidNotSee(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	hold(t, newClient(t, f), "x")
	p := start(t, nil, nil, "top", "--json", "--interval=100ms", nodes(f), "x")
	sees := func(state string) {
		t.Helper()
		seen := strings.Count(p.stdout.String(), "\n")
		eventually(t, state, func() bool {
			lines := strings.Split(p.stdout.String(), "\n")
			return len(lines) > seen+2 && strings.Contains(lines[len(lines)-2], `"state":"`+state+`"`)
		})
	}
	sees("held")
	for _, n := range f.Nodes() {
		do(t, n, "SCRIPT", "FLUSH")
	}
	sees("held")
	for _, n := range f.Nodes()[:2] { // the library does not need it
		do(t, n, "ACL", "SETUSER", "default", "-zscore", "-zrange", "-hgetall", "-lrange", "-script|load", "-pttl")
	}
	do(t, f.Nodes()[0], "SCRIPT", "FLUSH")
	do(t, f.Nodes()[1], "SCRIPT", "FLUSH")
	sees("unknown")
	require.NotContains(t, p.stdout.String(), `"state":"free"`)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	p.wait()
}

// The first node votes and answers top, the second votes and does not answer, the third answers and is in quarantine.
func TestTopCountsNodesThatBothVoteAndAnswer(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), MaxTTL: 10 * time.Minute, TTL: 10 * time.Minute,
		NodeTimeout: 3 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	require.NoError(t, client.Enroll(t.Context()))
	lease := hold(t, client, "x")
	do(t, f.Nodes()[0], "DEL", "x")                           // as if it had not been asked
	do(t, f.Nodes()[1], "ACL", "SETUSER", "default", "-pttl") // a vote takes no PTTL
	do(t, f.Nodes()[2], "FLUSHALL")
	code, out, _ := run(t, "top", "--json", "--count=3", "--interval=100ms", "--node-timeout=1s", nodes(f), "x")
	require.True(t, lease.Valid())
	require.Equal(t, 69, code, out)
	for _, line := range topLines(t, out) {
		require.Equal(t, []any{1, "unknown"}, []any{line.Votes, line.Locks[0].State}, out)
	}
}

func TestTopOfEmbeddedNodesReadsTheSame(t *testing.T) {
	t.Parallel()
	code, out, errs := run(t, "top", "--nodes=embedded", "--count=1", "x")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "votes=5/5 held=0 waiters=0")
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 3})
	lease := hold(t, newClient(t, f), "x")
	got := make(chan *redlock.Lease, 1)
	wait(t, f, "x", got)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("top said last:", out)
		}
	})
	eventually(t, "the waiter", func() bool {
		_, out, _ = run(t, "top", "--json", "--count=1", nodes(f))
		l := topLines(t, out)[0]
		return l.Held == 1 && l.Waiters == 1 && l.Locks[0].Token == lease.Token()[:8]
	})
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, (<-got).Release(t.Context()))
}
