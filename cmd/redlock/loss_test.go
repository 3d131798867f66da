//go:build unix

package main_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// size returns the size of a file.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// lastTime returns the last time that a loop of `date +%s%N` wrote.
func lastTime(t *testing.T, path string) time.Time {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	whole := strings.Split(string(text), "\n")
	require.GreaterOrEqual(t, len(whole), 2)
	nanos, err := strconv.ParseInt(whole[len(whole)-2], 10, 64) // the text after the last newline may be incomplete
	require.NoError(t, err)
	return time.Unix(0, nanos)
}

// The first command ignores TERM. The second ends, but a process that it started ignores TERM. The third ends properly
// within its grace period.
func TestTheCommandIsDeadBeforeAnotherCanHaveTheLock(t *testing.T) {
	f := startEnrolled(t, fleet.Process, fleet.Options{Links: true})
	const write = "while :; do date +%s%N; sleep 0.005; done >"
	dir := t.TempDir()
	scripts := map[string]string{
		"deaf":     "trap '' TERM; " + write,
		"orphan":   "(trap '' TERM; exec sh -c '" + write + "\"$0\"' \"$0\") & wait",
		"obedient": "trap 'exit 0' TERM; " + write,
	}
	type acquired struct {
		at  time.Time
		err error
	}
	ran, second := map[string]*process{}, map[string]chan acquired{}
	other := newClient(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for key, script := range scripts {
		out := filepath.Join(dir, key)
		if key != "orphan" {
			script += `"$0"`
		}
		ran[key] = start(t, nil, nil, "run", nodes(f), "--ttl=8s", "--kill-after=3s", key, "--", "sh", "-c", script, out)
		eventually(t, key+" at work", func() bool { return size(out) > 0 })
		second[key] = make(chan acquired, 1)
		go func() {
			lease, err := other.Mutex(key).Acquire(ctx)
			at := time.Now()
			if err == nil {
				err = lease.Release(ctx)
			}
			second[key] <- acquired{at, err}
		}()
	}
	for key := range scripts { // a renewal takes the key to nodes that the acquire did not ask
		everyNode(t, f, func(n *fleet.Node) error {
			eventually(t, key+" on "+n.Name(), func() bool { return do(t, n, "GET", key) != nil })
			return nil
		})
	}
	everyNode(t, f, (*fleet.Node).Cut)
	cut := time.Now()
	for key, p := range ran {
		code, _, stderr := p.wait()
		assert.Equal(t, 76, code, key)
		assert.Regexp(t, `(?m)\Aredlock: lease lost.*\n\z`, strings.TrimPrefix(stderr, "Terminated\n")) // a shell may say that
		got := <-second[key]
		require.NoError(t, got.err)
		last := lastTime(t, filepath.Join(dir, key))
		assert.True(t, last.Before(got.at), "%s wrote %v after another had the lock", key, last.Sub(got.at))
		assert.True(t, last.After(cut), "%s was ended before anything was wrong", key)
		t.Logf("%s: last written %v after the cut, acquired %v later; %s", key, last.Sub(cut), got.at.Sub(last), stderr)
	}
}

func TestNoQuorumExits69(t *testing.T) {
	f := startEnrolled(t, fleet.Process, fleet.Options{Links: true})
	everyNode(t, f, (*fleet.Node).Cut)
	for _, wait := range []string{"0", "1ms", "400ms"} {
		code, _, stderr := run(t, "run", nodes(f), "--wait", wait, "k", "--", "true")
		assert.Equal(t, 69, code, stderr)
	}
	for sig, want := range endings {
		p := start(t, nil, nil, "run", nodes(f), "k", "--", "true")
		eventually(t, "the line about waiting", func() bool { return strings.Contains(p.said(), "waiting") })
		require.NoError(t, p.cmd.Process.Signal(sig))
		code, _, stderr := p.wait()
		assert.Equal(t, want, code, stderr)
		assert.Contains(t, stderr, "redlock: interrupted by "+signalName(sig)+" before the lock was acquired\n")
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	f := startEnrolled(t, fleet.Embedded, fleet.Options{})
	for name, sig := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
		"QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		ready := filepath.Join(t.TempDir(), "ready")
		p := start(t, nil, nil, "run", nodes(f), name, "--", "sh", "-c",
			"trap 'echo got "+name+"; exit 9' "+name+"; echo >\"$0\"; while :; do sleep 0.05; done", ready)
		eventually(t, "the command", func() bool { return size(ready) > 0 })
		require.NoError(t, p.cmd.Process.Signal(sig))
		code, stdout, _ := p.wait()
		assert.Equal(t, 9, code, name)
		assert.Equal(t, "got "+name+"\n", stdout)
	}
}

func TestASignalThatEndsTheCommandIsItsExitCode(t *testing.T) {
	f := startEnrolled(t, fleet.Embedded, fleet.Options{})
	ready := filepath.Join(t.TempDir(), "ready")
	p := start(t, nil, nil, "run", nodes(f), "k", "--", "sh", "-c", `echo >"$0"; exec sleep 20`, ready)
	eventually(t, "the command", func() bool { return size(ready) > 0 })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, _, _ := p.wait()
	assert.Equal(t, 143, code)
	lease, err := newClient(t, f).Mutex("k").TryAcquire(t.Context()) // it was released
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}
