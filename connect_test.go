package redlock_test

import (
	"context"
	"crypto/tls"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// works acquires and releases once. It checks that every node had the key, in this database.
func works(t *testing.T, f *fleet.Fleet, c *redlock.Client, database int) {
	t.Helper()
	ctx := soon(t)
	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	// An Acquire asks a bare quorum; the first renewal is some seconds off.
	require.Eventually(t, func() bool { return l.Extend(ctx) == nil }, 10*time.Second, time.Millisecond)
	for _, n := range f.Nodes() {
		conn, err := n.DialDirect(ctx, time.Second)
		require.NoError(t, err)
		_, err = conn.Do("SELECT", database)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			owner, _ := redis.String(conn.Do("GET", "x"))
			return owner == l.Token()
		}, 5*time.Second, time.Millisecond)
		conn.Close()
	}
	require.NoError(t, l.Release(ctx))
}

func urls(f *fleet.Fleet, change func(*url.URL)) []string {
	all := f.URLs()
	for i := range all {
		u, err := url.Parse(all[i])
		if err != nil {
			panic(err)
		}
		change(u)
		all[i] = u.String()
	}
	return all
}

func TestConnectsOverUnixSockets(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Unix: true})
	require.True(t, strings.HasPrefix(f.URLs()[0], "unix:///"))
	works(t, f, open(t, f), 0)
	works(t, f, open(t, f, func(cfg *redlock.Config) {
		cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.RawQuery = "db=3" })...)
	}), 3)
}

func TestConnectsToADatabase(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	works(t, f, open(t, f, func(cfg *redlock.Config) {
		cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.Path = "/7" })...)
	}), 7)
}

func TestLogsInWithAndWithoutAUserName(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Args: []string{"--requirepass", "s3cret"}})
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "locker", "on", ">pass:word", "~*", "&*", "+@all")
	}
	for name, user := range map[string]*url.Userinfo{
		"password alone": url.UserPassword("", "s3cret"),
		"as redis-cli":   url.User("s3cret"),
		"user name":      url.UserPassword("locker", "pass:word"),
	} {
		t.Run(name, func(t *testing.T) {
			works(t, f, open(t, f, func(cfg *redlock.Config) {
				cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.User = user })...)
			}), 0)
		})
	}
	t.Run("a wrong password is an outage, and stays secret", func(t *testing.T) {
		c := open(t, f, func(cfg *redlock.Config) {
			cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.User = url.UserPassword("locker", "guess") })...)
		})
		_, err := c.Mutex("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "WRONGPASS")
		require.NotContains(t, err.Error(), "guess")
	})
}

func TestConnectsOverTLS(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	addresses, roots := fleettest.TLS(t, f.Nodes())
	nodes := make([]redlock.Node, len(addresses))
	for i, address := range addresses {
		nodes[i] = redlock.Node{URL: "rediss://" + address, TLS: &tls.Config{RootCAs: roots}}
	}
	works(t, f, open(t, f, func(cfg *redlock.Config) { cfg.Nodes = nodes }), 0)

	for i := range nodes {
		nodes[i].TLS = nil // the host's root certificates do not cover it
	}
	_, err := open(t, f, patient, func(cfg *redlock.Config) { cfg.Nodes = nodes }).Mutex("x").TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, "certificate")
}

func TestConnectsByADialFunction(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	nodes := make([]redlock.Node, len(f.Nodes()))
	for i, n := range f.Nodes() {
		nodes[i] = redlock.Node{Name: n.Name(), Dial: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialURLContext(ctx, n.URL(), redis.DialWriteTimeout(time.Second))
		}}
	}
	works(t, f, open(t, f, func(cfg *redlock.Config) { cfg.Nodes = nodes }), 0)
}

func TestAUserWhoMayTooLittleIsToldWhatIsRefused(t *testing.T) {
	for right, said := range map[string]string{"-time": "TIME: NOPERM", "-info": "INFO, which tells one server from another",
		"-script|load": "SCRIPT LOAD: NOPERM", "-client|setname": "", "-client|id": ""} {
		t.Run(right, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
			fleettest.SetUser(t, f.Nodes()[0], "some", "on", ">secret", "~*", "&*", "+@all", right)
			c := open(t, f, func(cfg *redlock.Config) {
				cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.User = url.UserPassword("some", "secret") })...)
			})
			status := c.Status(soon(t))
			if said == "" { // this right is not needed
				require.NoError(t, status[0].Err)
				works(t, f, c, 0)
				return
			}
			require.ErrorContains(t, status[0].Err, said)
			_, err := c.Mutex("x").TryAcquire(soon(t))
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, said)
		})
	}
}

// Who points a test at a stand-in for Redis that does not say which server it is hears what to use instead.
func TestAStandInForRedisIsToldFromAServer(t *testing.T) {
	server := miniredis.RunT(t)
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(server.Addr())})
	require.NoError(t, err)
	defer c.Close()
	require.ErrorContains(t, c.Status(soon(t))[0].Err, "in tests use package redlocktest")
}
