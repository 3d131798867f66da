package redlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// L1: Two of three nodes that had the keys deleted them, and the others are late: that is a quorum with the node that never
// had them. Before Release looks at the votes again, one of the others refuses. Then the last answer decides.
func TestAReleaseAwaitsTheLastAnswerIfALateOneUndoesWhatTheOthersProved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []Node
		for _, name := range []string{"a", "b", "c", "d", "e"} { // the test answers for them
			nodes = append(nodes, Node{Name: name, Dial: func(context.Context) (redis.Conn, error) { return nil, errors.New("away") }})
		}
		c, err := New(Config{Nodes: nodes, NodeTimeout: time.Minute, TTL: 5 * time.Minute, MaxTTL: 5 * time.Minute})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		o := &ownership{client: c, lock: c.Mutex("x").spec, ended: ErrReleased, place: -1}
		deleted, refused := answer{vote: granted}, answer{vote: denied, denial: &denial{reason: gone}}
		release := plan{call: c.protocol.releaseCall(o.lock.res.keys, "token", 0, 0), t0: c.cfg.Clock.Now(), only: 0b11110}
		release.answered = func(r *round, node int, _ answer, _ verdict, _ bool) {
			if node == 2 { // its answer proves that the lock is released, and Release is about to hear that
				r.record(3, refused)
			}
		}
		r := c.newRound(release)
		r.expire(errSilent) // the others are late
		r.record(1, deleted)
		released := make(chan error, 1)
		go func() { released <- o.awaitRelease(t.Context(), r) }()
		synctest.Wait()
		r.record(2, deleted)
		synctest.Wait()
		require.Empty(t, released, "it waits for the last answer")
		r.record(4, deleted)
		require.NoError(t, <-released)
	})
}
