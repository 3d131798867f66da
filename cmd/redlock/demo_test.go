//go:build unix

package main_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "demo", "--seconds=2", "--json")
	assert.Equal(t, 0, code, stderr)
	var v struct {
		OK                              bool
		Acquisitions, Overlaps, Counter int
		Lost                            int     `json:"lost_updates"`
		HandOvers                       int     `json:"hand_overs"`
		StaleRefused                    int     `json:"stale_writes_refused"`
		Quarantine                      float64 `json:"quarantine_seconds"`
		Faults, Checks                  []struct{ Name, Detail string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &v), stdout)
	assert.True(t, v.OK, stdout)
	assert.Positive(t, v.Acquisitions)
	assert.Positive(t, v.HandOvers)
	assert.Zero(t, v.Overlaps+v.Lost)
	assert.Equal(t, v.Acquisitions, v.Counter)
	assert.Equal(t, 1, v.StaleRefused)
	assert.Greater(t, v.Quarantine, 0.5, "no shorter than a lease")
	assert.Len(t, v.Faults, 3)
	assert.Len(t, v.Checks, 8)
}

func TestDemoInPlainLines(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, "demo", "--seconds=1")
	assert.Equal(t, 0, code, stdout)
	assert.Contains(t, stdout, "node-2 killed")
	assert.Contains(t, stdout, "✓ lost updates: 0")
	assert.NotContains(t, stdout, "\x1b")
	assert.NotContains(t, stdout, "✗")
	for line := range strings.Lines(stdout) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSpace(line)), 80, line)
	}
}

func TestDemoTellsAStory(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, "demo", "--seconds=2")
	assert.Equal(t, 0, code, stdout)
	rest := stdout
	for _, next := range []string{
		"Four clients increment one counter under one lock",
		"client 1 pauses while it holds the lock",
		"its lease is over; the next holder has fencing token",
		"refused, its token is too old",
		"node-1 killed",
		"node-2 killed: 3 of 5 nodes are left, 3 are a quorum",
		"node-1 restarted empty",
		"node-1 is in quarantine",
		"node-1 votes again",
		"✓ stale write: refused",
		"✓ quarantine: node-1",
		"Shown: ",
	} {
		_, after, found := strings.Cut(rest, next)
		if !assert.True(t, found, "%q, in this order, in\n%s", next, stdout) {
			return
		}
		rest = after
	}
}

// Before anybody had the lock, there is no line about acquisitions.
var incremented = regexp.MustCompile(`counter [1-9]`)

func TestDemoEndsEarlyWithWhatRan(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		p := start(t, nil, nil, "demo", "--seconds=60")
		eventually(t, "a line of progress, after an increment", func() bool { return incremented.MatchString(p.stdout.String()) })
		require.NoError(t, p.cmd.Process.Signal(sig))
		code, stdout, _ := p.wait()
		assert.Equal(t, want, code, stdout)
		assert.Contains(t, stdout, "Interrupted")
		handOvers := strings.Count(stdout, "✓ hand-overs between clients") // on a busy machine one client may have had it all along
		assert.Equal(t, 4, strings.Count(stdout, "✓")-handOvers, stdout)
		assert.NotContains(t, stdout, "Shown")
	}
}
