package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
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
	const (
		tight = `level=WARN msg="redlock: 3 of 5 nodes vote, and it takes 3: the next failure stops all locks`
		gone  = `level=WARN msg="redlock: 2 of 5 nodes vote, and it takes 3: nothing is granted or renewed`
	)
	for i, n := range f.Nodes()[:2] {
		require.Empty(t, log.found(quorumLines), "%d may go", i)
		require.NoError(t, n.Kill())
	}
	require.Eventually(t, func() bool { return len(log.found(quorumLines)) == 1 }, 5*time.Second, time.Millisecond)
	require.NoError(t, f.Nodes()[2].Kill())
	require.Eventually(t, func() bool { return len(log.found(quorumLines)) == 2 }, 5*time.Second, time.Millisecond)
	require.Equal(t, []string{tight, gone}, log.found(quorumLines))
	const reason = `without="((127\.0\.0\.1:\d+(, )?)+: (it closed the connection|[^;"]*connection refused|[^;"]*reset by peer)(; )?){1,3}"`
	require.Regexp(t, reason, log.found(`nothing is granted[^\n]*`)[0])
	require.Equal(t, 3, strings.Count(log.found(`nothing is granted[^\n]*`)[0], "127.0.0.1:"))
	require.NotEmpty(t, log.found(`node not connected" node=\S+ error="(the server closed the connection \(EOF\)|read tcp [^"]*reset by peer)`))
	require.Empty(t, log.found(`error=EOF`))

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
	require.Len(t, log.found(quorumLines), 2, "it is in quarantine")
	_ = enroll(t, c)
	require.Eventually(t, func() bool { return len(log.found(quorumLines)) == 3 }, 5*time.Second, time.Millisecond)
	require.Equal(t, `level=INFO msg="redlock: 3 of 5 nodes vote, and it takes 3: locks are granted and renewed again, until the next failure`,
		log.found(quorumLines)[2])
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
	const gone = "1 of 3 nodes votes, and it takes 2: nothing is granted or renewed"
	require.Eventually(t, func() bool { return log.count(gone) == 1 }, 5*time.Second, time.Millisecond)
	require.LessOrEqual(t, len(log.found(quorumLines)), 2, "it may learn of one before the other")
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
		said := log.found(quorumLines)
		require.Contains(t, said[1], "locks are granted and renewed again")
		require.Contains(t, said[len(said)-1], "level=INFO")
		require.Regexp(t, "3 of 3 nodes vote.*(granted and renewed again|the next failure stops no lock)$", said[len(said)-1])
	})
}

// lines are the lines of the log about one node's vote: from the level on.
func (j *journal) lines(n *fleet.Node) []string {
	return j.found(`level=\S+ msg="redlock: node (does not vote|votes|refuses this client)" node=` + regexp.QuoteMeta(strings.TrimPrefix(n.URL(), "redis://")) + `\b[^\n]*`)
}

// A server that stays up may lose its vote in many ways. Each has one line, with the reason that Status gives, and another
// when the node votes again.
func TestTheLogSaysOnceWhyANodeThatIsConnectedDoesNotVote(t *testing.T) {
	for name, c := range map[string]struct {
		breaks, mends []any
		why           string
	}{
		"FLUSHALL": {breaks: []any{"FLUSHALL"}, why: `in quarantine for .* more: it is new, or it restarted or was flushed`},
		"eviction": {breaks: []any{"CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"}, mends: []any{"CONFIG", "SET", "maxmemory", "0"},
			why: `it may evict locks to make room`},
		"full memory": {breaks: []any{"CONFIG", "SET", "maxmemory", "1"}, mends: []any{"CONFIG", "SET", "maxmemory", "0"},
			why: `its memory is full, so it grants no locks; raise maxmemory, .*: OOM`},
		"no replicas": {breaks: []any{"CONFIG", "SET", "min-replicas-to-write", "1"},
			mends: []any{"CONFIG", "SET", "min-replicas-to-write", "0"},
			why:   `it lacks replicas, so it refuses locks and renewals; set min-replicas-to-write 0, .*: NOREPLICAS`},
		"a replica": {breaks: []any{"REPLICAOF", "127.0.0.1", 1}, mends: []any{"REPLICAOF", "NO", "ONE"}, why: `it is a replica of 127.0.0.1:1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
			open(t, f)
			var log journal
			c1 := openFresh(t, f, log.to)
			node := f.Nodes()[1]
			status := func() error { return c1.Status(soon(t))[1].Err }
			require.Eventually(t, func() bool { return noneWithoutVote(c1.Status(soon(t))) }, 8*time.Second, time.Millisecond)
			require.Empty(t, log.lines(node))

			if strings.Contains(c.why, "evict") { // Redis 6 takes one setting at a time
				tell(t, node, c.breaks[0].(string), c.breaks[1:4]...)
				tell(t, node, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			} else {
				tell(t, node, c.breaks[0].(string), c.breaks[1:]...)
			}
			for range 3 { // acquires find it first, as in a program
				l, err := c1.Mutex("x").Acquire(soon(t))
				require.NoError(t, err)
				require.NoError(t, l.Release(soon(t)))
			}
			require.Eventually(t, func() bool { return status() != nil && len(log.lines(node)) > 0 }, 8*time.Second, time.Millisecond)
			require.Regexp(t, c.why, status().Error())
			for range 3 {
				_ = c1.Status(soon(t))
			}
			require.Len(t, log.lines(node), 1, "nothing has changed")
			require.Regexp(t, `^level=WARN msg="redlock: node does not vote" .*`+c.why, log.lines(node)[0])
			require.Contains(t, log.found(quorumLines + `[^\n]*`)[0], "2 of 3 nodes vote, and it takes 2: the next failure stops all locks")
			require.Regexp(t, `without="\S+: `+strings.Split(c.why, ":")[0], log.found(quorumLines + `[^\n]*`)[0])

			if c.mends != nil {
				tell(t, node, c.mends[0].(string), c.mends[1:]...)
			}
			_ = c1.Status(soon(t))
			require.NoError(t, c1.Enroll(soon(t)))
			require.Eventually(t, func() bool { return status() == nil }, 8*time.Second, time.Millisecond)
			last := func() string { all := log.lines(node); return all[len(all)-1] }
			require.Eventually(t, func() bool { return strings.HasPrefix(last(), `level=INFO msg="redlock: node votes"`) }, 8*time.Second, time.Millisecond)
		})
	}
}

// While a node is away, the reason may change. The log has each once.
// Without a password the nodes are not connected, and neither are the subscribers of a client that waits: one cause, told once
// for each node. That no node votes has it once for all.
func TestALoginThatLacksIsNotLoggedAsAMatterOfMessages(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Args: []string{"--requirepass", "s3cret"}})
	var log journal
	c := openFresh(t, f, log.to, func(cfg *redlock.Config) {
		cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.User = nil })...)
	})
	_, err := c.Mutex("x").TryAcquire(soon(t)) // each node was tried
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	waiter := begin(t, c, "x")
	for i := range 3 {
		require.Eventually(t, func() bool { return redlock.Refusal(c, i) != nil }, 8*time.Second, time.Millisecond)
	}
	none := log.found(`0 of 3 nodes vote[^\n]*`)
	require.Len(t, none, 1)
	require.Regexp(t, `without="(127\.0\.0\.1:\d+(, )?){3}: it demands a login: NOAUTH`, none[0])
	require.Equal(t, 1, strings.Count(none[0], "NOAUTH"), none[0])
	require.Len(t, log.found(`level=WARN msg="redlock: node not connected" node=\S+ error="it demands a login: NOAUTH`), 3)
	require.Zero(t, log.count("redlock: waiters of a node poll"))
	waiter.cancel()
}

func TestTheLogSaysWhenTheReasonChangesWhyANodeIsNotConnected(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	var log journal
	c := open(t, f, log.to)
	require.Eventually(t, func() bool { return noneWithoutVote(c.Status(soon(t))) }, 8*time.Second, time.Millisecond)
	node, err := f.Nodes()[1].DialDirect(soon(t), 5*time.Second)
	require.NoError(t, err)
	defer node.Close()
	do := func(command string, args ...any) any {
		reply, err := node.Do(command, args...)
		require.NoError(t, err)
		return reply
	}
	do("CONFIG", "SET", "requirepass", "secret")
	do("AUTH", "secret")
	do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	const away = `level=WARN msg="redlock: node not connected" node=\S+ error=`
	refused := func() int { // connections that were
		text, err := redis.String(do("INFO", "stats"), nil)
		require.NoError(t, err)
		_, after, _ := strings.Cut(text, "total_connections_received:")
		var count int
		_, err = fmt.Sscan(after, &count)
		require.NoError(t, err)
		return count
	}
	require.Eventually(t, func() bool { return len(log.found(away+`"it demands a login: NOAUTH`)) > 0 }, 8*time.Second, time.Millisecond)
	for before := refused(); refused() < before+5; {
		time.Sleep(time.Millisecond)
	}
	require.Len(t, log.found(away+`"the server closed the connection`), 1)
	require.Len(t, log.found(away), 2, "%s", log.found(away+".*"))
	do("CONFIG", "SET", "requirepass", "")
	require.Eventually(t, func() bool { return len(log.found(`level=INFO msg="redlock: node votes"`)) > 0 }, 8*time.Second, time.Millisecond)
}

// The log says that nothing is granted, and why, when the user has lost the rights to it while the client was connected, though
// nobody calls Status. It does so too where leases are only renewed.
func TestRightsThatAreTakenAwayAreLogged(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][2][]string{
		"keys":    {{"resetkeys", "~other:*"}, {"~*"}},
		"scripts": {{"-evalsha"}, {"+evalsha"}},
		"TIME":    {{"-time"}, {"+time"}},
	} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, held %v", name, held), func(t *testing.T) {
				t.Parallel()
				f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
				var log journal
				t.Cleanup(func() {
					if t.Failed() {
						t.Log(strings.Join(log.found(`.+`), "\n"))
					}
				})
				c := open(t, f, patient, as(t, f, "meek", "&*"), log.to)
				l, err := c.Mutex("x").WithTTL(2 * time.Second).Acquire(ctx)
				require.NoError(t, err)
				spread(t, f, "x", l)
				again := `msg="redlock: [23] of 3 nodes vote, and it takes 2: locks are granted and renewed again`
				before := len(log.found(again)) // they were enrolled
				for _, n := range f.Nodes() {
					fleettest.SetUser(t, n, "meek", rules[0]...)
				}
				if !held {
					_, err = c.Mutex("y").TryAcquire(ctx)
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
				}
				gone := `level=WARN msg="redlock: \d of 3 nodes votes?, and it takes 2: nothing is granted or renewed[^\n]*(NOPERM|can't run)`
				require.Eventually(t, func() bool { return len(log.found(gone)) > 0 }, 10*time.Second, 10*time.Millisecond)
				for _, n := range f.Nodes() {
					fleettest.SetUser(t, n, "meek", rules[1]...)
				}
				require.Eventually(t, func() bool { return len(log.found(again)) > before }, 10*time.Second, 10*time.Millisecond)
				_ = l.Release(soon(t)) // it may be lost by now
				require.NoError(t, c.Mutex("y").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
			})
		}
	}
}
