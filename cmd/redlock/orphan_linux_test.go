package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheCommandDiesWithRedlock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p := start(t, nil, nil, "run", "--nodes=embedded", "k", "--", "sh", "-c", `echo $$ >"$0"; exec sleep 20 >/dev/null`, file)
	eventually(t, "the command", func() bool { return size(file) > 0 })
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Kill())
	p.wait()
	eventually(t, "the end of the command", func() bool {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ")
	})
}
