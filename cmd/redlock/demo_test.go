//go:build unix

package main_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) {
	code, stdout, stderr := run(t, "demo", "--seconds=2", "--json")
	assert.Equal(t, 0, code, stderr)
	var v struct {
		OK                              bool
		Acquisitions, Overlaps, Counter int
		Lost                            int `json:"lost_updates"`
		HandOvers                       int `json:"hand_overs"`
		Faults, Checks                  []struct{ Name, Detail string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &v), stdout)
	assert.True(t, v.OK, stdout)
	assert.Positive(t, v.Acquisitions)
	assert.Positive(t, v.HandOvers)
	assert.Zero(t, v.Overlaps+v.Lost)
	assert.Equal(t, v.Acquisitions, v.Counter)
	assert.Len(t, v.Faults, 3)
	assert.Len(t, v.Checks, 6)
}

func TestDemoInPlainLines(t *testing.T) {
	code, stdout, _ := run(t, "demo", "--seconds=1")
	assert.Equal(t, 0, code, stdout)
	assert.Contains(t, stdout, "node-2 killed")
	assert.Contains(t, stdout, "✓ no lost update")
	assert.NotContains(t, stdout, "\x1b")
	assert.NotContains(t, stdout, "✗")
}

func TestDemoEndsEarlyWithWhatRan(t *testing.T) {
	p := start(t, nil, nil, "demo", "--seconds=60")
	time.Sleep(1500 * time.Millisecond)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	code, stdout, _ := p.wait()
	assert.Equal(t, 130, code, stdout)
	assert.Contains(t, stdout, "Interrupted")
	assert.Equal(t, 5, strings.Count(stdout, "✓"), stdout)
}
