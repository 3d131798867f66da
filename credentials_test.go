package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// A rotation is a provider of credentials whose password changes, on the servers too.
type rotation struct {
	user     string
	password atomic.Pointer[string]
	asked    atomic.Int64
	control  []redis.Conn // one to each node; it stays logged in
	set      func(t *testing.T, server redis.Conn, password string)
}

func (r *rotation) credentials(context.Context) (string, string, error) {
	r.asked.Add(1)
	return r.user, *r.password.Load(), nil
}

func (r *rotation) rotate(t *testing.T, password string) {
	for _, server := range r.control {
		r.set(t, server, password)
	}
	r.password.Store(&password)
}

// each executes a command on each node.
func (r *rotation) each(t *testing.T, command string, args ...any) (replies []any) {
	for _, server := range r.control {
		reply, err := server.Do(command, args...)
		require.NoError(t, err)
		replies = append(replies, reply)
	}
	return replies
}

// subscribers is on how many nodes the client is subscribed.
func (r *rotation) subscribers(t *testing.T) (count int) {
	for _, list := range r.each(t, "CLIENT", "LIST", "TYPE", "pubsub") {
		if text, _ := redis.String(list, nil); text != "" {
			count++
		}
	}
	return count
}

func rotating(t *testing.T, f *fleet.Fleet, user string, set func(*testing.T, redis.Conn, string)) *rotation {
	r := &rotation{user: user, set: set}
	for _, n := range f.Nodes() {
		conn, err := n.DialDirect(soon(t), 5*time.Second)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		r.control = append(r.control, conn)
	}
	r.rotate(t, "first-secret")
	return r
}

// A client whose password rotates logs in with the new one on each new connection, the subscriber's too. A connection
// that stays open keeps its login.
func TestAPasswordThatRotates(t *testing.T) {
	for name, c := range map[string]struct {
		user string
		set  func(*testing.T, redis.Conn, string)
	}{
		"of a user": {"locker", func(t *testing.T, server redis.Conn, password string) {
			fleettest.SetUserBy(t, server, "locker", "on", "resetpass", ">"+password, "~*", "&*", "+@all")
		}},
		"requirepass": {"", func(t *testing.T, server redis.Conn, password string) {
			_, err := server.Do("CONFIG", "SET", "requirepass", password)
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
			r := rotating(t, f, c.user, c.set)
			configure := func(cfg *redlock.Config) { cfg.Credentials = r.credentials }
			a, b := open(t, f, configure, patient), open(t, f, configure, patient)
			held, err := a.Mutex("x").Acquire(soon(t))
			require.NoError(t, err)
			waiter := begin(t, b, "x")
			require.Eventually(t, func() bool { return r.subscribers(t) == 3 }, 10*time.Second, time.Millisecond)
			asked := r.asked.Load()

			r.rotate(t, "second-secret")
			require.NoError(t, held.Extend(soon(t)))
			for _, status := range a.Status(soon(t)) {
				require.NoError(t, status.Err)
			}
			require.Equal(t, asked, r.asked.Load(), "open connections keep their login")

			r.each(t, "CLIENT", "KILL", "SKIPME", "yes")
			require.Eventually(t, func() bool { return r.subscribers(t) == 3 }, 10*time.Second, time.Millisecond)
			for _, client := range []*redlock.Client{a, b} {
				require.EventuallyWithT(t, func(t *assert.CollectT) {
					for _, status := range client.Status(context.Background()) {
						assert.NoError(t, status.Err)
					}
				}, 10*time.Second, time.Millisecond)
			}
			require.GreaterOrEqual(t, r.asked.Load(), asked+9, "two clients' connections and one's subscribers to three nodes")
			require.NoError(t, held.Release(soon(t)))
			require.NoError(t, waiter.has(t).Release(soon(t)))

			// A provider that still has the old password does not get in, and the password stays secret.
			old := "first-secret"
			r.password.Store(&old)
			r.each(t, "CLIENT", "KILL", "SKIPME", "yes")
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				_, err := a.Mutex("x").TryAcquire(context.Background())
				assert.ErrorIs(t, err, redlock.ErrNoQuorum)
				assert.ErrorContains(t, err, "it refused the login: WRONGPASS")
				assert.NotContains(t, fmt.Sprintf("%+v", err), "secret")
			}, 10*time.Second, time.Millisecond)
		})
	}
}

// A node's own Credentials, and the login in its URL, come before Config.Credentials. The database is selected with
// each of them.
func TestANodesOwnLoginComesFirst(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	as(t, f, "of-the-node")
	as(t, f, "of-the-url")
	as(t, f, "of-all")
	provider := func(user string) func(context.Context) (string, string, error) {
		return func(context.Context) (string, string, error) { return user, "secret", nil }
	}
	c := open(t, f, func(cfg *redlock.Config) {
		cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.Path = "/3" })...)
		cfg.Nodes[0].Credentials = provider("of-the-node")
		cfg.Nodes[1].URL = strings.Replace(cfg.Nodes[1].URL, "://", "://of-the-url:secret@", 1)
		cfg.Credentials = provider("of-all")
	})
	works(t, f, c, 3)
	for i, user := range []string{"of-the-node", "of-the-url", "of-all"} {
		list, err := redis.String(tell(t, f.Nodes()[i], "CLIENT", "LIST"), nil)
		require.NoError(t, err)
		require.Regexp(t, "name=redlock .*user="+user+"[ \n]", list)
	}
}

func TestCredentialsThatFailAreNamedAndStaySecret(t *testing.T) {
	unreachable := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, why := range map[string]error{
		"an error":          errors.New("the vault is sealed"),
		"of the network":    fmt.Errorf("the vault is away: %w", unreachable),
		"with the password": errors.New("the vault refused hunter2"),
	} {
		t.Run(name, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
			var log journal
			var heals atomic.Bool
			c := openFresh(t, f, func(cfg *redlock.Config) {
				cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				cfg.Credentials = func(context.Context) (string, string, error) {
					if heals.Load() {
						return "", "", nil
					}
					return "locker", "hunter2", why
				}
			})
			_, err := c.Mutex("x").TryAcquire(soon(t))
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorIs(t, err, why, "the function's error can be found")
			shown := []string{err.Error(), fmt.Sprintf("%+v", err)}
			for _, status := range c.Status(soon(t)) {
				require.False(t, status.Connected)
				shown = append(shown, status.Err.Error())
			}
			for _, text := range shown {
				require.Contains(t, text, "no login from its Credentials: the vault")
				require.NotContains(t, text, "hunter2")
			}
			require.Zero(t, log.count("hunter2"))

			heals.Store(true)
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				assert.NoError(t, c.Enroll(context.Background()))
			}, 10*time.Second, 10*time.Millisecond)
			works(t, f, c, 0)
		})
	}
}

// A function that ignores its context holds up nothing but its own node, and is not called again and again.
func TestCredentialsThatBlockAreNamed(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	block := make(chan struct{})
	var running, most atomic.Int64
	failed := make(chan error, 100)
	c := open(t, f, func(cfg *redlock.Config) {
		cfg.Hooks.NodeDown = func(_ string, err error) {
			if strings.Contains(err.Error(), "Credentials") {
				failed <- err
			}
		}
		cfg.Nodes[2].Credentials = func(context.Context) (string, string, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-block
			return "", "", nil
		}
	})
	status := func() redlock.NodeStatus { return c.Status(soon(t))[2] }
	select {
	case err := <-failed:
		require.ErrorContains(t, err, "its Credentials has not returned: context deadline exceeded")
	case <-soon(t).Done():
		require.Fail(t, "nobody was told that the node cannot be used")
	}
	require.ErrorContains(t, status().Err, "its Credentials has not returned")
	l, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err, "two of three nodes are a quorum")
	require.NoError(t, l.Release(soon(t)))
	require.Eventually(t, func() bool {
		return strings.Contains(status().Err.Error(), "its Credentials has not returned since it was last called")
	}, 20*time.Second, 10*time.Millisecond)
	require.LessOrEqual(t, most.Load(), int64(2))
	close(block)
	require.Eventually(t, func() bool { return status().Connected }, 10*time.Second, 10*time.Millisecond)
}

func TestCloseDoesNotWaitForCredentialsThatDoNotReturn(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	block, called := make(chan struct{}), make(chan struct{}, 100)
	c := openFresh(t, f, func(cfg *redlock.Config) {
		cfg.Credentials = func(context.Context) (string, string, error) {
			called <- struct{}{}
			<-block
			return "", "", nil
		}
	})
	<-called
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-soon(t).Done():
		t.Error("Close waits for Credentials")
	}
	close(block)
}

// The context of a call ends with the client.
func TestCredentialsGetAContextThatEnds(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	called, ended := make(chan time.Duration, 1), make(chan struct{})
	c := openFresh(t, f, func(cfg *redlock.Config) {
		cfg.Credentials = func(ctx context.Context) (string, string, error) {
			deadline, _ := ctx.Deadline()
			select {
			case called <- time.Until(deadline):
			default:
				return "", "", ctx.Err()
			}
			<-ctx.Done()
			close(ended)
			return "", "", ctx.Err()
		}
	})
	require.Less(t, <-called, time.Second)
	require.NoError(t, c.Close())
	<-ended
}

// A server that does not know AUTH repeats the password in its refusal.
func TestARefusedLoginDoesNotShowThePassword(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1, Args: []string{"--rename-command", "AUTH", "SESAME"}})
	conn, err := f.Nodes()[0].DialDirect(soon(t), 5*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Do("AUTH", "locker", "hunter2")
	require.ErrorContains(t, err, "hunter2", "what the server says")
	for name, configure := range map[string]func(*redlock.Config){
		"Credentials": func(cfg *redlock.Config) {
			cfg.Credentials = func(context.Context) (string, string, error) { return "locker", "hunter2", nil }
		},
		"URL": func(cfg *redlock.Config) {
			cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.User = url.UserPassword("locker", "hunter2") })...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := openFresh(t, f, configure).Status(soon(t))[0]
			require.ErrorContains(t, status.Err, "it refused the login: ERR unknown command")
			require.NotContains(t, status.Err.Error(), "hunter2")
		})
	}
}
