//go:build unix

package main_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
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
	t.Parallel()
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
		// A shell may say that it was terminated.
		assert.Regexp(t, `\Aredlock: the lease cannot be renewed \(.+\); [0-9.]+m?s of it are left\n(Terminated\n)?redlock: lease lost: it could not be renewed \(.+\n\z`, stderr)
		got := <-second[key]
		require.NoError(t, got.err)
		last := lastTime(t, filepath.Join(dir, key))
		assert.True(t, last.Before(got.at), "%s wrote %v after another had the lock", key, last.Sub(got.at))
		assert.True(t, last.After(cut), "%s was ended before anything was wrong", key)
		t.Logf("%s: last written %v after the cut, acquired %v later; %s", key, last.Sub(cut), got.at.Sub(last), stderr)
	}
}

// Two of three nodes are killed: the line names them, and not the one that answers.
func TestALossSaysWhichNodesDidNotRenewTheLeaseAndWhy(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--json=false", "--json", "--every=1m"} {
		t.Run(flag, func(t *testing.T) {
			begun := filepath.Join(t.TempDir(), "begun")
			f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
			p := start(t, nil, nil, "run", "--ttl=3s", flag, nodes(f), "k", "--", "sh", "-c", `touch "$0"; exec sleep 60`, begun)
			eventually(t, "the command", func() bool { _, err := os.Stat(begun); return err == nil })
			for _, n := range f.Nodes()[1:] {
				require.NoError(t, n.Kill())
			}
			why := `\(` + regexp.QuoteMeta(namesOf(f.Nodes()[1:])) + `: connection refused\)`
			lost := "lease lost: it could not be renewed " + why + ", "
			if flag == "--every=1m" {
				eventually(t, "the loss", func() bool { return strings.Contains(p.said(), "lease lost") })
				require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			}
			code, _, errs := p.wait()
			switch flag {
			case "--every=1m":
				require.Equal(t, 143, code, errs)
			default:
				require.Equal(t, 76, code, errs)
			}
			if flag == "--json" {
				require.Equal(t, 1, strings.Count(errs, "\n"), errs)
				require.Regexp(t, `"error":"`+lost, errs)
				return
			}
			require.Regexp(t, `\Aredlock: the lease cannot be renewed `+why+`; [12][0-9.]*s of it are left\nredlock: `+lost, errs)
			require.Equal(t, 1, strings.Count(errs, "cannot be renewed"), errs)
		})
	}
}

func TestALeaseThatIsRenewedAgainIsToldSo(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	log := newRunLog(t)
	p := start(t, nil, nil, "run", nodes(f), "--ttl=10s", "k", "--", "bash", "-c", `echo run >>"$0"; exec sleep 60`, string(log))
	log.await(t, "run", 1) // it has the lock
	for outage := 1; outage <= 2; outage++ {
		everyNode(t, f, (*fleet.Node).Cut)
		eventually(t, "the outage", func() bool { return strings.Count(p.said(), "cannot be renewed") == outage })
		everyNode(t, f, (*fleet.Node).Heal)
		eventually(t, "its end", func() bool { return strings.Count(p.said(), "redlock: the lease is renewed again\n") == outage })
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	_, _, errs := p.wait()
	require.Equal(t, 4, strings.Count(errs, "\n"), errs)
}

func TestNoQuorumExits69(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
