//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/subject"
)

// searchIn are the options of a search that takes seconds.
func searchIn(t *testing.T, s subject.Subject, runs int) chaos.SearchOptions {
	return chaos.SearchOptions{
		Options: chaos.Options{Subject: s, Fleet: "embedded", Clients: 3, TTL: 200 * time.Millisecond, Log: t.Output()},
		Runs:    runs, Shrink: 12,
	}
}

func TestASearchFindsThatALockOnOneMasterDoesNotSurviveThatItForgets(t *testing.T) {
	t.Parallel()
	o := searchIn(t, subject.Single{}, 60)
	o.Nodes = 1
	r, err := chaos.Search(t.Context(), o)
	require.NoError(t, err)
	require.NotNil(t, r.Found)
	assert.Equal(t, check.Unsafe, r.Found.Outcome.Verdict)
	assert.LessOrEqual(t, len(r.Found.Schedule), len(r.Found.First))
	assert.Equal(t, 5, r.Found.Again)
	assert.Contains(t, string(r.Found.Outcome.History), `"scenario":"schedule"`)
}

func TestThisLibraryIsSafeInAShortSearch(t *testing.T) {
	t.Parallel()
	o := searchIn(t, subject.Redlock{}, 8)
	r, err := chaos.Search(t.Context(), o)
	require.NoError(t, err)
	if r.Found != nil {
		t.Errorf("%v\n%v", r.Found.Schedule, r.Found.Outcome.Violations)
	}
	assert.Equal(t, 8, r.Runs)
	assert.Less(t, r.Aborted+r.Idle+r.Unsure, 8, "nothing was shown")
	assert.Zero(t, r.Aborted)
}

func TestASearchThatEndsHasWhatItFoundUntilThen(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	r, err := chaos.Search(ctx, searchIn(t, subject.Redlock{}, 0))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotNil(t, r)
	assert.Nil(t, r.Found)
}

func TestAScheduleThatCannotBeRunIsNotSafe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"0s flushall(node-9)":                   chaos.ErrInvalid,
		"0s cut(node-1,client-9) for 1s":        chaos.ErrInvalid,
		"0s follow(node-1)\n0s promote(node-1)": chaos.ErrUnable,
		"0s clock(node-1,+1s) for 1s":           chaos.ErrUnable,
	} {
		s, err := fault.ParseSchedule(text)
		require.NoError(t, err)
		_, err = chaos.Run(t.Context(), chaos.Options{Schedule: s, Subject: subject.Single{}, Fleet: "embedded", Length: time.Second})
		require.ErrorIs(t, err, want, text)
	}
}

// frugal is late-validity that keeps a part of the TTL in reserve. So only late replies to the right client at the right
// time give it two owners: they must take longer than that part, and be over before the lease is.
type frugal struct {
	subject.LateValidity
	reserve float64
}

func (s frugal) Open(ctx context.Context, o subject.Options) (subject.Client, error) {
	client, err := s.LateValidity.Open(ctx, o)
	return frugalClient{client, time.Duration(float64(o.TTL) * (1 - s.reserve))}, err
}

type frugalClient struct {
	subject.Client
	lasts time.Duration
}

func (c frugalClient) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	lease, err := c.Client.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return frugalLease{lease, time.Now().Add(c.lasts)}, nil
}

type frugalLease struct {
	subject.Lease
	until time.Time
}

func (l frugalLease) Valid() bool { return time.Now().Before(l.until) }

// It prints the table of docs/failover.md: how many schedules it takes, with and without variation.
func TestASearchBesideChance(t *testing.T) {
	if os.Getenv("REDLOCK_CHAOS") != "search" {
		t.Skip("it takes half an hour: REDLOCK_CHAOS=search")
	}
	for _, reserve := range []float64{0.5, 0.7} {
		for seed := uint64(1); seed <= 6; seed++ {
			for _, random := range []bool{true, false} {
				r, err := chaos.Search(t.Context(), chaos.SearchOptions{
					Options: chaos.Options{Subject: frugal{reserve: reserve}, Fleet: "embedded", Clients: 3, Seed: seed},
					Runs:    40, Shrink: -1, Random: random,
				})
				require.NoError(t, err)
				fmt.Printf("reserve %v, seed %d, random %v: found %v after %d\n", reserve, seed, random, r.Found != nil, r.Runs)
			}
		}
	}
}
