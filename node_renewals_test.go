package redlock

import (
	"errors"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// A tenure is an ownership that may have ended.
type tenure bool

func (t tenure) whileHeld(_ *round, send func()) bool {
	if t {
		send()
	}
	return bool(t)
}

func (t tenure) took(int)          {}
func (t tenure) lapses(int)        {}
func (t tenure) provenAt() nodeSet { return 0 }

// R1: Of a command that was refused as a whole, each lease is sent once more, and not together again. R2: No renewal
// follows the release of its lease.
func TestLeasesOfARefusedCommandAreRenewedOneByOneAndOnce(t *testing.T) {
	renewal := func(renewed renewed) *round {
		return newRound(plan{call: call{script: standard.extend, keys: []any{"x"}}, renewed: renewed}, 1, 1, -1)
	}
	held, ended, trial := renewal(tenure(true)), renewal(tenure(false)), renewal(nil)
	n := &node{wake: make(chan struct{}, 1)}
	refusal := redis.Error("NOPERM No permissions to access a key")
	together := request{round: held, more: []*round{ended, trial}}

	n.answerRenewals(together, nil, refusal)
	require.Equal(t, pending, held.voteOf(0))
	require.Equal(t, unknown, ended.voteOf(0))
	require.Equal(t, pending, trial.voteOf(0))
	require.Len(t, n.wake, 1)
	require.Len(t, n.queue, 2)

	batch := mergeRenewals(append([]request{{round: renewal(nil)}}, append(n.queue, request{round: renewal(nil)})...))
	require.Len(t, batch, 3)
	require.Len(t, batch[0].more, 1, "others still share a command")
	n.queue = nil
	for _, q := range batch[1:] {
		require.Empty(t, q.more)
		n.answerRenewals(q, nil, refusal)
		require.Equal(t, unknown, q.round.voteOf(0))
	}
	require.Empty(t, n.queue, "they were refused for good")

	n.answerRenewals(request{round: renewal(tenure(true)), more: []*round{renewal(tenure(true))}}, nil, redis.Error("NOSCRIPT No matching script."))
	require.Len(t, n.queue, 2, "it was not run, and the script is loaded again")
	n.queue = nil

	for _, err := range []error{redis.Error("LOADING Redis is loading the dataset in memory"), errors.New("EOF")} { // of no lease's doing
		first, second := renewal(tenure(true)), renewal(tenure(true))
		n.answerRenewals(request{round: first, more: []*round{second}}, nil, err)
		require.Equal(t, unknown, second.voteOf(0))
		require.Empty(t, n.queue)
	}
}
