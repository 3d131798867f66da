package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/scoreboard"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/chaos/traffic"
	peers "github.com/quorumlock/redlock/compare/internal/subject"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// TestMain lets the test program be the client that a scenario kills.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == clientCommand {
		os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// Without a fault every library is a lock, so what a fault shows is not the adapter's. One that is on servers that forget is
// found unsafe.
func TestEveryLibraryIsALockUntilItsServersForget(t *testing.T) {
	fleettest.Require(t, fleet.Process)
	var out, log bytes.Buffer
	// On a busy machine, a peer that gives each server 50 ms may not get its lock at all: unsure. It runs again, for longer.
	subjects, count := []string(nil), 1+len(peers.Peers()) // at first those of the default
	for seconds := 1; seconds <= 10 && count > 0; seconds++ {
		out.Reset()
		args := []string{"--scenario", "control", "--seeds", "1", "--seconds", strconv.Itoa(seconds), "--json"}
		if subjects != nil {
			args = append(args, "--subject", strings.Join(subjects, ","))
		}
		require.Contains(t, []int{0, 2}, execute(t.Context(), args, &out, &log), log.String())
		var b scoreboard.Board
		require.NoError(t, json.Unmarshal(out.Bytes(), &b))
		require.True(t, b.Whole)
		require.Len(t, b.Cells, count)
		subjects = nil
		for _, c := range b.Cells {
			run := c.Runs[0]
			require.NotEqual(t, check.Unsafe, run.Verdict, "%s: %s", c.Subject, run.Why)
			if run.Verdict != check.Safe {
				subjects = append(subjects, c.Subject)
				continue
			}
			require.Positive(t, run.Acquired, c.Subject) // no more: how many depends on how busy the machine is
			require.Contains(t, run.Replay, "--subject "+c.Subject+" ")
		}
		count = len(subjects)
	}
	require.Empty(t, subjects, log.String())
	out.Reset()
	args := []string{"--scenario", "flush", "--subject", "bsm-redislock", "--seeds", "1"}
	require.Equal(t, 1, execute(t.Context(), args, &out, &log), log.String())
	require.Contains(t, out.String(), "bsm-redislock (one server)\nflush     a node is flushed  unsafe 1/1: overlap (")
}

func TestAClientOfALibraryCanBeKilled(t *testing.T) {
	fleettest.Require(t, fleet.Process)
	if err := traffic.ChildAvailable(); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	var out, log bytes.Buffer
	args := []string{"--scenario", "dead-holder", "--subject", "redsync-redigo", "--seeds", "1"}
	require.Equal(t, 0, execute(t.Context(), args, &out, &log), log.String())
	require.Contains(t, out.String(), "safe*\n")
}

// The context of a call bounds the wait. rueidislock makes that of the lease from it.
func TestALeaseOutlivesTheCallThatAcquiredIt(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, s := range peers.Peers() {
		t.Run(s.Name(), func(t *testing.T) {
			c, err := s.Open(t.Context(), subject.Options{Client: 1, URLs: f.URLs(), TTL: 2 * time.Second})
			require.NoError(t, err)
			defer c.Close()
			lease := acquire(t, c, s.Name())
			require.True(t, lease.Valid())

			ctx, done := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer done()
			_, err = c.Acquire(ctx, s.Name())
			require.Error(t, err)
			require.True(t, lease.Valid())
			require.NoError(t, lease.Release(t.Context()))
			lease = acquire(t, c, s.Name()) // it was released
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// acquire acquires a free lock. It tries more than once: after a late answer, rueidislock waits for a message that may never
// come, until the end of its context.
func acquire(t *testing.T, c subject.Client, name string) (lease subject.Lease) {
	var err error
	for range 5 {
		ctx, done := context.WithTimeout(t.Context(), 2*time.Second)
		lease, err = c.Acquire(ctx, name)
		done()
		if err == nil {
			return lease
		}
	}
	require.NoError(t, err)
	return nil
}

// A stalled subject is another one whose first server stands still for a quarter of a second when the last client is open, as
// on a busy machine.
type stalled struct {
	subject.Subject
	last int
}

func (s stalled) Open(ctx context.Context, o subject.Options) (subject.Client, error) {
	c, err := s.Subject.Open(ctx, o)
	if err != nil || o.Client != s.last {
		return c, err
	}
	conn, err := redis.DialURL(o.URLs[0])
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	defer conn.Close()
	if _, err = conn.Do("CLIENT", "PAUSE", 250); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func TestAServerThatIsSlowBeforeTheRunDoesNotPreventIt(t *testing.T) {
	fleettest.Require(t, fleet.Process)
	s, err := find("rueidislock")
	require.NoError(t, err)
	o, err := chaos.Run(t.Context(), chaos.Options{
		Scenario: "control", Subject: stalled{s, 3}, Clients: 3, Length: time.Second, Log: t.Output(),
	})
	require.NoError(t, err)
	require.Equal(t, check.Safe, o.Verdict)
}

func TestABadCommandLineIsToldFromAFailure(t *testing.T) {
	for _, args := range [][]string{{"--seeds", "0"}, {"--nonsense"}, {"surplus"}, {"--subject", "doom"}} {
		var out, log bytes.Buffer
		require.Equal(t, exitUsage, execute(t.Context(), args, &out, &log), args)
		require.NotEmpty(t, log.String())
		require.False(t, strings.Contains(log.String(), "["), "nothing was started")
	}
}
