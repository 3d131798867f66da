//go:build unix

package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/scoreboard"
)

func boardOf(t *testing.T, text string) (b scoreboard.Board) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &b), text)
	return b
}

// In this scenario one baseline is unsafe in every run, and this library is safe.
func TestAScoreboardTellsTheLocksApartAndItsCellsCanBeRepeated(t *testing.T) {
	t.Parallel()
	code, out, errs := run(t, "chaos", "scoreboard", "--fleet", "embedded", "--scenario", "client-clock", "--subject", "redlock,getset", "--seeds", "1", "--json")
	require.Equal(t, 1, code, errs)
	b := boardOf(t, out)
	require.True(t, b.Whole)
	require.Len(t, b.Cells, 2)
	require.Equal(t, "safe", b.Cells[0].Text, errs)
	require.Contains(t, b.Cells[1].Text, "unsafe 1/1: overlap (", errs)
	again := strings.Fields(b.Cells[1].Runs[0].Replay)
	require.Equal(t, "redlock", again[0])
	code, out, errs = run(t, append(again[1:], "--json")...)
	require.Equal(t, 1, code, errs)
	require.Equal(t, "getset", parseReport(t, []byte(out)).Subject)
}

func TestAnInterruptedScoreboardHasWhatRanAndGoesOn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "board.json")
	args := []string{"chaos", "scoreboard", "--fleet", "embedded", "--scenario", "control,client-clock", "--subject", "redlock", "--seeds", "1", "--resume", file}
	p := start(t, nil, nil, args...)
	eventually(t, "the second run", func() bool { return strings.Contains(p.said(), "[2/2] ") })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	code, out, errs := p.wait()
	require.Equal(t, 130, code, errs)
	require.Regexp(t, `(?s)SCENARIO .*control +no fault +safe\nclient-clock .* –\n.*NOT WHOLE`, out)
	require.Contains(t, errs, "interrupted by SIGINT")

	code, out, errs = run(t, append(args, "--json")...)
	require.Equal(t, 0, code, errs)
	require.Contains(t, errs, "1 of 2 runs are there already\n[1/1] client-clock: redlock")
	b := boardOf(t, out)
	require.True(t, b.Whole)
	for _, c := range b.Cells {
		require.Equal(t, check.Safe, c.Runs[0].Verdict)
	}
}

func TestAScoreboardThatCannotBeKeptIsOneObjectWithTheError(t *testing.T) {
	t.Parallel()
	histories := filepath.Join(t.TempDir(), "histories")
	p := start(t, nil, nil, "chaos", "scoreboard", "--fleet", "embedded", "--scenario", "client-clock", "--subject", "getset", "--seeds", "1",
		"--json", "--histories", histories)
	eventually(t, "the run", func() bool { return strings.Contains(p.said(), "[1/1] ") })
	require.NoError(t, os.RemoveAll(histories))
	code, out, errs := p.wait()
	require.Equal(t, 2, code, errs)
	require.Equal(t, check.Unsafe, boardOf(t, out).Cells[0].Runs[0].Verdict)
	require.Contains(t, out, `,"kind":"failed"}`)
	require.Contains(t, errs, "no such file")
}
