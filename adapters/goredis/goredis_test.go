package goredis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/adapters/goredis"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestAddressNetworkDatabaseAndLoginAreTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		fleet  fleet.Options
		change func(*redis.Options)
		user   string
		shown  string
	}{
		"address":                {change: func(o *redis.Options) {}, shown: "db=0"},
		"database":               {change: func(o *redis.Options) { o.DB = 3 }, shown: "db=3"},
		"network":                {change: func(o *redis.Options) { o.Network = "tcp4" }, shown: "db=0"},
		"socket by its path":     {fleet: fleet.Options{Unix: true}, change: func(o *redis.Options) { o.DB = 2 }, shown: "db=2"},
		"socket by its network":  {fleet: fleet.Options{Unix: true}, change: func(o *redis.Options) { o.Network = "unix" }, shown: "redis.sock"},
		"user name and password": {change: func(o *redis.Options) { o.Username, o.Password = "locker", "pass word@/" }, user: "locker"},
		"password alone": {fleet: fleet.Options{Args: []string{"--requirepass", "pass word@/"}},
			change: func(o *redis.Options) { o.Password = "pass word@/" }, user: "default"},
		"a user name without a password, which go-redis does not use": {change: func(o *redis.Options) { o.Username = "nobody" }, user: "default"},
		"CredentialsProvider": {change: func(o *redis.Options) {
			o.CredentialsProvider = func() (string, string) { return "locker", "pass word@/" }
			o.Username, o.Password = "nobody", "nothing"
		}, user: "locker"},
		"CredentialsProviderContext": {change: func(o *redis.Options) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "locker", "pass word@/", nil }
			o.CredentialsProvider = func() (string, string) { return "nobody", "nothing" }
		}, user: "locker"},
		"StreamingCredentialsProvider": {change: func(o *redis.Options) {
			o.StreamingCredentialsProvider = newStream("locker", "pass word@/")
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "nobody", "nothing", nil }
		}, user: "locker"},
		"what a client has made of its options": {change: func(o *redis.Options) {
			o.DB = 5
			client := redis.NewClient(o)
			defer client.Close()
			*o = *client.Options()
		}, shown: "db=5"},
		"what does not matter": {change: func(o *redis.Options) {
			o.Protocol, o.PoolSize, o.MaxRetries, o.ReadTimeout, o.ClientName = 3, 1, -1, time.Nanosecond, "mine"
		}, shown: "db=0"},
	} {
		t.Run(name, func(t *testing.T) {
			c.fleet.Nodes = 3
			f := fleettest.Start(t, fleet.Process, c.fleet)
			addUser(t, f, "locker", "pass word@/")
			client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { c.change(o) }))
			lines := ours(works(t, f, client, 0))
			require.Len(t, lines, 2)
			for _, line := range lines {
				require.Contains(t, line, c.shown)
				if c.user != "" {
					require.Contains(t, line, "user="+c.user+" ")
				}
			}
		})
	}
}

func TestTLSIsTakenOver(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	addresses, roots := fleettest.TLS(t, f.Nodes())
	secure := func(config *tls.Config) []*redis.Options {
		return optionsOf(t, f, func(i int, o *redis.Options) { o.Addr, o.TLSConfig = addresses[i], config })
	}
	config := &tls.Config{RootCAs: roots}
	client := open(t, secure(config))
	config.RootCAs = nil // a copy was taken
	works(t, f, client, 0)

	_, err := open(t, secure(&tls.Config{})).Mutex("x").TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, "certificate")

	// As in go-redis, a Dialer makes the TLS itself. This one is go-redis's own.
	withDialer := optionsOf(t, f, func(i int, o *redis.Options) {
		o.Addr, o.TLSConfig = addresses[i], &tls.Config{RootCAs: roots}
		o.Dialer = redis.NewDialer(o)
	})
	works(t, f, open(t, withDialer), 0)
}

func TestADialerIsCalledWithNetworkAndAddress(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	var dialled sync.Map
	client := open(t, optionsOf(t, f, func(i int, o *redis.Options) {
		to := o.Addr
		o.Network, o.Addr = "mesh", fmt.Sprint("service-", i)
		o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Store(network+" "+address, true)
			var d net.Dialer
			return d.DialContext(ctx, "tcp", to)
		}
	}))
	works(t, f, client, 0)
	for i := range f.Nodes() {
		_, found := dialled.Load(fmt.Sprint("mesh service-", i))
		require.True(t, found)
	}
	require.Equal(t, "service-1", client.Status(soon(t))[1].Name)
}

func TestTheDialTimeoutIsTakenOver(t *testing.T) {
	left := make(chan time.Duration, 100)
	client := open(t, []*redis.Options{{Addr: "a:1", DialTimeout: 20 * time.Millisecond,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			deadline, _ := ctx.Deadline()
			left <- time.Until(deadline)
			<-ctx.Done()
			return nil, fmt.Errorf("no way: %w", ctx.Err())
		}}})
	require.LessOrEqual(t, <-left, 20*time.Millisecond)
	require.ErrorContains(t, client.Status(soon(t))[0].Err, "no way: context deadline exceeded")
}

// An idle connection stays open, whatever ReadTimeout is.
func TestAReadTimeoutIsIgnored(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	down := make(chan error, 100)
	client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.ReadTimeout = 10 * time.Millisecond }),
		func(cfg *redlock.Config) {
			cfg.Hooks.NodeDown = func(_ string, err error) { down <- err }
		})
	works(t, f, client, 0)
	node := f.Nodes()[0]
	tell(t, node, "CLIENT", "PAUSE", "100", "ALL") // ten times the timeout
	for _, status := range client.Status(soon(t)) {
		require.Empty(t, status.Warnings)
	}
	works(t, f, client, 0)
	require.Empty(t, down)
}

func TestWhatCannotBeTakenOverIsNamed(t *testing.T) {
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "x", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer sentinel.Close()
	for field, o := range map[string]*redis.Options{
		"Options: it is nil": nil,
		"Options.Addr: these are the options of a Sentinel client":      sentinel.Options(),
		"Options.Addr: \"10.0.0.1\" is not host:port":                   {Addr: "10.0.0.1"},
		"Options.Network: \"udp\" is none of tcp, tcp4, tcp6 and unix;": {Addr: "a:1", Network: "udp"},
		"Options.DB: -1 is no database number":                          {Addr: "a:1", DB: -1},
		"Options.OnConnect: it needs a connection of go-redis.":         {Addr: "a:1", OnConnect: func(context.Context, *redis.Conn) error { return nil }},
	} {
		_, err := goredis.Node(o)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, "redlock: invalid: "+field)
	}
	_, err := goredis.Nodes(&redis.Options{}, &redis.Options{DB: -1})
	require.ErrorContains(t, err, "redlock: invalid: Options[1].DB: ")
	nodes, err := goredis.Nodes()
	require.NoError(t, err)
	require.Empty(t, nodes)
	node, err := goredis.Node(&redis.Options{})
	require.NoError(t, err)
	require.Equal(t, "localhost:6379", node.Name, "go-redis's default")
}

// One server has one vote, also if its options are given twice.
func TestTheSameOptionsTwiceAreRefused(t *testing.T) {
	o := &redis.Options{Addr: "a:1"}
	nodes, err := goredis.Nodes(o, o)
	require.NoError(t, err)
	_, err = redlock.New(redlock.Config{Nodes: nodes})
	require.ErrorIs(t, err, redlock.ErrInvalid)
}

func TestOptionsThatAreChangedLaterDoNotMatter(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	options := optionsOf(t, f, func(_ int, o *redis.Options) {})
	client := open(t, options)
	options[0].Addr, options[0].DB, options[0].Password = "127.0.0.1:1", 7, "x"
	works(t, f, client, 0)
}

func TestProvidersThatFailAreNamedAndStaySecret(t *testing.T) {
	boom := fmt.Errorf("no vault for hunter2: %w", &net.OpError{Op: "dial", Err: errors.New("refused")})
	for name, change := range map[string]func(*redis.Options){
		"CredentialsProviderContext": func(o *redis.Options) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "locker", "hunter2", boom }
		},
		"StreamingCredentialsProvider": func(o *redis.Options) {
			s := newStream("", "")
			s.err = errors.New("no vault")
			o.StreamingCredentialsProvider = s
		},
	} {
		f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
		client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { change(o) }))
		_, err := client.Mutex("x").TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		for _, text := range []string{err.Error(), client.Status(soon(t))[0].Err.Error()} {
			require.Contains(t, text, "no login from its "+name+": no vault")
			require.NotContains(t, text, "hunter2")
		}
	}
}

// A provider without a context may block. Its node is not connected, and Close does not wait for it.
func TestAProviderThatBlocksHoldsUpOnlyItsNode(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	block := make(chan struct{})
	client := open(t, optionsOf(t, f, func(i int, o *redis.Options) {
		if i == 2 {
			o.CredentialsProvider = func() (string, string) {
				<-block
				return "", ""
			}
		}
	}), func(cfg *redlock.Config) { cfg.NodeTimeout = 250 * time.Millisecond }) // it has a second to open a connection
	require.Error(t, client.Enroll(soon(t)))
	require.NoError(t, client.Mutex("x").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))
	require.ErrorContains(t, client.Status(soon(t))[2].Err, "its Dial has not returned")
	require.NoError(t, client.Close())
	close(block)
}

func TestAPasswordThatRotates(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	var password atomic.Pointer[string]
	rotate := func(to string) {
		addUser(t, f, "locker", to)
		password.Store(&to)
	}
	rotate("first")
	client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) {
		o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "locker", *password.Load(), nil }
	}))
	works(t, f, client, 0)
	rotate("second")
	for _, n := range f.Nodes() {
		tell(t, n, "CLIENT", "KILL", "USER", "locker")
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, status := range client.Status(context.Background()) {
			assert.NoError(t, status.Err)
		}
	}, 10*time.Second, 10*time.Millisecond)
	works(t, f, client, 1)
}
