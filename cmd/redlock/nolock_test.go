//go:build unix

package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// Other data of the same name would stop a job of cron for ever, and 75 is normal there: nobody would learn of it.
func TestRunSaysThatAKeyIsNoLock(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	put := func(t *testing.T, nodes []*fleet.Node, command string, args ...any) {
		for _, n := range nodes {
			do(t, n, "DEL", "report")
			do(t, n, command, append([]any{"report"}, args...)...)
		}
	}
	const byHand = "delete the key by hand, or use another name or --prefix"
	const token = "0123456789abcdef0123456789abcdef:01234567:web-1/7"
	for name, c := range map[string]struct {
		command string
		args    []any
		said    string
	}{
		"a string":                  {"SET", []any{"data"}, `"data", which never expires; delete it (redlock release --force --foreign report), or use another name or --prefix`},
		"a hash":                    {"HSET", []any{"a", "b"}, `something that is not a string, which never expires; ` + byHand},
		"the text of a reservation": {"SET", []any{"next:/home?p=2"}, `"next:/home?p=2", which never expires; delete it (redlock release`},
		"the text of readers":       {"SET", []any{"readers"}, `"readers", which never expires; delete it (redlock release`},
		"a lock that was PERSISTed": {"SET", []any{token}, `web-1/7, which never expires; delete it (redlock release`},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, f.Nodes(), c.command, c.args...)
			for _, flag := range []string{"--wait=0", "--wait=2s", "--fair", "--read", "--semaphore=2"} {
				code, out, errs := run(t, "run", nodes(f), "--wait=0", flag, "report", "--", "echo", "ran")
				require.Equal(t, 64, code, "%s: %s", flag, errs)
				require.Empty(t, out)
				require.Regexp(t, `(?:^|\n)redlock: report is not a lock: on [23] nodes it is [^\n]*\n$`, errs)
				require.Contains(t, errs, c.said)
			}
			code, _, errs := run(t, "run", nodes(f), "--wait=0", "a", "report", "--", "true")
			require.Equal(t, 64, code)
			require.Contains(t, errs, "one of a, report is not a lock")
			require.Contains(t, errs, byHand)
			code, _, errs = run(t, "run", nodes(f), "--wait=0", "--json", "report", "--", "true")
			require.Equal(t, 64, code)
			require.Contains(t, errs, `"reason":"no-lock"`)
			require.Contains(t, errs, `"kind":"no-lock"`)
			p := start(t, nil, nil, "run", nodes(f), "report", "--", "true")
			eventually(t, "the line", func() bool { return p.said() != "" })
			require.Contains(t, p.said(), "without expiry; it is not a lock: delete ")
			everyNode(t, f, func(n *fleet.Node) error { do(t, n, "DEL", "report"); return nil })
			code, _, errs = p.wait()
			require.Equal(t, 0, code, "it goes on when somebody has deleted the key: %s", errs)
		})
	}
	t.Run("after a longer wait", func(t *testing.T) {
		put(t, f.Nodes(), "SET", "data")
		for _, flags := range [][]string{nil, {"--fair"}, {"--read"}, {"--json"}} {
			code, out, errs := run(t, with([]string{"run", "report", "--", "echo", "ran"}, append(flags, nodes(f), "--wait=4s", "--node-timeout=1s")...)...)
			require.Equal(t, 64, code, "%s: %s", flags, errs)
			require.Empty(t, out)
			require.Contains(t, errs, "report is not a lock: on 3 nodes it is ")
			require.Contains(t, errs, "which never expires; delete it (redlock release --force --foreign report), or use another name or --prefix")
		}
		code, _, errs := run(t, "run", nodes(f), "--wait=4s", "--node-timeout=1s", "a", "report", "--", "true")
		require.Equal(t, 64, code, errs)
		require.Contains(t, errs, "redlock: report is not a lock: on 3 nodes it is ", "and not one of the two")
		put(t, f.Nodes(), "SET", "")
		code, _, errs = run(t, "run", nodes(f), "--wait=2s", "--node-timeout=1s", "report", "--", "true")
		require.Equal(t, 64, code, errs)
		require.Contains(t, errs, `on 3 nodes it is "", which never expires; delete it (redlock release --force --foreign report)`)
		code, _, errs = run(t, "run", nodes(f), "--wait=0", "report", "--", "true")
		require.Equal(t, 64, code, errs)
		require.Contains(t, errs, "it is an empty string, or something that is not a string, which never expires; "+byHand, "a refusal does not tell them apart")
		everyNode(t, f, func(n *fleet.Node) error { do(t, n, "PEXPIRE", "report", 60000); return nil })
		code, _, errs = run(t, "run", nodes(f), "--wait=4s", "report", "--", "true")
		require.Equal(t, 75, code, errs)
	})
	t.Run("what expires is held", func(t *testing.T) {
		put(t, f.Nodes(), "SET", "bXkgdmFsdWU=", "PX", 60000) // redsync
		code, _, errs := run(t, "run", nodes(f), "--wait=0", "report", "--", "true")
		require.Equal(t, 75, code, errs)
		put(t, f.Nodes(), "HSET", "thread", 1) // Redisson
		everyNode(t, f, func(n *fleet.Node) error { do(t, n, "PEXPIRE", "report", 60000); return nil })
		code, _, errs = run(t, "run", nodes(f), "--wait=0", "report", "--", "true")
		require.Equal(t, 75, code, errs)
	})
	t.Run("a minority is in nobody's way", func(t *testing.T) {
		everyNode(t, f, func(n *fleet.Node) error { do(t, n, "DEL", "report"); return nil })
		put(t, f.Nodes()[:1], "SET", "data")
		code, _, errs := run(t, "run", nodes(f), "--wait=5s", "report", "--", "true")
		require.Equal(t, 0, code, errs)
	})
}

// What may change on the servers is waited for, and said. What only other flags change is not.
func TestWhatEndsAWaitEarlyAndWhatDoesNot(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "run", nodes(f), "--max-ttl=50s", "k", "--", "true")
	require.Equal(t, 64, code, errs)
	f = fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	p := start(t, nil, nil, "run", nodes(f), "--durable", "k", "--", "true")
	eventually(t, "the line", func() bool { return p.said() != "" })
	require.Regexp(t, `^redlock: waiting \(--wait forever\): 0 of 3 nodes vote, and it takes 2; all: .*set appendonly yes and appendfsync always`, p.said())
	everyNode(t, f, func(n *fleet.Node) error {
		do(t, n, "CONFIG", "SET", "appendfsync", "always")
		do(t, n, "CONFIG", "SET", "appendonly", "yes")
		fleettest.AwaitAppendOnlyFile(t, n)
		return nil
	})
	code, _, errs = run(t, "enroll", "--durable", nodes(f))
	require.Equal(t, 0, code, errs)
	code, _, errs = p.wait()
	require.Equal(t, 0, code, errs)
}
