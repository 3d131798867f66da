package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/redlocktest"
)

// A server that was started a moment ago may not listen yet, and one on a busy machine may take longer than an attempt
// to connect does. One that is away costs about two seconds.
func TestEnrollTriesANodeAgainThatItDidNotReachAtFirst(t *testing.T) {
	for name, test := range map[string]struct {
		away   func(*redlocktest.Nodes, int)
		back   func(*redlocktest.Nodes, int)
		after  time.Duration
		within bool
	}{
		"it starts":    {(*redlocktest.Nodes).Kill, (*redlocktest.Nodes).Restart, 300 * time.Millisecond, true},
		"it is slow":   {(*redlocktest.Nodes).Pause, (*redlocktest.Nodes).Resume, 1100 * time.Millisecond, true},
		"it is away":   {(*redlocktest.Nodes).Kill, (*redlocktest.Nodes).Restart, time.Minute, false},
		"it is silent": {(*redlocktest.Nodes).Pause, (*redlocktest.Nodes).Resume, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := redlocktest.Start(t, 3)
				test.away(nodes, 2)
				client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
				require.NoError(t, err)
				defer client.Close()
				defer time.AfterFunc(test.after, func() { test.back(nodes, 2) }).Stop()
				began := time.Now()
				err = client.Enroll(t.Context())
				if test.within {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
				}
				require.Less(t, time.Since(began), 3*time.Second)
			})
		})
	}
}

// A node cannot be reached: it may have granted leases that a new server in another's place would not know.
func TestEnrollOnlyNewRefusesANewServerWhileAnotherIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		c, holder := w.connect(t, 0), w.connect(t, 1)
		require.NoError(t, holder.Enroll(t.Context()))
		l, err := holder.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		var forgot *server
		for _, s := range w.servers {
			if s.timeToLive("x") > 0 {
				forgot = s
			}
			s.links[0].hold(requests, +1)
		}
		forgot.flush()
		forgot.links[0].hold(requests, -1)
		err = c.Enroll(t.Context(), redlock.OnlyNew())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "it looks new; it was not enrolled")
		for _, s := range w.servers {
			s.links[0].hold(requests, -1)
		}
		_, err = c.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.True(t, l.Valid())
	})
}

func TestTheErrorOfAnEnrolmentSaysWhichNodesAreEnrolledAndWhichAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		names := make([]string, 3)
		cfg := redlock.Config{Nodes: nodes.Nodes()}
		for i := range cfg.Nodes {
			names[i] = fmt.Sprint("node ", i)
			cfg.Nodes[i].Name = names[i]
		}
		client, err := redlock.New(cfg)
		require.NoError(t, err)
		defer client.Close()
		nodes.Kill(2)
		err = client.Enroll(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Regexp(t, `^redlock: no quorum of nodes: enroll: enrolled: node 0, node 1; not enrolled: node 2: [^;\n]+$`, err.Error())
		require.Regexp(t, `^redlock: no quorum of nodes: enroll: enrolled: node 0, node 1; not enrolled\n\tnode 2: [^;\n]+$`, fmt.Sprintf("%+v", err))
		err = client.Enroll(t.Context(), redlock.OnlyNew())
		require.ErrorContains(t, err, "enrolled: node 0, node 1; not enrolled: node 2: ")

		nodes.Kill(0)
		nodes.Kill(1)
		err = client.Enroll(t.Context())
		require.Regexp(t, `enrolled: none; not enrolled: node 0, node 1, node 2: [^;\n]+$`, err.Error())
	})
}

// Nodes are in use. One of them forgets after it was asked, while another one is slow to answer; or it does not answer at
// first. No later question may take it for a new one.
func TestEnrollOnlyNewAdmitsNoNodeThatForgetsWhileItAsks(t *testing.T) {
	admitsNone := func(away bool) func(*testing.T) {
		return func(t *testing.T) {
			w := virtual(t, 3, 3)
			holder, other, operator := w.connect(t, 0), w.connect(t, 1), w.connect(t, 2)
			require.NoError(t, holder.Enroll(t.Context()))
			other.Status(t.Context())
			operator.Status(t.Context())
			time.Sleep(10 * time.Second)
			l := leaseOf(t, w, holder, 0, 1)

			forgets := w.servers[0]
			if away {
				forgets.links[2].hold(requests, +1)
			} else {
				w.servers[2].links[2].lag[replies].Store(int64(500 * time.Millisecond))
			}
			enrolled := make(chan error, 1)
			go func() { enrolled <- operator.Enroll(t.Context(), redlock.OnlyNew()) }()
			time.Sleep(100 * time.Millisecond)
			if away {
				time.Sleep(time.Second) // it is called silent, and what was sent to it is still on its way
			}
			forgets.flush()
			if away {
				forgets.links[2].hold(requests, -1)
				require.ErrorIs(t, <-enrolled, redlock.ErrNoQuorum)
			} else {
				require.NoError(t, <-enrolled, "all nodes voted when they were asked")
			}
			synctest.Wait()
			require.False(t, forgets.isJudged(), "it may have forgotten leases")
			w.servers[1].links[1].hold(requests, +1)
			_, err := other.Mutex(l.Names()[0]).TryAcquire(t.Context())
			require.Error(t, err)
			require.True(t, l.Valid())
			w.servers[1].links[1].hold(requests, -1)
		}
	}
	t.Run("another one is slow", func(t *testing.T) { synctest.Test(t, admitsNone(false)) })
	t.Run("it is away at first", func(t *testing.T) { synctest.Test(t, admitsNone(true)) })
}

// A node does not hear the operator, whose connection ends. The others grant a lease and the node is a part of the quorum. Then it
// forgets that lease, and the operator's word arrives.
func TestAnEnrolmentThatArrivesLateEndsNoQuarantine(t *testing.T) {
	for name, options := range map[string][]redlock.EnrollOption{
		"any node":  nil,
		"only new":  {redlock.OnlyNew()},
		"configure": {redlock.ChangeConfig()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 3, 2)
				operator, holder := w.connect(t, 0), w.connect(t, 1)
				operator.Status(t.Context())
				holder.Status(t.Context())
				forgets := w.servers[0]
				holdUp := func() { forgets.links[0].hold(requests, +1) }
				if name == "only new" { // it is held up after the first question, while another node is slow to answer that
					w.servers[1].links[0].lag[replies].Store(int64(nodeTimeout / 2))
					time.AfterFunc(nodeTimeout/4, holdUp)
				} else {
					require.NoError(t, holder.Enroll(t.Context()))
					holdUp()
				}
				require.ErrorIs(t, operator.Enroll(t.Context(), options...), redlock.ErrNoQuorum)
				require.NoError(t, operator.Close())
				require.Eventually(t, forgets.isJudged, 5*time.Minute, time.Second, "its quarantine is over")
				l := leaseOf(t, w, holder, 0, 1)
				forgets.flush()
				forgets.links[0].hold(requests, -1)
				synctest.Wait()
				require.False(t, forgets.isJudged(), "it has forgotten the lease")
				time.Sleep(time.Second)
				require.False(t, forgets.isJudged(), "it has forgotten the lease")
				require.True(t, l.Valid())
			})
		})
	}
}

// A group looks new, and another one does not: the servers of the first may all have forgotten, as after a power cut in their
// rack.
func TestEnrollOnlyNewAdmitsNoGroupWhileAnotherIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 6, 2)
		usual := w.openSharded(t, 0, nil, 0, 1)
		require.NoError(t, usual.Enroll(t.Context(), redlock.OnlyNew()))
		require.NoError(t, usual.Enroll(t.Context(), redlock.OnlyNew()), "all vote: there is nothing to do")
		name := nameIn(usual)
		l, err := usual.Mutex(name).Acquire(t.Context())
		require.NoError(t, err)
		for _, s := range w.servers[3:] {
			s.stop()
			s.start(false)
		}
		late := w.openSharded(t, 1, nil, 0, 1)
		err = late.Enroll(t.Context(), redlock.OnlyNew())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "it looks new; it was not enrolled")
		require.ErrorContains(t, err, "only if no client can hold a lease")
		_, err = late.Mutex(name).TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.True(t, l.Valid())

		require.NoError(t, late.Enroll(t.Context()), "an operator says that no lease is out")
	})
}

// One group cannot be reached: none is enrolled, so nothing is left half done.
func TestEnrollOnlyNewAdmitsNoGroupWhileAnotherIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 6, 1)
		s := w.openSharded(t, 0, nil, 0, 1)
		w.servers[5].links[0].hold(requests, +1)
		require.ErrorIs(t, s.Enroll(t.Context(), redlock.OnlyNew()), redlock.ErrNoQuorum)
		for _, s := range w.servers {
			require.False(t, s.isJudged())
		}
		w.servers[5].links[0].hold(requests, -1)
		time.Sleep(5 * time.Second)
		require.NoError(t, s.Enroll(t.Context(), redlock.OnlyNew()))
	})
}
