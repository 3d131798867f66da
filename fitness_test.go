package redlock_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

// N1: An unfit node has no vote. Status, and the error of an Acquire that lacks its vote, say what to change.
func TestAnUnfitNodeHasNoVoteAndSaysWhatToChange(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		spoil  func(t *testing.T, n, other *fleet.Node)
		change func(*redlock.Config)
		says   []string
	}{
		"a replica": {says: []string{"replica of", "independent master"}, spoil: func(t *testing.T, n, other *fleet.Node) {
			host, port, err := other.PeerAddress()
			require.NoError(t, err)
			tell(t, n, "REPLICAOF", host, port)
		}},
		"allkeys-lru with a limit": {says: []string{"evict", "noeviction"}, spoil: func(t *testing.T, n, _ *fleet.Node) {
			tell(t, n, "CONFIG", "SET", "maxmemory", "100mb")
			tell(t, n, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
		}},
		"volatile-lru with a limit": {says: []string{"evict", "noeviction"}, spoil: func(t *testing.T, n, _ *fleet.Node) {
			tell(t, n, "CONFIG", "SET", "maxmemory", "100mb")
			tell(t, n, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
		}},
		"cluster mode": {says: []string{"cluster mode", "cluster-enabled no"}, args: []string{"--cluster-enabled", "yes"}},
		"not durable, where Durable is set": {says: []string{"append-only", "appendonly yes"},
			change: func(cfg *redlock.Config) { cfg.Durable = true }},
		"persisting later, where Durable is set": {says: []string{"appendfsync everysec", "appendfsync always"},
			args:   []string{"--appendonly", "yes", "--appendfsync", "everysec"},
			change: func(cfg *redlock.Config) { cfg.Durable = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unfit := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1, Args: c.args})
			fit := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 2, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
			if c.spoil != nil {
				c.spoil(t, unfit.Nodes()[0], fit.Nodes()[0])
			}
			client := openFresh(t, fit, func(cfg *redlock.Config) {
				if c.change != nil {
					c.change(cfg)
				}
				cfg.Nodes = redlock.Nodes(append(unfit.URLs(), fit.URLs()...)...)
			})
			ctx := soon(t)
			_ = client.Enroll(ctx)
			status := client.Status(ctx)
			require.Len(t, status, 3)
			require.Error(t, status[0].Err)
			require.NoError(t, status[1].Err)
			require.NoError(t, fit.Nodes()[1].Kill()) // the unfit one's vote would be needed now
			_, err := client.Mutex("x").TryAcquire(ctx)
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			for _, word := range c.says {
				require.ErrorContains(t, status[0].Err, word)
				require.ErrorContains(t, err, word)
			}
		})
	}
}

func TestOneServerUnderTwoAddressesHasOneVote(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 2, Unix: true})
	conn, err := f.Nodes()[0].Dial(soon(t), time.Second)
	require.NoError(t, err)
	defer conn.Close()
	port, err := redis.Strings(conn.Do("CONFIG", "GET", "port"))
	require.NoError(t, err)
	same := "redis://127.0.0.1:" + port[1]
	client := open(t, f, func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(append(f.URLs(), same)...) })
	ctx := soon(t)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		refused := 0
		for _, s := range client.Status(ctx) {
			if s.Err != nil {
				assert.ErrorContains(t, s.Err, "the same server as")
				assert.ErrorIs(t, s.Err, redlock.ErrInvalid)
				refused++
			}
		}
		assert.Equal(t, 1, refused)
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, f.Nodes()[1].Kill())
	_, err = client.Mutex("x").TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum, "two of the three names are one server")
	require.ErrorContains(t, err, "the same server as")
}

// N1: A server may become unfit while it is connected.
func TestANodeThatBecomesUnfitLosesItsVote(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	client, ctx := open(t, f, patient), soon(t)
	n := f.Nodes()[0]
	tell(t, n, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	tell(t, n, "CONFIG", "SET", "maxmemory", "100mb")
	status := client.Status(ctx) // asks, as the health check does every five seconds
	require.ErrorContains(t, status[0].Err, "noeviction")
	require.NoError(t, f.Nodes()[1].Kill())
	_, err := client.Mutex("x").TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, "noeviction")
	tell(t, n, "CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, client.Status(ctx)[0].Err)
	l, err := client.Mutex("x").TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Release(ctx))
}

func TestStatusTellsEveryNode(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		client, ctx := open(t, f), soon(t)
		require.NoError(t, f.Nodes()[4].Kill())
		require.Eventually(t, func() bool { return !client.Status(ctx)[4].Connected }, 5*time.Second, time.Millisecond)
		status := client.Status(ctx)
		for i, s := range status[:4] {
			require.True(t, s.Connected)
			require.NoError(t, s.Err)
			id, err := f.Nodes()[i].RunID(ctx)
			require.NoError(t, err)
			require.Equal(t, id, s.RunID)
			require.Equal(t, "master", s.Role)
			require.NotEmpty(t, s.Version)
			require.Positive(t, s.Latency)
			require.Less(t, s.ClockOffset.Abs(), time.Second)
			require.Equal(t, 30*time.Second, s.MaxTTL)
			require.Zero(t, s.Quarantine)
		}
		require.Error(t, status[4].Err)
	})
}

// C1, C2: A real server's clock steps a minute ahead, so the lease's key is gone there. Both quorums share that node.
// Without the band, two clients hold the lock.
func TestAServerWhoseClockStepsDoesNotLetASecondHolderIn(t *testing.T) {
	overlapAfterStep := func(t *testing.T, change ...func(*redlock.Config)) bool {
		t.Parallel() // one of them waits
		change = append(change, func(cfg *redlock.Config) { cfg.NodeTimeout = time.Second })
		if err := fleet.ClocksAvailable(fleet.Process); err != nil {
			required.Missing(t, "clocks", err)
		}
		f := fleettest.Start(t, fleet.Process, fleet.Options{Links: true, Clocks: true})
		nodes := f.Nodes()
		second := openDirect(t, f, change...)
		first := open(t, f, change...)
		for _, n := range nodes[3:] {
			require.NoError(t, n.Cut()) // only for the first client, which connects through the links
		}
		l, err := first.Mutex("x").WithoutRenewal().WithTTL(30 * time.Second).Acquire(soon(t)) // until the end of the test
		require.NoError(t, err)
		require.NoError(t, nodes[2].SetClock(time.Minute))
		var urls []string
		for _, n := range nodes[2:] {
			urls = append(urls, n.DirectURL())
		}
		// The second client reaches nodes 3 to 5; 1 and 2 are silent to it.
		other := openFresh(t, f, append(slices.Clone(change), func(cfg *redlock.Config) {
			cfg.Nodes = redlock.Nodes(append([]string{"127.0.0.1:1", "127.0.0.1:2"}, urls...)...)
		})...)
		other.Status(soon(t)) // it has heard from all three
		try, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		next, err := other.Mutex("x").Acquire(try)
		if err == nil {
			both := l.Valid() && next.Valid()
			require.NoError(t, next.Release(soon(t)))
			return both
		}
		require.ErrorContains(t, err, "clock")
		require.ErrorContains(t, l.Release(soon(t)), "the key was not ours", "node 3 let its key expire")
		require.NoError(t, nodes[2].SetClock(0))
		require.NoError(t, f.Heal())
		l, err = second.Mutex("x").Acquire(soon(t))
		require.NoError(t, err)
		require.NoError(t, l.Release(soon(t)))
		return false
	}
	t.Run("with the band", func(t *testing.T) { require.False(t, overlapAfterStep(t), "two hold it") })
	t.Run("with the band off", func(t *testing.T) {
		require.True(t, overlapAfterStep(t, redlock.Switches["clock band"].Off), "without the band two hold it")
	})
}

// C1, W3: A server whose clock went back keeps a dead holder's key for that much longer. Waiters must not wait for it:
// its clock is out of step, so it has no vote and is not asked first.
func TestAServerWhoseClockIsBehindKeepsNobodyWaiting(t *testing.T) {
	if err := fleet.ClocksAvailable(fleet.Process); err != nil {
		required.Missing(t, "clocks", err)
	}
	f := fleettest.Start(t, fleet.Process, fleet.Options{Clocks: true})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	first, second := open(t, f, patient), open(t, f, patient)
	dead, err := first.Mutex("x").WithTTL(3 * time.Second).WithoutRenewal().Acquire(ctx)
	require.NoError(t, err)
	spread(t, f, "x", dead)
	behind := f.Nodes()[0]
	require.NoError(t, behind.SetClock(-2*time.Minute))
	left, err := redis.Int64(tell(t, behind, "PTTL", "x"), nil)
	require.NoError(t, err)
	require.Greater(t, left, int64(100_000), "it has the key for two minutes more")
	began := time.Now()
	for range 3 {
		l, err := second.Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Release(ctx))
	}
	require.Less(t, time.Since(began), 20*time.Second)
}

// R1: A server tells that its clock was set back since it wrote a key, until its clock has gone over that time again.
func TestARealServerTellsThatItsClockWasSetBack(t *testing.T) {
	if err := fleet.ClocksAvailable(fleet.Process); err != nil {
		required.Missing(t, "clocks", err)
	}
	for name, lock := range map[string]func(*redlock.Client) redlock.Lock{
		"a string": func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
		"an entry": func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Clocks: true})
			ahead, ctx := f.Nodes()[0], soon(t)
			require.NoError(t, ahead.SetClock(3*time.Second)) // before the client hears it: it must not see a step
			l, err := lock(open(t, f, patient, redlock.AskAll)).WithoutRenewal().WithTTL(20 * time.Second).Acquire(ctx)
			require.NoError(t, err)
			require.NoError(t, l.Extend(ctx))
			hasAnswered := func() bool { return redlock.Answered(l) && redlock.KnownToHave(l) == 3 }
			require.Eventually(t, hasAnswered, 5*time.Second, time.Millisecond)
			require.Equal(t, 2, redlock.Proven(l), "its clock is wrong")
			require.NoError(t, ahead.SetClock(0))
			require.NoError(t, l.Extend(ctx))
			require.Equal(t, 2, redlock.Proven(l), "its clock is right again")
			counts := func() bool { return l.Extend(ctx) == nil && redlock.Proven(l) == 3 }
			require.Eventually(t, counts, 10*time.Second, 10*time.Millisecond)
			require.NoError(t, l.Release(ctx))
		})
	}
}

// N1: A vote counts only if INFO vouches for it (Q1). So a server that begins to refuse INFO has no vote, and Status
// says so.
func TestAServerThatComesToRefuseInfoHasNoVote(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c, ctx := open(t, f, patient), soon(t)
	require.NoError(t, c.Status(ctx)[1].Err)
	tell(t, f.Nodes()[1], "ACL", "SETUSER", "default", "-info")
	require.ErrorContains(t, c.Status(ctx)[1].Err, "refuses INFO")
	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err, "the others are enough")
	require.NoError(t, l.Release(ctx))
	tell(t, f.Nodes()[1], "ACL", "SETUSER", "default", "+info")
	require.NoError(t, c.Status(ctx)[1].Err)
}

// N1: Behind a proxy, INFO may lack what promotions are recognised by. Then the node has no vote, whoever asks.
func TestANodeWhoseInfoHasNoRoleHasNoVote(t *testing.T) {
	withoutRole := func(info string) string { return regexp.MustCompile(`(?m)^role:.*\r\n`).ReplaceAllString(info, "") }
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	proxies := []*proxy{newProxy(t, f.Nodes()[0]), newProxy(t, f.Nodes()[1])}
	through := func(cfg *redlock.Config) {
		cfg.Nodes = redlock.Nodes(proxies[0].url(), proxies[1].url(), f.Nodes()[2].URL())
	}
	old := openFresh(t, f, patient, through)
	require.NoError(t, enroll(t, old))
	for _, p := range proxies {
		p.tell(withoutRole)
	}
	const why = "its INFO has no replication section, by which promotions are recognised"
	for _, c := range []*redlock.Client{old, openFresh(t, f, patient, through)} {
		nodes := c.Status(soon(t))
		require.ErrorContains(t, nodes[0].Err, why)
		require.ErrorContains(t, nodes[1].Err, why)
		require.NoError(t, nodes[2].Err)
		for i := range 12 {
			_, err := c.Mutex(fmt.Sprint("x", i)).TryAcquire(soon(t))
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, why)
		}
	}
}

// A product that has a proxy in front may hide a restart. Where INFO names the product, Status warns before that happens.
func TestStatusWarnsOfRedisEnterprise(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	proxy := newProxy(t, f.Nodes()[0])
	proxy.tell(func(info string) string {
		return strings.Replace(info, "run_id:", "rlec_version:7.8.2-34\r\nrun_id:", 1)
	})
	c := openFresh(t, f, patient, func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(proxy.url()) })
	require.NoError(t, enroll(t, c))
	n := c.Status(soon(t))[0]
	require.NoError(t, n.Err)
	require.Len(t, n.Warnings, 1)
	require.Contains(t, n.Warnings[0], "it is Redis Enterprise (rlec_version 7.8.2-34)")
	require.Contains(t, n.Warnings[0], "proxy")
}
