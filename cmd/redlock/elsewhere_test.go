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
	for end := time.Now().Add(8 * time.Second); p.said() == "" && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("a run that waits says: %q", p.said())
	assert.Contains(t, p.said(), "delete it (redlock release --force --foreign report)")
	do(t, f.Nodes()[0], "DEL", "report")
	code, _, errs = p.wait()
	assert.Equal(t, 0, code, errs)
}
