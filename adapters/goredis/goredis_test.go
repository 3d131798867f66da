package goredis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/adapters/goredis"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func tell(t testing.TB, n *fleet.Node, command string, args ...any) any {
	conn, err := n.DialDirect(soon(t), 5*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	reply, err := conn.Do(command, args...)
	require.NoError(t, err, command)
	return reply
}

// addUser adds a user who may do all.
func addUser(t testing.TB, f *fleet.Fleet, user, password string) {
	for _, n := range f.Nodes() {
		tell(t, n, "ACL", "SETUSER", user, "on", "resetpass", ">"+password, "~*", "&*", "+@all")
	}
}

func addressOf(t testing.TB, n *fleet.Node) string {
	u, err := url.Parse(n.URL())
	require.NoError(t, err)
	return u.Host + u.Path
}

// optionsOf returns the options for each node, with what change changes.
func optionsOf(t testing.TB, f *fleet.Fleet, change func(i int, o *redis.Options)) []*redis.Options {
	var all []*redis.Options
	for i, n := range f.Nodes() {
		o := &redis.Options{Addr: addressOf(t, n)}
		change(i, o)
		all = append(all, o)
	}
	return all
}

func open(t testing.TB, options []*redis.Options, change ...func(*redlock.Config)) *redlock.Client {
	nodes, err := goredis.Nodes(options...)
	require.NoError(t, err)
	cfg := redlock.Config{Nodes: nodes}
	for _, ch := range change {
		ch(&cfg)
	}
	c, err := redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// works acquires and releases a contended lock, and returns what node i knows of the client's connections meanwhile.
func works(t *testing.T, f *fleet.Fleet, c *redlock.Client, i int) string {
	t.Helper()
	require.NoError(t, c.Enroll(soon(t)))
	l, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	second := make(chan error, 1)
	go func() {
		second <- c.Mutex("x").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil })
	}()
	var text string
	require.Eventually(t, func() bool { // the subscriber's connection too
		var err error
		text, err = redigo.String(tell(t, f.Nodes()[i], "CLIENT", "LIST"), nil)
		return err == nil && strings.Contains(text, "sub=1")
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, l.Release(soon(t)))
	require.NoError(t, <-second)
	return text
}

// ours are the lines of CLIENT LIST about the client's connections: the node's and the subscriber's.
func ours(list string) (lines []string) {
	for line := range strings.Lines(list) {
		if strings.Contains(line, "name=redlock") || strings.Contains(line, "sub=1") {
			lines = append(lines, line)
		}
	}
	return lines
}

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
			cfg.NodeTimeout = 3 * time.Second // a busy machine is not taken for a server that has stopped
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
	}))
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

// A stream is a provider that tells its listeners each new login. Like others of its kind, it also tells them the first.
type stream struct {
	mu        sync.Mutex
	now       auth.Credentials
	listeners map[auth.CredentialsListener]bool
	err       error
}

func newStream(user, password string) *stream {
	return &stream{now: auth.NewBasicCredentials(user, password), listeners: map[auth.CredentialsListener]bool{}}
}

func (s *stream) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, nil, s.err
	}
	s.listeners[l] = true
	l.OnNext(s.now)
	return s.now, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
		return nil
	}, nil
}

// next tells all listeners, under its lock.
func (s *stream) next(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = auth.NewBasicCredentials(user, password)
	for l := range s.listeners {
		l.OnNext(s.now)
	}
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		l.OnError(err)
	}
}

func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listeners)
}

// idOf returns the number and the user of the client's connection to the node.
func idOf(t testing.TB, n *fleet.Node) (id, user string) {
	list, err := redigo.String(tell(t, n, "CLIENT", "LIST"), nil)
	require.NoError(t, err)
	for line := range strings.Lines(list) {
		if strings.Contains(line, "name=redlock ") {
			for _, field := range strings.Fields(line) {
				if value, ok := strings.CutPrefix(field, "id="); ok {
					id = value
				}
				if value, ok := strings.CutPrefix(field, "user="); ok {
					user = value
				}
			}
		}
	}
	return id, user
}

// Open connections log in anew when the provider has a new login, and go on.
func TestAStreamOfCredentialsRenewsTheLoginOfOpenConnections(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	addUser(t, f, "old", "first")
	addUser(t, f, "new", "second")
	s := newStream("old", "first")
	down := make(chan error, 100)
	client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.StreamingCredentialsProvider = s }),
		func(cfg *redlock.Config) {
			cfg.NodeTimeout = 3 * time.Second // a busy machine is not taken for a server that has stopped
			cfg.Hooks.NodeDown = func(_ string, err error) { down <- err }
		})
	works(t, f, client, 0)
	before, user := idOf(t, f.Nodes()[0])
	require.Equal(t, "old", user)
	s.fail(errors.New("the provider is away for a moment"))

	l, err := client.Mutex("held").Acquire(soon(t))
	require.NoError(t, err)
	s.next("new", "second")
	require.NoError(t, l.Extend(soon(t)))
	require.Eventually(t, func() bool {
		after, user := idOf(t, f.Nodes()[0])
		require.Equal(t, before, after, "the same connection")
		return user == "new"
	}, 5*time.Second, time.Millisecond)
	for _, n := range f.Nodes() {
		tell(t, n, "ACL", "DELUSER", "old") // ends the connections that are still logged in as old: the subscribers'
	}
	for _, line := range ours(works(t, f, client, 0)) {
		require.Contains(t, line, "user=new ")
	}
	require.NoError(t, l.Release(soon(t)))
	require.Empty(t, down)

	require.NoError(t, client.Close())
	require.Zero(t, s.count(), "no connection is left that listens")
}

// An idle connection logs in anew within the five seconds in which the client asks each node how it is.
func TestAStreamOfCredentialsReachesIdleConnections(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	addUser(t, f, "old", "first")
	addUser(t, f, "new", "second")
	s := newStream("old", "first")
	client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.StreamingCredentialsProvider = s }))
	require.NoError(t, client.Enroll(soon(t)))
	s.next("new", "second")
	require.Eventually(t, func() bool {
		_, user := idOf(t, f.Nodes()[0])
		return user == "new"
	}, 15*time.Second, 10*time.Millisecond)
}

// A login that the server refuses ends the connection, and the error says so.
func TestAStreamOfWrongCredentialsIsNamed(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	addUser(t, f, "old", "first")
	s := newStream("old", "first")
	down := make(chan error, 100)
	client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.StreamingCredentialsProvider = s }),
		func(cfg *redlock.Config) {
			cfg.NodeTimeout = 3 * time.Second // a busy machine is not taken for a server that has stopped
			cfg.Hooks.NodeDown = func(_ string, err error) { down <- err }
		})
	works(t, f, client, 0)
	s.next("old", "hunter2")
	_ = client.Status(soon(t)) // asks the node
	err := <-down
	require.ErrorContains(t, err, "it refused the renewed login: WRONGPASS")
	require.NotContains(t, err.Error(), "hunter2")
	require.Eventually(t, func() bool {
		why := client.Status(soon(t))[0].Err
		return why != nil && strings.Contains(why.Error(), "it refused the login: WRONGPASS")
	}, 5*time.Second, time.Millisecond)
	s.next("old", "first")
	require.Eventually(t, func() bool { return client.Status(soon(t))[0].Err == nil }, 10*time.Second, 10*time.Millisecond)
}

// Clients are closed and connections cut while logins change: for the race detector and the test for leaked goroutines.
func TestLoginsChangeWhileConnectionsComeAndGo(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	addUser(t, f, "old", "first")
	addUser(t, f, "new", "second")
	s := newStream("old", "first")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if i%2 == 0 {
				s.next("new", "second")
			} else {
				s.next("old", "first")
			}
			if i%20 == 0 {
				tell(t, f.Nodes()[i/20%3], "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			}
		}
	})
	for range 5 {
		client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.StreamingCredentialsProvider = s }))
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				for ctx.Err() == nil {
					_ = client.Enroll(ctx)
					_ = client.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
				}
			})
		}
		workers.Wait()
		require.NoError(t, client.Close())
	}
	close(stop)
	wg.Wait()
	require.Zero(t, s.count())
}
