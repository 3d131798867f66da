package subject

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestACallHasItsPlaceWhenAQuorumWroteItsTicket(t *testing.T) {
	begun := time.Now()
	round := func(at, denied int, err error) redlock.Attempt {
		return redlock.Attempt{Begun: begun.Add(time.Duration(at)), Took: 5, Denied: denied, Err: err}
	}
	held, outage := redlock.ErrHeld, redlock.ErrNoQuorum
	for name, c := range map[string]struct {
		op     string
		rounds []redlock.Attempt
		since  time.Duration // 0: never
	}{
		"refused twice":                      {"acquire", []redlock.Attempt{round(10, 3, held), round(20, 5, held), round(30, 5, held)}, 25},
		"the first round had no quorum":      {"acquire", []redlock.Attempt{round(10, 2, outage), round(20, 3, held), round(30, 3, held)}, 35},
		"the ticket reached too few nodes":   {"acquire", []redlock.Attempt{round(10, 3, held), round(20, 2, outage), round(30, 4, held)}, 35},
		"too few nodes, and yet it is held":  {"acquire", []redlock.Attempt{round(10, 3, held), round(20, 2, held), round(30, 0, nil)}, 0},
		"refused once, then granted":         {"acquire", []redlock.Attempt{round(10, 3, held), round(20, 0, nil)}, 0},
		"granted at once":                    {"acquire", []redlock.Attempt{round(10, 0, nil)}, 0},
		"only the ballot was too low, twice": {"acquire", []redlock.Attempt{round(10, 3, outage), round(20, 3, outage)}, 0},
		"another call":                       {"extend", []redlock.Attempt{round(10, 3, held), round(20, 3, held)}, 0},
	} {
		since, ok := queuedSince(redlock.Operation{Op: c.op, Rounds: c.rounds}, 3)
		assert.Equal(t, c.since != 0, ok, name)
		if ok {
			assert.Equal(t, c.since, since.Sub(begun), name)
		}
	}
}

type callKey struct{}

// What the subject says is after the call began and before it was granted, and with the context of the call.
func TestAFairLockSaysWhichCallHadItsPlace(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	told := make(chan time.Time, 1)
	o := Options{
		Client: 1, URLs: f.URLs(), TTL: time.Second, Fresh: true,
		Queued: func(ctx context.Context, since time.Time) {
			if ctx.Value(callKey{}) == "second" {
				told <- since
			}
		},
	}
	client, err := RedlockFair{}.Open(t.Context(), o)
	require.NoError(t, err)
	defer client.Close()
	first, err := client.Acquire(context.WithValue(t.Context(), callKey{}, "first"), "x")
	require.NoError(t, err)
	began := time.Now()
	got := make(chan error, 1)
	go func() {
		lease, err := client.Acquire(context.WithValue(t.Context(), callKey{}, "second"), "x")
		granted := time.Now()
		if err == nil {
			err = lease.Release(context.WithoutCancel(t.Context()))
		}
		if since := <-told; since.Before(began) || since.After(granted) {
			err = errors.New("it had its place before it began, or after its grant")
		}
		got <- err
	}()
	tickets := func() (count int) {
		for _, n := range f.Nodes() {
			conn, err := n.DialDirect(t.Context(), time.Second)
			require.NoError(t, err)
			reply, err := conn.Do("ZCARD", "redlock:fair:ticket:x")
			require.NoError(t, err)
			if reply == int64(1) {
				count++
			}
			conn.Close()
		}
		return count
	}
	// A node that has the entry has refused the call already.
	require.Eventually(t, func() bool { return tickets() == 3 }, 10*time.Second, time.Millisecond)
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, <-got)
}
