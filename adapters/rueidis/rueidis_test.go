package rueidis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock"
	redlockrueidis "github.com/quorumlock/redlock/adapters/rueidis"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var tell = fleettest.Tell

// addUser adds a user who may do all.
func addUser(t testing.TB, f *fleet.Fleet, user, password string) {
	for _, n := range f.Nodes() {
		tell(t, n, "ACL", "SETUSER", user, "on", "resetpass", ">"+password, "~*", "&*", "+@all")
	}
}

// optionsOf returns the options for each node, with what change changes.
func optionsOf(t testing.TB, f *fleet.Fleet, change func(i int, o *rueidis.ClientOption)) []rueidis.ClientOption {
	var all []rueidis.ClientOption
	for i, n := range f.Nodes() {
		u, err := url.Parse(n.URL())
		require.NoError(t, err)
		o := rueidis.ClientOption{InitAddress: []string{u.Host}}
		change(i, &o)
		all = append(all, o)
	}
	return all
}

func open(t testing.TB, options []rueidis.ClientOption, change ...func(*redlock.Config)) *redlock.Client {
	nodes, err := redlockrueidis.Nodes(options...)
	require.NoError(t, err)
	cfg := redlock.Config{Nodes: nodes, NodeTimeout: 3 * time.Second} // a busy machine is not taken for an outage
	for _, ch := range change {
		ch(&cfg)
	}
	c, err := redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// subscribes matches a subscriber connection in CLIENT LIST.
var subscribes = regexp.MustCompile(` sub=[1-9]`)

// works acquires and releases a contended lock, and returns the lines of CLIENT LIST about the client's connections to
// the first node meanwhile: the node's and the subscriber's.
func works(t *testing.T, f *fleet.Fleet, c *redlock.Client) (lines []string) {
	t.Helper()
	require.NoError(t, c.Enroll(soon(t)))
	l, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	second := make(chan error, 1)
	go func() {
		second <- c.Mutex("x").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil })
	}()
	var text string
	require.Eventually(t, func() bool {
		text = connections(t, f.Nodes()[0])
		return subscribes.MatchString(text)
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, l.Release(soon(t)))
	require.NoError(t, <-second)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "name=redlock ") || subscribes.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

func connections(t testing.TB, n *fleet.Node) string {
	text, err := redigo.String(tell(t, n, "CLIENT", "LIST"), nil)
	require.NoError(t, err)
	return text
}

func TestAddressDatabaseAndLoginAreTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		fleet  fleet.Options
		change func(*rueidis.ClientOption)
		shown  string
	}{
		"address":  {change: func(o *rueidis.ClientOption) {}, shown: "db=0"},
		"database": {change: func(o *rueidis.ClientOption) { o.SelectDB = 3 }, shown: "db=3"},
		"user name and password": {change: func(o *rueidis.ClientOption) { o.Username, o.Password = "locker", "pass word@/" },
			shown: "user=locker "},
		"password alone": {fleet: fleet.Options{Args: []string{"--requirepass", "pass word@/"}},
			change: func(o *rueidis.ClientOption) { o.Password = "pass word@/" }, shown: "user=default "},
		"AuthCredentialsFn": {change: func(o *rueidis.ClientOption) {
			o.Username, o.Password = "nobody", "nothing"
			o.AuthCredentialsFn = func(where rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
				if where.Address.String() != o.InitAddress[0] {
					return rueidis.AuthCredentials{}, fmt.Errorf("the address is %v", where.Address)
				}
				return rueidis.AuthCredentials{Username: "locker", Password: "pass word@/"}, nil
			}
		}, shown: "user=locker "},
		"what does not matter": {change: func(o *rueidis.ClientOption) {
			o.AlwaysRESP2, o.DisableRetry, o.ConnLifetime, o.ClientName = true, true, time.Nanosecond, "mine"
			o.SendToReplicas = func(rueidis.Completed) bool { return true }
		}, shown: "db=0"},
	} {
		t.Run(name, func(t *testing.T) {
			c.fleet.Nodes = 3
			f := fleettest.Start(t, fleet.Process, c.fleet)
			addUser(t, f, "locker", "pass word@/")
			lines := works(t, f, open(t, optionsOf(t, f, func(_ int, o *rueidis.ClientOption) { c.change(o) })))
			require.Len(t, lines, 2)
			for _, line := range lines {
				require.Contains(t, line, c.shown)
			}
		})
	}
}

// The options of a URL are those that rueidis makes of it, also for a socket.
func TestTheOptionsOfAURLAreTakenOver(t *testing.T) {
	for name, o := range map[string]fleet.Options{"tcp": {Nodes: 1}, "unix": {Nodes: 1, Unix: true}} {
		t.Run(name, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, o)
			lines := works(t, f, open(t, []rueidis.ClientOption{rueidis.MustParseURL(f.URLs()[0] + "?db=3")}))
			require.Len(t, lines, 2)
			require.Contains(t, lines[0], "db=3")
		})
	}
}

func TestTLSIsTakenOver(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	addresses, roots := fleettest.TLS(t, f.Nodes())
	secure := func(config *tls.Config) []rueidis.ClientOption {
		return optionsOf(t, f, func(i int, o *rueidis.ClientOption) { o.InitAddress[0], o.TLSConfig = addresses[i], config })
	}
	config := &tls.Config{RootCAs: roots}
	client := open(t, secure(config))
	config.RootCAs = nil // a copy was taken
	works(t, f, client)

	_, err := open(t, secure(&tls.Config{})).Mutex("x").TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, "certificate")
}

// The dial functions get what rueidis gives them: the address, a dialer with its defaults, and the TLS.
func TestTheDialFunctionsAreCalled(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	addresses, roots := fleettest.TLS(t, f.Nodes())
	var called [2]atomic.Int64
	dial := func(ctx context.Context, i int, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		called[i%2].Add(1)
		if address != fmt.Sprint("service-", i) || d.Timeout != rueidis.DefaultDialTimeout || d.KeepAlive != rueidis.DefaultTCPKeepAlive {
			return nil, fmt.Errorf("the address is %s, the dialer %+v", address, d)
		}
		d.Timeout = 0 // it is a copy
		secure := tls.Dialer{NetDialer: d, Config: config}
		return secure.DialContext(ctx, "tcp", addresses[i])
	}
	client := open(t, optionsOf(t, f, func(i int, o *rueidis.ClientOption) {
		o.InitAddress[0], o.TLSConfig = fmt.Sprint("service-", i), &tls.Config{RootCAs: roots}
		o.DialFn = func(address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
			return dial(context.Background(), i, address, d, config)
		}
		if i%2 == 0 {
			o.DialFn = func(string, *net.Dialer, *tls.Config) (net.Conn, error) {
				return nil, errors.New("DialCtxFn comes first")
			}
			o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
				return dial(ctx, i, address, d, config)
			}
		}
	}))
	works(t, f, client)
	require.NotZero(t, called[0].Load())
	require.NotZero(t, called[1].Load())
	require.Equal(t, "service-1", client.Status(soon(t))[1].Name)
}

func TestTheDialTimeoutIsTakenOver(t *testing.T) {
	left := make(chan time.Duration, 100)
	client := open(t, []rueidis.ClientOption{{InitAddress: []string{"a:1"}, Dialer: net.Dialer{Timeout: 20 * time.Millisecond},
		DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			deadline, _ := ctx.Deadline()
			left <- time.Until(deadline)
			<-ctx.Done()
			return nil, fmt.Errorf("no way: %w", ctx.Err())
		}}})
	require.LessOrEqual(t, <-left, 20*time.Millisecond)
	require.ErrorContains(t, client.Status(soon(t))[0].Err, "no way: context deadline exceeded")
}

func TestWhatCannotBeTakenOverIsNamed(t *testing.T) {
	one := []string{"a:1"}
	for said, o := range map[string]rueidis.ClientOption{
		"InitAddress: it has 0 addresses":        {},
		"InitAddress: it has 2 addresses":        {InitAddress: []string{"a:1", "b:1"}},
		"InitAddress: \"a\" is not host:port":    {InitAddress: []string{"a"}},
		"InitAddress: \"/run/x.sock\" is not":    {InitAddress: []string{"/run/x.sock"}},
		"Sentinel.MasterSet: a lock must not":    {InitAddress: one, Sentinel: rueidis.SentinelOption{MasterSet: "locks"}},
		"Standalone.EnableRedirect: a lock must": {InitAddress: one, Standalone: rueidis.StandaloneOption{EnableRedirect: true}},
		"ReplicaOnly: a lock must be written":    {InitAddress: one, ReplicaOnly: true},
		"SelectDB: -1 is no database number":     {InitAddress: one, SelectDB: -1},
	} {
		_, err := redlockrueidis.Node(o)
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, "redlock: invalid: ClientOption."+said)
	}
	_, err := redlockrueidis.Nodes(rueidis.ClientOption{InitAddress: one}, rueidis.ClientOption{})
	require.ErrorContains(t, err, "redlock: invalid: ClientOption[1].InitAddress: ")
}

func TestCredentialsThatFailAreNamedAndStaySecret(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	boom := fmt.Errorf("no vault for hunter2: %w", &net.OpError{Op: "dial", Err: errors.New("refused")})
	client := open(t, optionsOf(t, f, func(_ int, o *rueidis.ClientOption) {
		o.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			return rueidis.AuthCredentials{Password: "hunter2"}, boom
		}
	}))
	_, err := client.Mutex("x").TryAcquire(soon(t))
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	for _, text := range []string{err.Error(), client.Status(soon(t))[0].Err.Error()} {
		require.Contains(t, text, "no login from its AuthCredentialsFn: no vault")
		require.NotContains(t, text, "hunter2")
	}
}

// A login is the one that the vault gives out now.
type vault struct {
	mu    sync.Mutex
	login rueidis.AuthCredentials
	err   error
	asked int
}

func (v *vault) set(login rueidis.AuthCredentials, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.login, v.err = login, err
}

func (v *vault) ask(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	return v.login, v.err
}

func (v *vault) calls() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked
}

// At RefreshAfter an open connection logs in anew, and goes on. A RefreshAfter in the past is one a second from now. If
// there is no new login at that time, the old one stays.
func TestAnOpenConnectionLogsInAnewAtRefreshAfter(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	addUser(t, f, "old", "first")
	addUser(t, f, "new", "second")
	var v vault
	down := make(chan error, 100)
	v.set(rueidis.AuthCredentials{Username: "old", Password: "first", RefreshAfter: time.Now()}, nil)
	client := open(t, optionsOf(t, f, func(_ int, o *rueidis.ClientOption) { o.AuthCredentialsFn = v.ask }), func(cfg *redlock.Config) {
		cfg.Hooks.NodeDown = func(_ string, err error) { down <- err }
	})
	works(t, f, client)
	v.set(rueidis.AuthCredentials{}, errors.New("the vault is sealed"))
	asked := v.calls()
	require.Eventually(t, func() bool { return v.calls() >= asked+2 }, 15*time.Second, time.Millisecond, "it is asked again")

	v.set(rueidis.AuthCredentials{Username: "new", Password: "second"}, nil)
	require.Eventually(t, func() bool {
		_ = client.Status(soon(t)) // sends commands
		all := connections(t, f.Nodes()[0])
		return strings.Contains(all, "user=new ") && !strings.Contains(all, "user=old ")
	}, 15*time.Second, time.Millisecond)
	require.Empty(t, down)
	for _, line := range works(t, f, client) {
		require.Contains(t, line, "user=new ")
	}
}

// A connection that is closed asks no more.
func TestAClosedConnectionAsksForNoLogin(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	addUser(t, f, "old", "first")
	var v vault
	v.set(rueidis.AuthCredentials{Username: "old", Password: "first", RefreshAfter: time.Now()}, nil)
	client := open(t, optionsOf(t, f, func(_ int, o *rueidis.ClientOption) { o.AuthCredentialsFn = v.ask }))
	works(t, f, client)
	require.NoError(t, client.Close())
	asked := v.calls()
	time.Sleep(1500 * time.Millisecond) // a connection that is open asks once a second
	require.LessOrEqual(t, v.calls(), asked+2, "at most those that were under way")
}
