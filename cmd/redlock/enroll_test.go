//go:build unix

package main_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// namesOf is the nodes as the command names them.
func namesOf(nodes []*fleet.Node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, strings.TrimPrefix(n.URL(), "redis://"))
	}
	return strings.Join(all, ", ")
}

// A server that is unfit would not vote if it were enrolled, nor after a quarantine: what enroll says must be why.
func TestEnrollSaysWhyAServerIsUnfitAmongOthersThatAreInUse(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	replica := f.Nodes()[2]
	host, port, err := f.Nodes()[0].PeerAddress()
	require.NoError(t, err)
	do(t, replica, "FLUSHALL")
	do(t, replica, "REPLICAOF", host, port)
	for _, flag := range []string{"--only-new", "--json", "--yes"} {
		code, out, errs := run(t, "enroll", flag, nodes(f))
		require.Equal(t, 69, code, out+errs)
		require.Contains(t, out+errs, "it is a replica of "+host+":"+port)
		require.NotContains(t, out+errs, "would vote at once")
	}
}

// In a pipe, what may let two clients hold one lock needs --yes. A node that forgot among nodes that are in use could be
// new, or have taken the place of one that granted locks: --only-new cannot tell.
func TestEnrollChangesNothingThatIsInUseUnlessToldTo(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	sick := f.Nodes()[2]
	marker := func(n *fleet.Node) any { return do(t, n, "GET", "redlock:node") }

	code, out, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Equal(t, "3 nodes enrolled: "+namesOf(f.Nodes())+"; leases of up to 30s are granted from now on\n", out, "new servers need no confirmation")
	code, out, errs = run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Equal(t, "3 nodes enrolled already: "+namesOf(f.Nodes())+"; nothing was changed\n", out)

	for flag, remedy := range map[string]string{"--only-new": "leave out --only-new", "--only-new --yes": "leave out --only-new",
		"--json": "add --yes", "": "add --yes"} {
		do(t, sick, "FLUSHALL")
		code, out, errs = run(t, strings.Fields("enroll "+nodes(f)+" "+flag)...)
		require.Equal(t, 64, code, out)
		require.Contains(t, out+errs, "are in use, and "+strings.TrimPrefix(sick.URL(), "redis://")+" would vote at once")
		require.Contains(t, out+errs, remedy+"; nothing was changed")
		before := marker(sick)
		require.True(t, before == nil || strings.Contains(string(before.([]byte)), "/"), "it has none, or is in quarantine: %s", before)
	}
	code, out, errs = run(t, "enroll", "--yes", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Equal(t, "1 node enrolled: "+namesOf(f.Nodes()[2:])+"; 2 were already: "+namesOf(f.Nodes()[:2])+"; leases of up to 30s are granted from now on\n", out)

	for _, n := range f.Nodes()[1:] {
		do(t, n, "FLUSHALL")
	}
	code, _, errs = run(t, "enroll", nodes(f))
	require.Equal(t, 64, code)
	require.Contains(t, errs, "is in use, and "+namesOf(f.Nodes()[1:])+" would vote at once, without the locks that they or their predecessors granted; they vote by themselves after their quarantines; ")
	code, _, errs = run(t, "enroll", "--yes", nodes(f))
	require.Equal(t, 0, code, errs)

	// A configuration that others use.
	code, _, errs = run(t, "enroll", "--change-config", "--max-ttl=20s", nodes(f))
	require.Equal(t, 64, code)
	require.Contains(t, errs, "it changes on all: MaxTTL from 30s to 20s")
	require.NoError(t, sick.Pause())
	code, _, errs = run(t, "enroll", "--change-config", "--max-ttl=20s", nodes(f))
	require.NoError(t, sick.Resume())
	require.Equal(t, 69, code)
	require.Contains(t, errs, strings.TrimPrefix(sick.URL(), "redis://")+" is not reached (it did not answer within 1s), and may still hold another one")
	before := marker(sick)
	code, out, errs = run(t, "enroll", "--change-config", "--max-ttl=20s", "--yes", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "leases of up to 20s")
	require.NotEqual(t, before, marker(sick))
	code, _, errs = run(t, "enroll", "--change-config", "--only-new", nodes(f))
	require.Equal(t, 64, code)
	require.Contains(t, errs, "not both")
}

// A node that this host does not reach may be in use, and the one that it reaches may have taken the place of another.
func TestEnrollDoesNotTakeAPartitionForNewServers(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	replaced := f.Nodes()[2]
	do(t, replaced, "FLUSHALL")
	list := "--nodes=127.0.0.1:1,127.0.0.1:2," + strings.TrimPrefix(replaced.URL(), "redis://")
	for _, flag := range []string{"--only-new", "--prefix="} {
		code, _, errs := run(t, "enroll", flag, list)
		require.Equal(t, 69, code)
		require.Contains(t, errs, "127.0.0.1:1, 127.0.0.1:2 are not reached (dial tcp: connect: connection refused)")
		require.Contains(t, errs, "nothing was changed")
		code, out, _ := run(t, "doctor", nodes(f))
		require.Equal(t, 1, code)
		require.Contains(t, out, "✓ 2 of 3 nodes vote", "the third is in quarantine")
	}
	code, _, errs := run(t, "enroll", "--yes", list)
	require.Equal(t, 69, code)
	require.Contains(t, errs, "1 node enrolled: "+namesOf(f.Nodes()[2:])+"; not enrolled: 127.0.0.1:1, 127.0.0.1:2: dial tcp: connect: connection refused")
	require.Contains(t, errs, "is redis-server running there", "the remedy that doctor gives")
}

// After a power cut the servers may still have keys, and nobody votes.
func TestEnrollOfServersThatWereUsedNeedsAWord(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	everyNode(t, f, func(n *fleet.Node) error {
		if err := n.Kill(); err != nil {
			return err
		}
		return n.Start(t.Context(), fleet.Kept)
	})
	code, _, errs = run(t, "enroll", nodes(f))
	require.Equal(t, 64, code)
	require.Contains(t, errs, "all: not new, because it has keys, fencing tokens or a marker; it may have forgotten locks")
	require.Contains(t, errs, "if you know that within the longest lease of any client no node restarted, was flushed, failed over or was replaced, add --yes")
	code, out, _ := run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	require.Contains(t, out, "✗ 0 of 3 nodes vote")
	code, out, errs = run(t, "enroll", "--yes", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "3 nodes enrolled")
}

// Servers of another library: their keys are all there, and what must be known is that none of them was lost. A user
// that may not look for keys is another matter.
func TestEnrollTellsKeysFromAMissingRight(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	do(t, f.Nodes()[0], "SET", "of-redsync", "value", "PX", 60000)
	fleettest.SetUser(t, f.Nodes()[1], "default", "-dbsize")
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 64, code)
	at := func(i int) string { return strings.TrimPrefix(f.URLs()[i], "redis://") }
	require.Contains(t, errs, at(0)+": not new, because it has keys")
	require.Contains(t, errs, at(1)+": its user lacks the rights to DBSIZE and EXISTS, so it is not known whether it is new")
	require.NotContains(t, errs, at(2))
	require.Contains(t, errs, "nothing was changed")
	code, out, errs := run(t, "enroll", "--yes", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "3 nodes enrolled")
}

// A prefix is written on the nodes. Under one that their user may not use, they would be enrolled and nobody could lock.
func TestEnrollChangesNothingWhereItsUserMayNotLock(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	var urls []string
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "locker", "on", ">right", "~lock:*", "~redlock:*", "&*", "+@all")
		urls = append(urls, strings.Replace(n.URL(), "://", "://locker:right@", 1))
	}
	list := "--nodes=" + strings.Join(urls, ",")
	refused := func(args ...string) {
		t.Helper()
		code, out, errs := run(t, append([]string{"enroll", list, "--prefix=other:"}, args...)...)
		require.Equal(t, 1, code, "%s%s", out, errs)
		require.Empty(t, out)
		require.Contains(t, errs, "nothing was changed, because its user may not lock there: all: a command that a lock needs fails: NOPERM")
		require.Contains(t, errs, "if they are for keys with a prefix, give --prefix")
	}
	refused("--only-new")
	refused("--yes")
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "locker", "-pexpire")
	}
	code, out, errs := run(t, "enroll", list, "--prefix=lock:", "--only-new")
	require.Equal(t, 1, code, "%s%s", out, errs)
	require.Contains(t, errs, "nothing was changed, because its user may not lock there: all: a command that a lock needs fails: PEXPIRE: NOPERM")
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "locker", "+pexpire")
	}
	for _, n := range f.Nodes() {
		require.Empty(t, do(t, n, "KEYS", "*"))
	}
	code, out, errs = run(t, "enroll", list, "--prefix=lock:", "--only-new")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "3 nodes enrolled: ")
	refused("--change-config", "--yes")
	require.Contains(t, string(do(t, f.Nodes()[0], "GET", "redlock:config").([]byte)), `Prefix "lock:"`)

	do(t, f.Nodes()[2], "FLUSHALL")
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "locker", "resetkeys", "~redlock:*")
	}
	code, out, errs = run(t, "enroll", list, "--prefix=lock:", "--json")
	require.Equal(t, 1, code, errs)
	var r struct {
		Votes int
		Kind  string
		Nodes []struct {
			Enrolled, Problem string
			Votes             bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	require.Equal(t, "no-vote", r.Kind)
	require.Zero(t, r.Votes)
	for i, enrolled := range []string{"already", "already", "no"} {
		require.Equal(t, enrolled, r.Nodes[i].Enrolled)
		require.Contains(t, r.Nodes[i].Problem, "NOPERM")
	}
}

// The commands take from most nodes what has no flag. So redlock enroll can give it to the others, and sets its own protocol.
func TestACommandThatDiffersInWhatHasNoFlagNamesNoCallOfTheLibrary(t *testing.T) {
	t.Parallel()
	const change = "; set the same in all clients, or, while none holds a lock, change the nodes with `redlock enroll --change-config`"
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	odd := f.Nodes()[0]
	skewed, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), MaxClockSkew: time.Second, NodeTimeout: 3 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, skewed.Close()) })
	require.NoError(t, skewed.Enroll(t.Context()))
	marker, config := do(t, odd, "GET", "redlock:node"), do(t, odd, "GET", "redlock:config")
	require.NoError(t, newClient(t, f).Enroll(t.Context(), redlock.ChangeConfig()))
	do(t, odd, "MSET", "redlock:node", marker, "redlock:config", config)
	for _, args := range []string{"doctor", "enroll"} {
		_, out, errs := run(t, args, nodes(f))
		require.Contains(t, out+errs, "MaxClockSkew is 500ms here and 1s there"+change+", which takes from most nodes what no flag gives")
	}
	code, _, errs := run(t, "enroll", nodes(f), "--change-config", "--yes")
	require.Equal(t, 0, code, errs)
	require.Contains(t, string(do(t, odd, "GET", "redlock:config").([]byte)), "MaxClockSkew 500ms\n")

	for _, n := range f.Nodes() {
		identity, _, _ := strings.Cut(string(do(t, n, "GET", "redlock:node").([]byte)), " ")
		old := regexp.MustCompile(`Protocol \d+`).ReplaceAllString(string(do(t, n, "GET", "redlock:config").([]byte)), "Protocol 2")
		do(t, n, "MSET", "redlock:node", identity+" 0123456789abcdef", "redlock:config", old)
	}
	code, _, errs = run(t, "run", nodes(f), "k", "--", "true")
	require.Equal(t, 64, code, errs)
	require.Regexp(t, `Protocol is \d+ here and 2 there`+regexp.QuoteMeta(change), errs)
	require.NotContains(t, errs, "most nodes", "of the protocol it takes its own")
	code, _, errs = run(t, "enroll", nodes(f), "--change-config", "--yes")
	require.Equal(t, 0, code, errs)
	code, _, errs = run(t, "run", nodes(f), "k", "--", "true")
	require.Equal(t, 0, code, errs)
}
