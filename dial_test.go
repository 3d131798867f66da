package redlock_test

import (
	"context"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// dialWith makes a Dial for each node, by redigo with these options.
func dialWith(f *fleet.Fleet, options ...redis.DialOption) func(*redlock.Config) {
	return func(cfg *redlock.Config) {
		for i, n := range f.Nodes() {
			cfg.Nodes[i] = redlock.Node{Name: n.Name(), Dial: func(ctx context.Context) (redis.Conn, error) {
				return redis.DialURLContext(ctx, n.URL(), append(options, redis.DialWriteTimeout(time.Second))...)
			}}
		}
	}
}

// kills finds the connections that the commands in a stream kill.
var kills = regexp.MustCompile(`(?i)kill\r\n\$2\r\nid\r\n\$\d+\r\n(-?\d+)`)

// A spyConn hands on what is written to it.
type spyConn struct {
	net.Conn
	written func([]byte)
}

func (c spyConn) Write(b []byte) (int, error) { c.written(b); return c.Conn.Write(b) }

// With CLIENT KILL ID 0, Redis before 7.0 kills all connections but the killer's. A new connection that only looks
// whether its user may kill would end those of all other clients, and theirs would end it.
func TestAClientThatLooksWhetherItMayKillKillsNobody(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	var mu sync.Mutex // guards sent
	var sent []byte
	spy := redis.DialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return spyConn{conn, func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, b...)
		}}, err
	})
	first := open(t, f)
	held, err := first.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	require.NoError(t, open(t, f, dialWith(f, spy)).Mutex("y").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
	require.NoError(t, held.Release(ctx))
	require.Empty(t, first.Status(ctx)[0].Warnings)

	mu.Lock()
	defer mu.Unlock()
	found := kills.FindAllSubmatch(sent, -1)
	require.NotEmpty(t, found)
	for _, kill := range found {
		id, err := strconv.ParseInt(string(kill[1]), 10, 64)
		require.NoError(t, err)
		require.Greater(t, id, int64(1<<40), "no connection has this number")
	}
}

// A read timeout would end an idle connection again and again, and nobody would know why.
func TestADialThatSetsAReadTimeoutIsNoticedAndNamed(t *testing.T) {
	const named = "a read timeout, likely set by the node's Dial"
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	type ended struct {
		node string
		why  error
	}
	down := make(chan ended, 1000)
	// Long enough for a busy server to answer, and shorter than the five seconds after which the client asks anyway.
	c := open(t, f, patient, dialWith(f, redis.DialReadTimeout(2*time.Second)), func(cfg *redlock.Config) {
		cfg.Hooks.NodeDown = func(node string, err error) { down <- ended{node, err} }
	})
	for seen := map[string]bool{}; len(seen) < 3; { // each by itself: Status below keeps connections busy
		one := <-down
		require.ErrorContains(t, one.why, named+", ended the connection: let Dial set none")
		seen[one.node] = true
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) { // connected again, with the warning
		for _, status := range c.Status(context.Background()) {
			assert.NoError(t, status.Err)
			assert.Contains(t, strings.Join(status.Warnings, "\n"), named)
		}
	}, 30*time.Second, 10*time.Millisecond)
}

// The same while an answer is awaited: the round's error names it too.
func TestAReadTimeoutThatEndsARoundIsNamed(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1, Links: true})
	c := open(t, f, patient, dialWith(f, redis.DialReadTimeout(100*time.Millisecond)))
	require.NoError(t, f.Nodes()[0].CutReplies())
	require.EventuallyWithT(t, func(t *assert.CollectT) { // between two connections it is another error
		_, err := c.Mutex("x").TryAcquire(context.Background())
		assert.ErrorIs(t, err, redlock.ErrNoQuorum)
		assert.ErrorContains(t, err, "a read timeout, likely set by the node's Dial")
	}, 10*time.Second, 10*time.Millisecond)
}

// What looks similar is not named so: a server that stops answering.
func TestAServerThatStopsAnsweringIsNotCalledAReadTimeout(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	down := make(chan error, 1000)
	c := open(t, f, dialWith(f), func(cfg *redlock.Config) {
		cfg.Hooks.NodeDown = func(_ string, err error) { down <- err }
	})
	require.NoError(t, f.Nodes()[0].Pause())
	require.NotContains(t, (<-down).Error(), "read timeout")
	require.NoError(t, f.Nodes()[0].Resume())
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		status := c.Status(context.Background())[0]
		assert.NoError(t, status.Err)
		assert.Empty(t, status.Warnings)
	}, 15*time.Second, 10*time.Millisecond)
}

// A brokenConn fails to write, as after a write timeout.
type brokenConn struct {
	redis.Conn
	err error
}

func (c brokenConn) Send(string, ...any) error { return nil }
func (c brokenConn) Flush() error              { return c.err }
func (c brokenConn) Err() error                { return c.err }
func (c brokenConn) Close() error              { return nil }

func TestWhatADialReturnsIsToldAsItIs(t *testing.T) {
	for said, conn := range map[string]redis.Conn{
		"i/o timeout": brokenConn{err: &net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}},
		"its Dial returned neither a connection nor an error": nil,
	} {
		f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
		c := openFresh(t, f, func(cfg *redlock.Config) {
			cfg.Nodes[0] = redlock.Node{Name: "own", Dial: func(context.Context) (redis.Conn, error) { return conn, nil }}
		})
		status := c.Status(soon(t))[0]
		require.ErrorContains(t, status.Err, said)
		require.NotContains(t, status.Err.Error(), "read timeout")
	}
}

// A server that has too many clients, or is in protected mode, says so and ends the connection. What it says is in
// Status, whether the connection ended before the client had sent everything, or after it.
func TestAServerThatWantsNoConnectionIsQuoted(t *testing.T) {
	t.Run("before everything was sent", func(t *testing.T) {
		f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
		only, err := f.Nodes()[0].DialDirect(soon(t), 5*time.Second)
		require.NoError(t, err)
		defer only.Close()
		_, err = only.Do("CONFIG", "SET", "maxclients", 1)
		require.NoError(t, err)
		status := openFresh(t, f, patient).Status(soon(t))
		require.ErrorContains(t, status[0].Err, "it refused the connection: ERR max number of clients reached")
	})
	t.Run("after", func(t *testing.T) {
		err := toldBy(t, "", func(conn *net.TCPConn) {
			says(conn, "-DENIED Redis is running in protected mode\r\n", true)
		})
		require.ErrorContains(t, err, "it refused the connection: DENIED Redis is running in protected mode")
	})
}

// The text of a server in protected mode is long. It is neither lost nor repeated in full.
func TestAServerInProtectedModeIsNamedInShortWithItsRemedy(t *testing.T) {
	advice := " because protected mode is enabled and no password is set for the default user. " + strings.Repeat("In this mode… ", 80)
	for _, product := range []string{"Redis is running", "Running"} {
		for range 5 { // the connection ends before the client has sent everything, or after it
			err := toldBy(t, "", func(conn *net.TCPConn) {
				_, _ = conn.Write([]byte("-DENIED " + product + " in protected mode" + advice + "\r\n"))
			})
			require.ErrorContains(t, err, "it refused the connection: DENIED "+product+" in protected mode, where it serves its own "+
				"host alone, because its default user has no password; set one (requirepass), or protected-mode no where ")
			require.Less(t, len(err.Error()), 300)
		}
	}
}

// toldBy is what Status says of a server that serves its connections so.
func toldBy(t *testing.T, login string, serve func(*net.TCPConn)) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes("redis://" + login + listener.Addr().String())})
	require.NoError(t, err)
	status := c.Status(soon(t))
	require.NoError(t, c.Close())
	listener.Close()
	serving.Wait()
	return status[0].Err
}

// says writes the text, perhaps ends its side of the connection, and reads until the client closes it.
func says(conn *net.TCPConn, text string, ends bool) {
	_, _ = conn.Write([]byte(text))
	if ends {
		_ = conn.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, conn)
}

// What a server says to a login that it refuses may have the password in it, also if it then ends the connection.
func TestAServerThatWantsNoConnectionDoesNotShowThePassword(t *testing.T) {
	err := toldBy(t, "u:hunter2@", func(conn *net.TCPConn) {
		_, _ = conn.Write([]byte("-ERR go away with your hunter2\r\n"))
	})
	require.ErrorContains(t, err, "ERR go away")
	require.NotContains(t, err.Error(), "hunter2")
}

// Mostly such a server answers a login so, because that is what was sent first. The password is not wrong then.
func TestAServerThatWantsNoConnectionDoesNotRefuseTheLogin(t *testing.T) {
	for _, said := range []struct {
		text string
		ends bool
		want string
	}{
		{"ERR max number of clients reached", true, "it refused the connection: ERR max number of clients reached"},
		{"WRONGPASS invalid password", false, "it refused the login: WRONGPASS invalid password"},
		{"ERR DB index is out of range", false, "it refused the database: ERR DB index is out of range"},
	} {
		t.Run(said.text, func(t *testing.T) {
			answer := "-" + said.text + "\r\n"
			if !said.ends { // as to each command until the client has logged in
				answer += strings.Repeat("-NOAUTH Authentication required.\r\n", 100)
			}
			err := toldBy(t, "u:hunter2@", func(conn *net.TCPConn) { says(conn, answer, said.ends) })
			require.ErrorContains(t, err, said.want)
		})
	}
}

// A connection that breaks during the login says nothing about the user name and the password.
func TestAConnectionThatBreaksDuringTheLoginIsNoRefusedLogin(t *testing.T) {
	err := toldBy(t, "u:hunter2@", func(conn *net.TCPConn) {
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.SetLinger(0)
	})
	require.NotContains(t, err.Error(), "refused the login")
	require.Regexp(t, "EOF|reset", err.Error())
}
