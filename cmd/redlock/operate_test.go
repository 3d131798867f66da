//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// What a new user does: on five new servers, doctor says why nothing is granted, and enroll ends that.
func TestDoctorSaysWhatIsWrongAndEnrollEndsAQuarantine(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	code, out, _ := run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	var names []string
	for _, n := range f.Nodes() {
		names = append(names, strings.TrimPrefix(n.URL(), "redis://"))
	}
	require.Contains(t, out, "✗ "+strings.Join(names, ", ")+": each has no vote: it is new, or ")
	require.Equal(t, 1, strings.Count(out, "it is new, or "), "what all have in common is said once: %s", out)
	require.Contains(t, out, "redlock enroll")
	require.Contains(t, out, "✗ 0 of 5 nodes vote")

	code, _, errs := run(t, "run", "--wait", "0", nodes(f), "k", "--", "true")
	require.Equal(t, 69, code)
	require.Contains(t, errs, "redlock enroll")

	code, out, errs = run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "5 nodes enrolled")

	code, out, _ = run(t, "doctor", nodes(f))
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "✓ 5 of 5 nodes vote")
	code, _, errs = run(t, "run", "--wait", "0", nodes(f), "k", "--", "true")
	require.Equal(t, 0, code, errs)

	require.NoError(t, f.Nodes()[3].Kill())
	code, out, _ = run(t, "doctor", "--json", nodes(f))
	require.Equal(t, 1, code)
	var d struct {
		Votes int
		Nodes []struct {
			Votes   bool
			Problem string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Equal(t, 4, d.Votes)
	require.False(t, d.Nodes[3].Votes)
	require.NotEmpty(t, d.Nodes[3].Problem)
	code, _, errs = run(t, "enroll", nodes(f))
	require.Equal(t, 69, code)
	require.Contains(t, errs, "4 nodes enrolled already: "+namesOf(slices.Concat(f.Nodes()[:3], f.Nodes()[4:]))+"; nothing was changed; not enrolled: "+namesOf(f.Nodes()[3:4])+": ")
}

func TestDoctorHasAWordOnTheNumberOfNodes(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 4})
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	code, out, _ := run(t, "doctor", nodes(f))
	require.Equal(t, 0, code)
	require.Contains(t, out, "4 nodes tolerate no more failures than 3 would")
	code, out, _ = run(t, "doctor", nodes(startEnrolled(t, fleet.Process, fleet.Options{Nodes: 1})))
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "one node alone")
}

func TestDoctorFindsTheRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	for i, right := range []string{"-zscore", "-zadd"} {
		conn, err := f.Nodes()[i].DialDirect(t.Context(), 5*time.Second)
		require.NoError(t, err)
		_, err = conn.Do("ACL", "SETUSER", "default", right)
		require.NoError(t, err)
		conn.Close()
	}
	code, out, _ := run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	require.Equal(t, 2, strings.Count(out, "docs/operations.md has the rights"), out)
	require.Contains(t, out, "a command that a lock needs fails", "if it is a script that is used under contention")
	require.Contains(t, out, "✗ 1 of 3 nodes vote")
	require.Empty(t, keysOf(t, f, "doctor/*"))
}

// A node whose marker may not be read is no new one: neither does it begin a quarantine again and again, nor does enroll
// say that it is enrolled.
func TestANodeThatMayNotBeReadIsNotTakenForANewOne(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	fleettest.SetUser(t, f.Nodes()[1], "default", "-get")
	blind := strings.TrimPrefix(f.Nodes()[1].URL(), "redis://")
	code, out, _ := run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	require.Regexp(t, "✗ "+blind+" has no vote: .*GET redlock:.*docs/operations.md has the rights", out)
	require.NotContains(t, out, "quarantine for")
	code, _, errs := run(t, "enroll", "--yes", nodes(f))
	require.Equal(t, 69, code, errs)
	require.Regexp(t, "2 nodes enrolled already: .*; nothing was changed; not enrolled: "+blind+": .*GET redlock:", errs)
}

func TestDoctorFindsTheChannelRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "deaf", "on", ">secret", "~*", "+@all", "resetchannels")
	}
	asDeaf := strings.ReplaceAll(nodes(f), "redis://", "redis://deaf:secret@")
	code, out, _ := run(t, "doctor", asDeaf)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "✓ 3 of 3 nodes vote")
	require.Equal(t, 1, strings.Count(out, "&redlock:released:*"), "of all three: %s", out)
	code, out, _ = run(t, "doctor", "--json", asDeaf)
	require.Equal(t, 0, code, out)
	require.Equal(t, 3, strings.Count(out, "NOPERM"), out)
	_, out, _ = run(t, "doctor", nodes(f))
	require.NotContains(t, out, "redlock:released")
}

func TestInspectSaysWhoHoldsALockAndReleaseTakesIt(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	code, out, _ := run(t, "inspect", nodes(f), "k")
	require.Equal(t, 0, code)
	require.Contains(t, out, "k is free")

	p := start(t, nil, nil, "run", nodes(f), "--ttl", "2s", "--kill-after", "100ms", "k", "--", "sleep", "20")
	type lock struct {
		Held            bool
		Owner, Label    string
		Token           string
		RemainingMillis int64 `json:"remaining_millis"`
		Fence           uint64
		Nodes           []struct {
			Held    bool
			Token   string
			Problem string
		}
	}
	inspect := func() (l lock) {
		code, out, errs := run(t, "inspect", "--json", nodes(f), "k")
		require.Equal(t, 0, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &l))
		return l
	}
	var held lock
	require.Eventually(t, func() bool { // a quorum has it first, and the third node a little later
		held = inspect()
		return held.Held && held.Nodes[0].Held && held.Nodes[1].Held && held.Nodes[2].Held
	}, 5*time.Second, 10*time.Millisecond)
	require.Regexp(t, `^[0-9a-f]{32}:[0-9a-f]{8}:[^ :]+/[0-9]+:sleep$`, held.Token)
	require.Equal(t, "sleep", held.Label)
	require.Regexp(t, `/[0-9]+$`, held.Owner)
	require.Positive(t, held.RemainingMillis)
	require.Positive(t, held.Fence)
	require.Equal(t, held.Token, held.Nodes[0].Token)
	code, out, _ = run(t, "inspect", nodes(f), "k", "other")
	require.Equal(t, 0, code)
	require.Contains(t, out, "k is held by "+held.Owner+" (sleep) on 3 of 3 nodes")
	require.Contains(t, out, "other is free")

	code, _, errs = run(t, "release", nodes(f), "k")
	require.Equal(t, 64, code)
	require.Contains(t, errs, "--force")
	require.True(t, inspect().Held)
	code, out, errs = run(t, "release", "--force", nodes(f), "k")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, held.Owner+" (sleep)")
	require.Contains(t, out, "k was released")
	require.False(t, inspect().Held)
	code, out, _ = run(t, "release", "--force", nodes(f), "k")
	require.Equal(t, 0, code)
	require.Contains(t, out, "nothing to release")
	require.Equal(t, held.Fence, inspect().Fence)
	code, _, errs = p.wait()
	require.Equal(t, 76, code, errs)

	require.NoError(t, f.Nodes()[0].Kill())
	require.NoError(t, f.Nodes()[1].Kill())
	code, out, errs = run(t, "inspect", nodes(f), "k")
	require.Equal(t, 69, code, errs)
	require.Contains(t, out, "k: unknown: too few nodes vote (1 of 3 nodes, and it takes 2)")
	code, _, _ = run(t, "release", "--force", nodes(f), "k")
	require.Equal(t, 69, code)
	code, _, errs = run(t, "inspect", nodes(f))
	require.Equal(t, 64, code)
	require.Contains(t, errs, "needs a KEY")
}

func TestBenchMeasuresAndLeavesNothing(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "bench", nodes(f), "--seconds", "0.2")
	require.Equal(t, 69, code, "they are in quarantine")
	require.Contains(t, errs, "redlock enroll")
	code, _, errs = run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)

	code, out, errs := run(t, "bench", nodes(f), "--node-timeout=3s", "--seconds", "0.3", "--goroutines", "4", "--json")
	require.Equal(t, 0, code, errs)
	type latency struct {
		Count int
		P50   int64 `json:"p50_micros"`
		P99   int64 `json:"p99_micros"`
		Max   int64 `json:"max_micros"`
	}
	type load struct {
		Goroutines int
		Cycles     float64 `json:"cycles_per_second"`
		Acquire    latency
		Release    latency
	}
	var r struct {
		Nodes           int
		Alone, Together load
		HandOver        latency `json:"hand_over"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, []int{3, 1, 4}, []int{r.Nodes, r.Alone.Goroutines, r.Together.Goroutines})
	for _, l := range []latency{r.Alone.Acquire, r.Alone.Release, r.Together.Acquire, r.Together.Release, r.HandOver} {
		require.Positive(t, l.Count)
		require.Positive(t, l.P50)
		require.LessOrEqual(t, l.P50, l.P99)
		require.LessOrEqual(t, l.P99, l.Max)
	}
	require.Greater(t, r.Together.Cycles, 0.0)
	require.Empty(t, keysOf(t, f, "bench/*"))

	code, out, _ = run(t, "bench", nodes(f), "--node-timeout=3s", "--seconds", "0.1")
	require.Equal(t, 0, code)
	require.Regexp(t, `hand-over between two clients \([0-9]+ times?\)`, out)
	code, _, errs = run(t, "bench", nodes(f), "--goroutines", "0")
	require.Equal(t, 64, code)
	require.Contains(t, errs, "--goroutines")
}

func keysOf(t *testing.T, f *fleet.Fleet, pattern string) (all []string) {
	t.Helper()
	for _, n := range f.Nodes() {
		conn, err := n.DialDirect(t.Context(), 5*time.Second)
		require.NoError(t, err)
		keys, err := redis.Strings(conn.Do("KEYS", pattern))
		conn.Close()
		require.NoError(t, err)
		all = append(all, keys...)
	}
	return all
}

// The commands are given one group of NewSharded. They know of the others only what the nodes hold.
func TestCommandsWorkOnOneGroupOfSeveral(t *testing.T) {
	t.Parallel()
	a, b := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3}), fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	sharded := func() *redlock.Sharded {
		s, err := redlock.NewSharded(redlock.Config{Nodes: redlock.Nodes(a.URLs()...)}, redlock.Config{Nodes: redlock.Nodes(b.URLs()...)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	s := sharded()
	require.NoError(t, s.Enroll(t.Context()))
	code, _, errs := run(t, "doctor", nodes(a), "--node-timeout=3s")
	require.Equal(t, 0, code, errs)
	for range 5 { // the names of its locks are random
		code, _, errs = run(t, "bench", nodes(a), "--node-timeout=3s", "--seconds=0.01", "--goroutines=2")
		require.Equal(t, 0, code, errs)
	}
	of := map[*redlock.Client]string{}
	for i := 0; len(of) < 2; i++ {
		name := fmt.Sprint("order/", i)
		of[s.Group(name)] = name
	}
	code, _, errs = run(t, "run", nodes(a), "--node-timeout=3s", of[s.Groups()[0]], "--", "true")
	require.Equal(t, 0, code, errs)
	code, _, errs = run(t, "run", nodes(a), "--node-timeout=3s", of[s.Groups()[1]], "--", "true")
	require.Equal(t, 64, code)
	require.Contains(t, errs, strings.TrimPrefix(b.Nodes()[0].URL(), "redis://"))
	code, _, errs = run(t, "inspect", nodes(a), "--node-timeout=3s", of[s.Groups()[1]])
	require.Equal(t, 0, code, errs)
	code, _, errs = run(t, "enroll", nodes(a), "--node-timeout=3s", "--change-config", "--max-ttl=20s", "--yes")
	require.Equal(t, 0, code, errs)
	held, err := redlock.AgreedConfig(t.Context(), redlock.Config{Nodes: redlock.Nodes(a.URLs()...)})
	require.NoError(t, err)
	require.Equal(t, 20*time.Second, held.MaxTTL)
	_, err = sharded().Mutex(of[s.Groups()[0]]).TryAcquire(t.Context())
	require.ErrorContains(t, err, "MaxTTL is 30s here and 20s there")
	require.NotContains(t, err.Error(), "Groups", "enroll keeps them")
}
