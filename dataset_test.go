package redlock_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

// steady makes a quarantine longer than what a test does meanwhile: 5s + 500ms + 100ms.
func steady(cfg *redlock.Config) {
	cfg.TTL, cfg.MaxTTL = 2*time.Second, 5*time.Second
	cfg.NodeTimeout, cfg.MaxClockSkew = 500*time.Millisecond, 100*time.Millisecond
}

// undefended is for tests with a defence off, where nothing waits for the end of a lease: it may be long.
func undefended(cfg *redlock.Config) { cfg.TTL, cfg.MaxTTL = 20*time.Second, 20*time.Second }

// openAt makes a client of the first five nodes that reaches only the given ones, by number. It also returns the
// client's way to node 3.
func openAt(t *testing.T, f *fleet.Fleet, reachable []int, change ...func(*redlock.Config)) (*redlock.Client, *fleet.View) {
	urls := make([]string, 5)
	var third *fleet.View
	for i := range urls {
		v, err := f.Nodes()[i].NewView()
		require.NoError(t, err)
		if urls[i] = v.URL(); i == 2 {
			third = v
		}
		if !slices.Contains(reachable, i+1) {
			v.Cut()
		}
	}
	return openFresh(t, f, append(slices.Clone(change), func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(urls...) })...), third
}

// shared is a fleet where two quorums share node 3: the holder has nodes 1 to 3, the other client reaches 3 to 5.
type shared struct {
	fleet         *fleet.Fleet
	holder, other *redlock.Client
	toHolder      *fleet.View
	toOther       *fleet.View
	change        []func(*redlock.Config)
	maxTTL        time.Duration
}

func share(t *testing.T, o fleet.Options, change ...func(*redlock.Config)) *shared {
	s := &shared{fleet: fleettest.Start(t, fleet.Process, o), change: append([]func(*redlock.Config){steady}, change...)}
	operator := openFresh(t, s.fleet, append(slices.Clone(s.change), func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(s.fleet.URLs()[:5]...) })...)
	require.NoError(t, enroll(t, operator))
	require.NoError(t, operator.Close())
	var cfg redlock.Config
	for _, change := range s.change {
		change(&cfg)
	}
	s.maxTTL = cfg.MaxTTL
	s.holder, s.toHolder = openAt(t, s.fleet, []int{1, 2, 3}, s.change...)
	s.other, s.toOther = openAt(t, s.fleet, []int{3, 4, 5}, s.change...)
	// Both have heard from every node that they reach.
	s.holder.Status(soon(t))
	s.other.Status(soon(t))
	return s
}

// acquire has the holder take the lock for the longest time that is allowed (MaxTTL).
func (s *shared) acquire(t *testing.T) *redlock.Lease {
	l, err := s.holder.Mutex("x").WithTTL(s.maxTTL).WithoutRenewal().Acquire(soon(t))
	require.NoError(t, err)
	return l
}

// never fails the test if this client acquires the lock while the holder's lease is valid.
func never(t *testing.T, c *redlock.Client, holder *redlock.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // a quarantine may begin again
	defer cancel()
	next, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	require.False(t, holder.Valid() && next.Valid(), "two hold it, for %v more", holder.Remaining())
	_ = next.Release(soon(t)) // on a busy machine, no quorum confirms it in time
}

func replicate(t *testing.T, n, of *fleet.Node) {
	host, port, err := of.PeerAddress()
	require.NoError(t, err)
	tell(t, n, "REPLICAOF", host, port)
	require.Eventually(t, func() bool {
		info, err := redis.String(tell(t, n, "INFO", "replication"), nil)
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, 10*time.Second, time.Millisecond)
}

var replicas = []string{"--repl-diskless-sync-delay", "0"}

// Q1: A node becomes a replica of its own stale replica, and then a master again. The process and its run id stay the
// same, and the marker comes back with the data. The other client stays connected. Only INFO, asked for just before the
// acquire, shows the change; without it, two clients hold the lock.
func TestANodeThatFailsBackInOneProcessSitsOutAQuarantine(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]bool{"": false, "with the data set not vouched for": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var change []func(*redlock.Config)
			if off {
				change = append(change, undefended, redlock.Switches["data set vouched for"].Off)
			}
			s := share(t, fleet.Options{Nodes: 6, Args: replicas}, change...)
			three, spare := s.fleet.Nodes()[2], s.fleet.Nodes()[5]
			replicate(t, spare, three)
			tell(t, spare, "REPLICAOF", "NO", "ONE") // the lock will never reach it
			holder := s.acquire(t)
			time.Sleep(20 * time.Millisecond) // the last INFO is now too old to vouch for the data set
			replicate(t, three, spare)
			begun := time.Now()
			tell(t, three, "REPLICAOF", "NO", "ONE")
			t.Logf("promoted in %v", time.Since(begun))
			require.Positive(t, holder.Remaining())
			if off {
				next, err := s.other.Mutex("x").Acquire(soon(t))
				require.NoError(t, err)
				require.True(t, holder.Valid() && next.Valid(), "without it, two hold the lock")
				return
			}
			never(t, s.other, holder)
		})
	}
}

// Q2: Durable is about restarts. A promoted replica has only what had reached it, so it sits out a quarantine.
func TestDurableDoesNotTrustAPromotedReplica(t *testing.T) {
	t.Parallel()
	s := share(t, fleet.Options{Nodes: 6, Args: append([]string{"--appendonly", "yes", "--appendfsync", "always"}, replicas...)},
		func(cfg *redlock.Config) { cfg.Durable = true })
	spare := s.fleet.Nodes()[5]
	replicate(t, spare, s.fleet.Nodes()[2])
	tell(t, spare, "REPLICAOF", "NO", "ONE")
	holder := s.acquire(t)
	lead(t, s.fleet, s.toHolder, s.toOther)
	never(t, s.other, holder)
}

// Q2: A server is made a replica of another node, and restarts as a master. Its append-only file has that node's data, with
// that node's marker. So would a copy of that node's files. The lock that it granted itself is not in there.
func TestDurableDoesNotTrustTheDataOfAnotherNode(t *testing.T) {
	t.Parallel()
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3,
		Args: append([]string{"--appendonly", "yes", "--appendfsync", "always"}, replicas...)}), soon(t)
	durable := func(cfg *redlock.Config) { steady(cfg); cfg.Durable = true }
	a, b := openFresh(t, f, durable), openFresh(t, f, durable)
	require.NoError(t, enroll(t, a))
	b.Status(ctx)
	var holder *redlock.Lease
	var has, lacks []*fleet.Node
	require.Eventually(t, func() bool { // an acquire asks a bare quorum, if that is not late
		var err error
		holder, err = a.Mutex("x").WithTTL(5 * time.Second).WithoutRenewal().Acquire(ctx)
		require.NoError(t, err)
		has, lacks = nil, nil
		for _, n := range f.Nodes() {
			if tell(t, n, "EXISTS", "x") == int64(1) {
				has = append(has, n)
			} else {
				lacks = append(lacks, n)
			}
		}
		if len(lacks) == 1 {
			return true
		}
		require.NoError(t, holder.Release(ctx))
		return false
	}, 10*time.Second, time.Millisecond)
	replicate(t, has[0], lacks[0])
	fleettest.AwaitAppendOnlyFile(t, has[0])
	require.NoError(t, has[0].Kill())
	require.NoError(t, has[0].Start(ctx, fleet.Kept))
	never(t, b, holder)
}

// Q2: A server starts with an RDB file, and is told to keep an append-only file before any client comes, as Redis's own
// instructions for a restore say. The file then has what the RDB file had, which is old.
func TestDurableTrustsNoDataFromBeforeTheAppendOnlyFile(t *testing.T) {
	t.Parallel()
	settings := filepath.Join(t.TempDir(), "redis.conf")
	require.NoError(t, os.WriteFile(settings, []byte("appendfsync always\nappendonly yes\n"), 0o600))
	s := share(t, fleet.Options{Args: []string{"--include", settings}}, func(cfg *redlock.Config) { cfg.Durable = true })
	three := s.fleet.Nodes()[2]
	require.NoError(t, three.Save(soon(t)))
	holder := s.acquire(t)
	s.toHolder.Cut()
	s.toOther.Cut()
	require.NoError(t, three.Kill())
	require.NoError(t, os.WriteFile(settings, []byte("appendfsync always\nappendonly no\n"), 0o600))
	require.NoError(t, three.Start(soon(t), fleet.Kept))
	require.Equal(t, int64(0), tell(t, three, "EXISTS", "x"))
	tell(t, three, "CONFIG", "SET", "appendonly", "yes")
	fleettest.AwaitAppendOnlyFile(t, three)
	s.toOther.Heal()
	never(t, s.other, holder)
}

// N1: A server that is told to keep an append-only file first writes all that it has into a new one. Until that is done, what
// it grants is in no file that it would read after a restart, though INFO says that it keeps one.
func TestDurableCountsNoServerThatOnlyBeginsToPersist(t *testing.T) {
	t.Parallel()
	s := share(t, fleet.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}},
		func(cfg *redlock.Config) { cfg.Durable = true })
	three := s.fleet.Nodes()[2]
	tell(t, three, "CONFIG", "SET", "appendonly", "no")
	s.holder.Status(soon(t)) // reads INFO, as every client does every five seconds
	s.other.Status(soon(t))
	tell(t, three, "CONFIG", "SET", "rdb-key-save-delay", "5000000") // µs: it takes long, as with much data or a slow disk
	tell(t, three, "CONFIG", "SET", "appendonly", "yes")
	s.holder.Status(soon(t))
	l, err := s.holder.Mutex("x").WithTTL(s.maxTTL).WithoutRenewal().TryAcquire(soon(t))
	if err != nil {
		require.ErrorContains(t, err, "append-only file")
		return
	}
	s.toHolder.Cut()
	require.NoError(t, three.Kill())
	require.NoError(t, three.Start(soon(t), fleet.Kept))
	never(t, s.other, l)
}

// Q1: A machine boots with its clock behind, and NTP sets it right: by the server's own clock, half a minute has passed
// at once. So the other nodes' clocks must also say that the quarantine is over.
func TestAQuarantineIsNotEndedByAClockThatIsSetRight(t *testing.T) {
	t.Parallel()
	if err := fleet.ClocksAvailable(fleet.Process); err != nil {
		required.Missing(t, "clocks", err)
	}
	for name, off := range map[string]bool{"": false, "counted by its own clock alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var change []func(*redlock.Config)
			if off {
				change = append(change, undefended, redlock.Switches["quarantine by the others' clocks"].Off)
			}
			s := share(t, fleet.Options{Clocks: true}, change...)
			three := s.fleet.Nodes()[2]
			holder := s.acquire(t)
			require.NoError(t, three.Kill())
			require.NoError(t, three.SetClock(-30*time.Second))
			require.NoError(t, three.Start(soon(t), fleet.Empty))
			require.Eventually(t, func() bool {
				return strings.Count(stringOf(tell(t, three, "GET", "redlock:node")), " ") == 2
			}, 10*time.Second, time.Millisecond, "its quarantine has begun")
			require.NoError(t, three.SetClock(0))
			fresh, _ := openAt(t, s.fleet, []int{3, 4, 5}, s.change...)
			if off {
				next, err := fresh.Mutex("x").Acquire(soon(t))
				require.NoError(t, err)
				require.True(t, holder.Valid() && next.Valid(), "without it, two hold the lock")
				return
			}
			never(t, fresh, holder)
		})
	}
}

// Q1: A quarantine that began under a clock an hour ahead lasts no longer than usual once the clock is right.
func TestAQuarantineBegunWithTheClockAheadDoesNotLastUntilThen(t *testing.T) {
	t.Parallel()
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Clocks: true}), soon(t)
	c := openFresh(t, f, brief)
	require.NoError(t, c.Enroll(ctx))
	three := f.Nodes()[2]
	require.NoError(t, three.Kill())
	require.NoError(t, three.SetClock(time.Hour))
	require.NoError(t, three.Start(ctx, fleet.Empty))
	require.Eventually(t, func() bool {
		return strings.Count(stringOf(tell(t, three, "GET", "redlock:node")), " ") == 2
	}, 3*time.Second, time.Millisecond)
	require.NoError(t, three.SetClock(0))
	require.Eventually(t, func() bool { return c.Status(ctx)[2].Err == nil }, 8*time.Second, 10*time.Millisecond)
}

// Q1: Keys that were evicted between two looks may have been locks, even if the policy is in order again. Durable does
// not help: what the server then persists is that they are gone.
func TestANodeThatEvictedSitsOutAQuarantineThoughTheMarkerStayed(t *testing.T) {
	t.Parallel()
	for name, durable := range map[string]bool{"": false, "durable": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o fleet.Options
			if durable {
				o.Args = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			s := share(t, o, func(cfg *redlock.Config) { cfg.Durable = durable })
			three := s.fleet.Nodes()[2]
			holder := s.acquire(t)
			marker := tell(t, three, "GET", "redlock:node")
			tell(t, three, "CONFIG", "SET", "maxmemory-policy", "volatile-random") // the lock expires, the marker does not
			tell(t, three, "CONFIG", "SET", "maxmemory", "1")
			require.Eventually(t, func() bool { return tell(t, three, "EXISTS", "x") == int64(0) }, 5*time.Second, time.Millisecond)
			tell(t, three, "CONFIG", "SET", "maxmemory", "0")
			tell(t, three, "CONFIG", "SET", "maxmemory-policy", "noeviction")
			require.Equal(t, marker, tell(t, three, "GET", "redlock:node"))
			s.other.Status(soon(t)) // reads INFO, as every client does every five seconds
			never(t, s.other, holder)
		})
	}
}

// N1: The server is read again and again. One that no longer persists before it answers loses its vote.
func TestDurableNoticesWhenAServerNoLongerPersistsAtOnce(t *testing.T) {
	t.Parallel()
	for _, setting := range [][3]string{{"appendfsync", "everysec", "always"}, {"no-appendfsync-on-rewrite", "yes", "no"}} {
		t.Run(setting[0], func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
			c, ctx := open(t, f, patient, func(cfg *redlock.Config) { cfg.Durable = true }), soon(t)
			require.NoError(t, c.Status(ctx)[1].Err)
			tell(t, f.Nodes()[1], "CONFIG", "SET", setting[0], setting[1])
			require.ErrorContains(t, c.Status(ctx)[1].Err, setting[0])
			tell(t, f.Nodes()[1], "CONFIG", "SET", setting[0], setting[2])
			require.NoError(t, c.Status(ctx)[1].Err)
		})
	}
}

// N1: How a server persists is read again and again, also while it is in quarantine.
func TestDurableNoticesInAQuarantineThatAServerPersistsAtOnce(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}})
	var log journal
	openFresh(t, f, log.to, func(cfg *redlock.Config) { cfg.Durable, cfg.MaxTTL = true, time.Hour })
	for _, n := range f.Nodes() {
		require.Eventually(t, func() bool { return strings.Contains(strings.Join(log.lines(n), ""), "appendfsync everysec") },
			10*time.Second, time.Millisecond)
		tell(t, n, "CONFIG", "SET", "appendfsync", "always")
	}
	for _, n := range f.Nodes() {
		require.Eventually(t, func() bool { return strings.Contains(strings.Join(log.lines(n), ""), "quarantine") },
			30*time.Second, 10*time.Millisecond)
	}
}

// N1, R1: With Durable, a restart is no reason for a quarantine. So what a server does not persist does not count in a
// renewal either: after a restart it would vote with what it had persisted before.
func TestDurableCountsNoRenewalThatIsNotPersisted(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	c, ctx := open(t, f, patient, func(cfg *redlock.Config) { cfg.Durable = true }), soon(t)
	l, err := c.Mutex("x").WithoutRenewal().Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", l)
	require.NoError(t, f.Nodes()[0].Kill())
	require.NoError(t, l.Extend(ctx))
	tell(t, f.Nodes()[2], "CONFIG", "SET", "appendonly", "no")
	require.ErrorContains(t, c.Status(ctx)[2].Err, "appendonly yes")
	err = l.Extend(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, "appendonly yes")
	tell(t, f.Nodes()[2], "CONFIG", "SET", "appendonly", "yes")
	fleettest.AwaitAppendOnlyFile(t, f.Nodes()[2])
	require.NoError(t, c.Status(ctx)[2].Err)
	require.NoError(t, l.Extend(ctx))
	require.NoError(t, l.Release(ctx))
}

// A user who may not end connections on the server lacks a defence against stale connections. Status warns of it.
func TestAForbiddenClientKillIsAWarning(t *testing.T) {
	t.Parallel()
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "meek", "on", ">secret", "~*", "&*", "+@all", "-client|kill")
	}
	c := open(t, f, func(cfg *redlock.Config) {
		cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.User = url.UserPassword("meek", "secret") })...)
	})
	s := c.Status(ctx)[0]
	require.NoError(t, s.Err)
	require.Len(t, s.Warnings, 1)
	require.Contains(t, s.Warnings[0], "CLIENT KILL")
	require.Empty(t, open(t, f).Status(ctx)[0].Warnings)
	require.NoError(t, c.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
}

// Status asks anew whether the user may end connections.
func TestTheWarningOfAForbiddenClientKillIsNews(t *testing.T) {
	t.Parallel()
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1}), soon(t)
	c := open(t, f, as(t, f, "meek", "&*"), patient)
	for range 2 {
		require.Empty(t, c.Status(ctx)[0].Warnings)
		fleettest.SetUser(t, f.Nodes()[0], "meek", "-client|kill")
		warnings := c.Status(ctx)[0].Warnings
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0], "allow CLIENT ID and CLIENT KILL")
		fleettest.SetUser(t, f.Nodes()[0], "meek", "+client|kill")
	}
}

// A withoutKill is a connection to a server that has no CLIENT KILL.
type withoutKill struct{ redis.Conn }

func (c withoutKill) Send(command string, args ...any) error {
	if command == "CLIENT" && args[0] == "KILL" {
		args[0] = "ABOLISH" // the server refuses it in its own words
	}
	return c.Conn.Send(command, args...)
}

// A server that has no CLIENT KILL lacks the same defence.
func TestAMissingClientKillIsAWarning(t *testing.T) {
	t.Parallel()
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1}), soon(t)
	c := open(t, f, dialWith(f), func(cfg *redlock.Config) {
		dial := cfg.Nodes[0].Dial
		cfg.Nodes[0].Dial = func(ctx context.Context) (redis.Conn, error) {
			conn, err := dial(ctx)
			return withoutKill{conn}, err
		}
	})
	s := c.Status(ctx)[0]
	require.NoError(t, s.Err)
	require.Len(t, s.Warnings, 1)
	require.Contains(t, s.Warnings[0], "CLIENT KILL")
	require.NoError(t, c.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
}

// R1: An expiry that a server counts by a clock that was set back comes too early once the clock is right again. So a
// renewal never makes a key's time shorter.
func TestARenewalUnderAClockThatIsBehindTakesNoTimeFromTheKey(t *testing.T) {
	t.Parallel()
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Clocks: true}), soon(t)
	c := open(t, f)
	l, err := c.Mutex("x").WithoutRenewal().Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", l)
	behind := f.Nodes()[2]
	require.NoError(t, behind.SetClock(-30*time.Second))
	require.NoError(t, l.Extend(ctx))
	require.Equal(t, "master", c.Status(ctx)[2].Role) // answered after the renewal, on the same connection
	require.NoError(t, behind.SetClock(0))
	require.Equal(t, l.Token(), owners(t, f, "x")[2])
	require.NoError(t, l.Release(ctx))
	clears(t, f, "x")
}
