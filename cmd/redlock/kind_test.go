//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestRunSharesALockWithOthersThatReadOrWithSoMany(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	for _, kind := range [][]string{{"--read", "r"}, {"--semaphore=2", "s"}} {
		first := start(t, nil, nil, append(append([]string{"run", nodes(f)}, kind...), "--", "sleep", "20")...)
		key := kind[1]
		var state struct {
			Held    bool
			Sharers []struct {
				Token   string
				Label   string
				Slots   []int
				Permits int
			}
		}
		eventually(t, "the first to have the lock", func() bool {
			_, out, _ := run(t, "inspect", "--json", nodes(f), key)
			return json.Unmarshal([]byte(out), &state) == nil && len(state.Sharers) == 1
		})
		require.True(t, state.Held)
		_, out, _ := run(t, "inspect", nodes(f), key)
		require.Contains(t, out, key+" is shared by 1")
		require.Equal(t, "sleep", state.Sharers[0].Label)
		require.Regexp(t, `(?m)^  [^ :]+/[0-9]+ \(sleep\) (reads|has 1 permit \(slot [01] of 2\)), for `, out)
		require.NotContains(t, out, state.Sharers[0].Token, "whoever has a token can release the lock")
		code, _, errs := run(t, append(append([]string{"run", nodes(f), "--wait=0"}, kind...), "--", "true")...)
		require.Equal(t, 0, code, errs)
		code, _, _ = run(t, "run", nodes(f), "--wait=0", key, "--", "true")
		require.Equal(t, 75, code, "alone")
		require.NoError(t, first.cmd.Process.Kill())
		first.wait()
	}
}

// Nodes that refuse a writer say only that it is held by readers.
func TestWhoeverWaitsForThoseThatShareALockLearnsWhoTheyAre(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	var leases []*redlock.Lease
	share := func(lock redlock.Lock) {
		lease, err := lock.WithOwner("the report").Acquire(t.Context())
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	share(client.RWMutex("table").Reader())
	share(client.Semaphore("pool", 1))
	for range 3 {
		share(client.RWMutex("shelf").Reader())
	}
	waiting := map[string]*process{}
	for _, flags := range []string{"table", "--semaphore=1 pool", "shelf"} {
		args := append([]string{"run", nodes(f), "--wait=6s"}, strings.Fields(flags)...)
		waiting[flags[strings.LastIndex(flags, " ")+1:]] = start(t, nil, nil, append(args, "--", "true")...)
	}
	for key, p := range waiting {
		code, _, errs := p.wait()
		require.Equal(t, 75, code, errs)
		others := ""
		if key == "shelf" {
			others = " and 2 more, the last of them"
		}
		require.Regexp(t, `^redlock: waiting \(--wait 6s\): `+key+` is shared by \S+/\d+ \(the report\)`+others+`,? for [0-9.]+m?s unless it is renewed\n`+
			`redlock: held by another: [^\n]* \S+/\d+ \(the report\)[^\n]*\n$`, errs)
	}
	code, out, errs := run(t, "run", nodes(f), "--wait=0", "--json", "shelf", "--", "true")
	require.Equal(t, 75, code, out)
	require.Regexp(t, `"error":"held by another: [^"]*; shared by \S+/\d+ \(the report\) and 2 more","kind":"held"`, strings.ReplaceAll(errs, `\"`, "'"))
	for _, lease := range leases {
		require.NoError(t, lease.Release(t.Context()))
	}
}

// S6: Of a semaphore, a node that refuses says the largest number of permits that a holder there has.
func TestADifferentNumberOfPermitsIsSaid(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	var held []*redlock.Lease
	for range 3 {
		lease, err := client.Semaphore("pool", 3).Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, lease)
	}
	said := func(ours string, theirs int) string {
		return fmt.Sprintf("redlock: pool has %s here (--semaphore) and %d in another run or program; so up to 3 can hold it at a time; "+
			"give the same number everywhere\n", ours, theirs)
	}
	code, _, errs := run(t, "run", nodes(f), "--wait=0", "--semaphore=2", "pool", "--", "true")
	require.Equal(t, 75, code, errs)
	require.Equal(t, 1, strings.Count(errs, said("2 permits", 3)), errs)
	code, _, errs = run(t, "run", nodes(f), "--wait=0", "--semaphore=2", "--json", "pool", "--", "true")
	require.Equal(t, 75, code, errs)
	require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	require.Contains(t, errs, `"other_permits":3`)
	code, _, errs = run(t, "run", nodes(f), "--wait=0", "--semaphore=3", "pool", "--", "true")
	require.Equal(t, 75, code, errs)
	require.NotContains(t, errs, "everywhere")
	code, out, errs := run(t, "inspect", nodes(f), "pool")
	require.Equal(t, 0, code, errs)
	require.NotContains(t, out, "everywhere")

	waits := start(t, nil, nil, "run", nodes(f), "--semaphore=1", "pool", "--", "true")
	eventually(t, "the line", func() bool { return strings.Contains(waits.said(), said("1 permit", 3)) })
	for _, lease := range held {
		require.NoError(t, lease.Release(t.Context()))
	}
	code, _, errs = waits.wait()
	require.Equal(t, 0, code, errs)
	require.Equal(t, 1, strings.Count(errs, "everywhere"), errs)

	for _, lock := range []redlock.Lock{client.Semaphore("mixed", 2), client.Semaphore("mixed", 3).WithPermits(2)} {
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Extend(t.Context()))
		held = append(held, lease)
	}
	code, out, errs = run(t, "inspect", nodes(f), "mixed")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "its holders give it different numbers of permits: 2, 3; so up to 3 can hold it at a time; give the same number everywhere\n")

	// The nodes say the largest number alone, which is the same here.
	waits = start(t, nil, nil, "run", nodes(f), "--semaphore=3", "mixed", "--", "true")
	eventually(t, "the line", func() bool {
		return strings.Contains(waits.said(), "mixed has 3 permits here (--semaphore) and 2 in another")
	})
	for _, lease := range held[3:] {
		require.NoError(t, lease.Release(t.Context()))
	}
	code, _, errs = waits.wait()
	require.Equal(t, 0, code, errs)
}

// A lock that is shared is one of this library, and its key is no string.
func TestReleaseEndsALockThatIsShared(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	for key, lock := range map[string]redlock.Lock{"r": client.RWMutex("r").Reader(), "s": client.Semaphore("s", 2)} {
		_, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		code, out, errs := run(t, "release", "--force", nodes(f), key)
		require.Equal(t, 0, code, errs)
		require.Contains(t, out, key+" was released")
	}
	do(t, f.Nodes()[0], "SET", "data", "readers", "PX", 60000)
	code, _, errs := run(t, "release", "--force", nodes(f), "data")
	require.Equal(t, 64, code)
	require.Contains(t, errs, "add --foreign")
}

func TestRunTakesSeveralPermitsOrNone(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	big := start(t, nil, nil, "run", nodes(f), "--semaphore=3", "--permits=2", "pool", "--", "sleep", "20")
	eventually(t, "two permits to be taken", func() bool {
		_, out, _ := run(t, "inspect", nodes(f), "pool")
		return strings.Contains(out, "has 2 permits (slot ")
	})
	code, _, errs := run(t, "run", nodes(f), "--wait=0", "--semaphore=3", "--permits=2", "pool", "--", "true")
	require.Equal(t, 75, code, errs)
	code, _, errs = run(t, "run", nodes(f), "--wait=0", "--semaphore=3", "pool", "--", "true")
	require.Equal(t, 0, code, errs)
	require.NoError(t, big.cmd.Process.Signal(syscall.SIGTERM))
	big.wait()
}

// A command that hangs ends in time, although its lease could be renewed for ever, and with what it has started.
func TestRunEndsACommandAtItsLongestHold(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for name, c := range map[string]struct {
		script, ended string
		flags         []string
	}{
		"tidy":   {`trap 'echo tidied; exit 5' TERM; while :; do sleep 0.02; done`, `it ended by itself after TERM, exit code 5`, nil},
		"deaf":   {`trap '' TERM; while :; do sleep 0.02; done`, `killed, signal 9`, nil},
		"shared": {`exec sleep 20`, `it ended by itself after TERM, signal 15`, []string{"--semaphore=2"}},
		"longer": {`exec sleep 20`, `it ended by itself after TERM, signal 15`, []string{"--ttl=3s"}}, // it is renewed
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold, most := "4s", 4*time.Second
			if name == "longer" {
				hold, most = "6s", 6*time.Second
			}
			args := append([]string{"run", nodes(f), "--node-timeout=1s", "--json", "--max-hold", hold}, c.flags...)
			code, out, errs := run(t, append(args, name, "--", "sh", "-c", c.script)...)
			require.Equal(t, 76, code, errs)
			require.Contains(t, errs, "the longest hold is over (--max-hold "+hold+"), ")
			require.Contains(t, errs, c.ended)
			require.Equal(t, name == "tidy", out == "tidied\n")
			var r struct {
				Held float64 `json:"held_seconds"`
			}
			line := errs[strings.Index(errs, `{"key"`):] // sh may say that a sleep was terminated
			require.NoError(t, json.Unmarshal([]byte(line), &r), errs)
			require.Less(t, r.Held, most.Seconds()+5, "the release may take its time")
			require.Greater(t, r.Held, most.Seconds()/2)
		})
	}
	code, _, errs := run(t, "run", nodes(f), "--max-hold=4s", "short", "--", "sh", "-c", "exit 3")
	require.Equal(t, 3, code, errs)
}
