package main_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// When redlock goes on, it hears of the time and of the end of the command at once. What has ended needs not be ended.
func TestACommandThatEndedWhileRedlockStoodStillKeepsItsExitCode(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	const script = `echo $$ >"$0.pid"; while [ ! -e "$0" ]; do sleep 0.02; done; exit 3`
	dir := t.TempDir()
	var all []*process
	for i := range 8 { // each could be right by chance
		key := "key-" + strconv.Itoa(i)
		all = append(all, start(t, nil, nil, "run", nodes(f), "--ttl=6s", "--kill-after=2s", key, "--", "bash", "-c", script, dir+"/"+key))
	}
	for i, p := range all {
		file := dir + "/key-" + strconv.Itoa(i)
		command := pidIn(t, file+".pid")
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		eventually(t, "the end of the command", func() bool { return isDead(command) })
	}
	for i, p := range all {
		eventually(t, "the end of the lease to be near", func() bool {
			return do(t, f.Nodes()[0], "PTTL", "key-"+strconv.Itoa(i)).(int64) < 1500
		})
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	}
	for _, p := range all {
		code, _, errs := p.wait()
		require.NotContains(t, errs, "told to end")
		if !strings.Contains(errs, "before the command ended") { // the machine was so busy that the lease ended first
			require.Equal(t, 3, code, errs)
		}
	}
}
