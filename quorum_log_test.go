package redlock_test

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// found is what the pattern matches in the log.
func (j *journal) found(pattern string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return regexp.MustCompile(pattern).FindAllString(j.text.String(), -1)
}

func (j *journal) to(cfg *redlock.Config) { cfg.Logger = slog.New(slog.NewTextHandler(j, nil)) }

const quorumLines = `level=\S+ msg="redlock: \d of \d nodes votes?, and [^"]*`

func TestTheLogSaysOnceThatThereIsNoQuorumAndOnceThatThereIsAgain(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	open(t, f)
	var log journal
	c := openFresh(t, f, log.to, func(cfg *redlock.Config) { cfg.TTL = 2 * time.Second })
	lease, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	for i, n := range f.Nodes()[:3] {
		require.Empty(t, log.found(quorumLines), "%d may go", i)
		require.NoError(t, n.Kill())
	}
	const gone = `level=WARN msg="redlock: 2 of 5 nodes vote, and it takes 3: nothing is granted or renewed`
	require.Eventually(t, func() bool { return len(log.found(quorumLines)) == 1 }, 5*time.Second, time.Millisecond)
	require.Equal(t, []string{gone}, log.found(quorumLines))

	<-lease.Context().Done()
	err = lease.Release(soon(t))
	require.ErrorIs(t, err, redlock.ErrLost)
	require.NotErrorIs(t, err, redlock.ErrNoQuorum)
	var round *redlock.RoundError
	require.ErrorAs(t, err, &round, "what the nodes said to the last renewal")
	require.Equal(t, "extend", round.Op)
	require.Contains(t, err.Error(), "it was not renewed before its validity ended")
	require.Equal(t, 3, round.Need)
	require.GreaterOrEqual(t, round.Unknown, 3, "the other two may not have answered the last renewal, which began just before the end")
	require.Zero(t, round.Denied)
	require.Contains(t, err.Error(), "connect: connection refused")
	require.NotContains(t, err.Error(), "\n")
	require.Eventually(t, func() bool { return len(log.found(`lease lost.*connection refused`)) == 1 }, 5*time.Second, time.Millisecond)

	connected := func() int {
		return len(log.found(`node connected" node=` + regexp.QuoteMeta(strings.TrimPrefix(f.Nodes()[0].URL(), "redis://"))))
	}
	before := connected()
	require.NoError(t, f.Nodes()[0].Start(t.Context(), fleet.Empty)) // it forgot, but an operator knows better
	require.Eventually(t, func() bool { return connected() > before }, 10*time.Second, time.Millisecond)
	require.Len(t, log.found(quorumLines), 1, "it is in quarantine")
	_ = enroll(t, c)
	require.Eventually(t, func() bool { return len(log.found(quorumLines)) == 2 }, 5*time.Second, time.Millisecond)
	require.Equal(t, `level=INFO msg="redlock: 3 of 5 nodes vote, and it takes 3: locks are granted and renewed again`, log.found(quorumLines)[1])
}

// A lease is lost because too few nodes renew it. Its error says what the nodes said to the last renewal.
func TestALeaseThatWasNotRenewedSaysWhatEachNodeSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no answer is late
		w := virtual(t, 5, 1)
		c := w.connect(t, 0)
		require.NoError(t, c.Enroll(t.Context()))
		lease, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		for _, s := range w.servers[:3] {
			s.stop()
		}
		<-lease.Context().Done()
		err = lease.Release(t.Context())
		require.ErrorIs(t, err, redlock.ErrLost)
		require.ErrorContains(t, err, "it was not renewed before its validity ended")
		require.ErrorContains(t, err, "2 granted, 0 denied, 3 unknown, need 3")
	})
}

// At the start nothing is said before every node was tried, and nothing at all if there is a quorum.
func TestTheLogSaysAtTheStartThatThereIsNoQuorum(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	open(t, f)
	for range 5 {
		var log journal
		c := openFresh(t, f, log.to)
		c.Status(soon(t))
		require.NoError(t, c.Close())
		require.Empty(t, log.found(quorumLines))
	}
	for _, n := range f.Nodes()[1:] {
		require.NoError(t, n.Kill())
	}
	var log journal
	c := openFresh(t, f, log.to)
	c.Status(soon(t))
	require.NoError(t, c.Close())
	require.Equal(t, []string{`level=WARN msg="redlock: 1 of 3 nodes votes, and it takes 2: nothing is granted or renewed`}, log.found(quorumLines))
}

// A server that stays up may lose its vote: it becomes a replica, or is flushed.
func TestTheLogSaysThatServersWhichAreUpAreNoQuorum(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	open(t, f)
	var log journal
	c := openFresh(t, f, log.to)
	c.Status(soon(t))
	host, port, err := f.Nodes()[0].PeerAddress()
	require.NoError(t, err)
	tell(t, f.Nodes()[1], "REPLICAOF", host, port)
	tell(t, f.Nodes()[2], "FLUSHALL")
	_, err = c.Mutex("x").TryAcquire(soon(t)) // it learns of both
	require.Error(t, err)
	c.Status(soon(t))
	require.Eventually(t, func() bool { return len(log.found(quorumLines)) == 1 }, 5*time.Second, time.Millisecond)
	require.Contains(t, log.found(quorumLines)[0], "1 of 3 nodes votes, and it takes 2")
}

// What Enroll does is in the log at once, though each node's answer counts only behind an INFO.
func TestTheLogSaysAtOnceThatTheNodesWereEnrolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		var log journal
		c := w.connect(t, 0, log.to)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		require.Len(t, log.found(quorumLines), 1, "new nodes are in quarantine")
		require.NoError(t, c.Enroll(t.Context()))
		synctest.Wait()
		require.Len(t, log.found(quorumLines), 2)
		require.Contains(t, log.found(quorumLines)[1], "locks are granted and renewed again")
	})
}
