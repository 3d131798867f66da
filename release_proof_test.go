package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// L1: Two of three nodes that had the keys deleted them, and the others are late: that is a quorum with the node that never
// had them. Before Release looks at the votes again, one of the others refuses. Then the last answer decides.
func TestAReleaseAwaitsTheLastAnswerIfALateOneUndoesWhatTheOthersProved(t *testing.T) {
	c, err := New(Config{Nodes: Nodes("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4", "127.0.0.1:5"),
		NodeTimeout: time.Minute, TTL: 5 * time.Minute, MaxTTL: 5 * time.Minute})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	o := &ownership{client: c, lock: c.Mutex("x").spec, ended: ErrReleased, place: -1}
	deleted, refused := answer{vote: granted}, answer{vote: denied, denial: &denial{reason: gone}}
	r := c.newRound(plan{call: c.protocol.releaseCall(o.lock.res.keys, "token", 0, 0), t0: c.cfg.Clock.Now(), only: 0b11110, answered: func(r *round, node int, _ answer, _ verdict, _ bool) {
		if node == 2 { // its answer proves that the lock is released, and Release is about to hear that
			r.record(3, refused)
		}
	}})
	r.expire(errSilent) // the others are late
	r.record(1, deleted)
	released := make(chan error, 1)
	go func() { released <- o.awaitRelease(t.Context(), r) }()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) { // until it waits for the votes
		r.mu.Lock()
		waiting = len(r.questions)
		r.mu.Unlock()
	}
	r.record(2, deleted)
	select {
	case err := <-released:
		require.Fail(t, "it did not wait for the last answer", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.record(4, deleted)
	require.NoError(t, <-released)
}
