//go:build unix

package main_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/quorumlock/redlock/internal/fleet"
)

// Other data on a minority is in everybody's way while another node is away, and nobody holds the lock.
func TestRunSaysThatOtherDataIsInTheWayWhileANodeIsAway(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	do(t, f.Nodes()[0], "SET", "report", "data")
	assert.NoError(t, f.Nodes()[2].Kill())

	code, out, errs := run(t, "inspect", nodes(f), "report")
	assert.Equal(t, 0, code, errs)
	t.Log(strings.SplitN(out, "\n", 2)[0])
	assert.NotContains(t, out, "is being taken or released, or the rest of it expires")
	for _, flag := range []string{"--wait=0", "--wait=2s"} {
		code, _, errs := run(t, "run", nodes(f), flag, "report", "--", "true")
		t.Log(flag, code, errs)
		assert.Equal(t, 64, code, flag)
		assert.Contains(t, errs, "which never expires; delete it (redlock release --force --foreign report)", flag)
	}
	p := start(t, nil, nil, "run", nodes(f), "report", "--", "true")
	within(t, 8*time.Second, "a word of the run that waits", func() bool { return p.said() != "" })
	assert.Contains(t, p.said(), "delete it (redlock release --force --foreign report)")
	do(t, f.Nodes()[0], "DEL", "report")
	code, _, errs = p.wait()
	assert.Equal(t, 0, code, errs)
}

// A lease that expires is on the other nodes, of which one is away: somebody holds the lock, and nobody is told to delete anything.
func TestRunNamesTheHolderBesideOtherDataWhileANodeIsAway(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	do(t, f.Nodes()[0], "SET", "k", "data")
	l := hold(t, newClient(t, f), "k")
	assert.NoError(t, f.Nodes()[2].Kill())
	for _, flag := range []string{"--wait=0", "--wait=2s"} {
		code, _, errs := run(t, "run", nodes(f), flag, "k", "--", "true")
		assert.Equal(t, 75, code, "%s: %s", flag, errs)
		assert.NotContains(t, errs, "delete it", flag)
	}
	_, out, _ := run(t, "inspect", nodes(f), "k")
	assert.NotContains(t, out, "nobody holds it")
	assert.True(t, l.Valid())
}

// The node with the other data has no vote, or what is in the way beside it expires: both pass.
func TestInspectDoesNotCallALockBlockedThatWillBeFree(t *testing.T) {
	t.Parallel()
	const left = "0123456789abcdef0123456789abcdef:01234567:web-1/7"
	for name, flushed := range map[string]bool{"without a vote": true, "with a vote": false} {
		f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
		if flushed {
			do(t, f.Nodes()[0], "FLUSHALL")
		}
		do(t, f.Nodes()[0], "SET", "k", "data")
		do(t, f.Nodes()[1], "SET", "k", left, "PX", 3000)
		_, out, _ := run(t, "inspect", nodes(f), "k")
		assert.NotContains(t, out, "cannot be acquired", name)
		code, _, errs := run(t, "run", nodes(f), "--wait=20s", "k", "--", "true")
		assert.Equal(t, 0, code, "%s: %s", name, errs)
	}
}
