package conn_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock/internal/conn"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a server with the users alice and bob, and returns an Opener for it.
func start(t *testing.T, args ...string) (*fleet.Node, conn.Opener) {
	node := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1, Args: args}).Nodes()[0]
	server, err := node.DialDirect(t.Context(), 5*time.Second)
	require.NoError(t, err)
	defer server.Close()
	for user, password := range map[string]string{"alice": "wonderland", "bob": "builder"} {
		_, err := server.Do("ACL", "SETUSER", user, "on", ">"+password, "~*", "&*", "+@all")
		require.NoError(t, err)
	}
	return node, conn.Opener{Dial: dialer(node)}
}

func dialer(node *fleet.Node) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", strings.TrimPrefix(node.DirectURL(), "redis://"))
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// renewing opens a connection as alice, whose login can be renewed. stopped counts the calls of stop.
func renewing(t *testing.T, o conn.Opener) (r *conn.Renewing, stopped *atomic.Int64) {
	stopped = new(atomic.Int64)
	o.Credentials = func(_ context.Context, r *conn.Renewing) (string, string, error) {
		r.Keep(func() { stopped.Add(1) })
		return "alice", "wonderland", nil
	}
	opened, err := o.Open(soon(t))
	require.NoError(t, err)
	t.Cleanup(func() { opened.Close() })
	return opened.(*conn.Renewing), stopped
}

func whoami(t *testing.T, c redis.Conn) string {
	user, err := redis.String(c.Do("ACL", "WHOAMI"))
	require.NoError(t, err)
	return user
}

func TestEachReplyGoesToItsCommandWhileTheLoginIsRenewed(t *testing.T) {
	_, o := start(t)
	r, stopped := renewing(t, o)
	const commands = 20_000
	done := make(chan struct{})
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if i%2 == 0 {
				r.Renew("bob", "builder")
			} else {
				r.Renew("alice", "wonderland")
			}
			time.Sleep(10 * time.Microsecond)
		}
	}()
	failed := make(chan error, 1)
	go func() {
		for i := range commands {
			if err := r.Send("ECHO", i); err != nil {
				failed <- err
				return
			}
			if i%7 == 0 || i == commands-1 {
				if err := r.Flush(); err != nil {
					failed <- err
					return
				}
			}
		}
		failed <- nil
	}()
	for i := range commands {
		reply, err := redis.String(r.Receive())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), reply)
	}
	require.NoError(t, <-failed)
	close(done)
	<-renewed
	r.Renew("bob", "builder")
	require.Equal(t, "bob", whoami(t, r))
	require.NoError(t, r.Close())
	_ = r.Close()
	require.EqualValues(t, 1, stopped.Load())
}

func TestARefusedRenewalEndsTheConnectionAndHidesThePassword(t *testing.T) {
	_, o := start(t)
	r, _ := renewing(t, o)
	r.Renew("bob", "hunter2")
	_, err := r.Do("PING")
	var refusal redis.Error
	require.False(t, errors.As(err, &refusal), "it would look like the reply to PING")
	require.ErrorContains(t, err, "it refused the renewed login: WRONGPASS")
	require.Equal(t, err, r.Err())
	_, again := r.Do("PING")
	require.Equal(t, err, again)
}

func TestARefusalOfACommandIsPassedOn(t *testing.T) {
	_, o := start(t)
	r, _ := renewing(t, o)
	r.Renew("bob", "builder")
	_, err := r.Do("NONSENSE")
	require.ErrorAs(t, err, new(redis.Error))
	require.Equal(t, "bob", whoami(t, r))
}

// A connection that is subscribed cannot log in anew. It ends if the login is another one.
func TestASubscribedConnectionEndsWhenItsLoginChanges(t *testing.T) {
	_, o := start(t)
	r, _ := renewing(t, o)
	pubsub := redis.PubSubConn{Conn: r}
	r.Renew("bob", "builder") // before it subscribes, this is no trouble
	require.NoError(t, pubsub.Subscribe("channel"))
	require.IsType(t, redis.Subscription{}, pubsub.Receive())
	r.Renew("bob", "builder")
	require.NoError(t, pubsub.Ping("x"))
	require.Equal(t, redis.Pong{Data: "x"}, pubsub.Receive())
	r.Renew("alice", "wonderland")
	require.ErrorContains(t, pubsub.Receive().(error), "its login was renewed")
}

// Who renews may do so before the first login is sent. The later one counts.
func TestALoginThatIsRenewedBeforeTheFirstOneWins(t *testing.T) {
	_, o := start(t)
	o.Credentials = func(_ context.Context, r *conn.Renewing) (string, string, error) {
		r.Keep(func() {})
		r.Renew("bob", "builder")
		return "alice", "of old", nil
	}
	o.Database = 3
	c, err := o.Open(soon(t))
	require.NoError(t, err)
	defer c.Close()
	info, err := redis.String(c.Do("CLIENT", "INFO"))
	require.NoError(t, err)
	require.Contains(t, info, "user=bob")
	require.Contains(t, info, "db=3")
}

func TestALoginThatFailsClosesTheConnection(t *testing.T) {
	node, o := start(t)
	var stopped atomic.Int64
	o.Credentials = func(_ context.Context, r *conn.Renewing) (string, string, error) {
		r.Keep(func() { stopped.Add(1) })
		return "alice", "hunter2", nil
	}
	_, err := o.Open(soon(t))
	require.ErrorContains(t, err, "it refused the login: WRONGPASS")
	require.ErrorAs(t, err, new(redis.Error), "the client waits longer before it asks a server again that refused it")
	require.EqualValues(t, 1, stopped.Load())

	boom := errors.New("boom")
	o.Credentials = func(context.Context, *conn.Renewing) (string, string, error) { return "", "", boom }
	_, err = o.Open(soon(t))
	require.ErrorIs(t, err, boom)

	o.Credentials = nil
	server, err := node.DialDirect(soon(t), 5*time.Second)
	require.NoError(t, err)
	defer server.Close()
	require.Eventually(t, func() bool {
		list, err := redis.String(server.Do("CLIENT", "LIST"))
		return err == nil && strings.Count(list, "\n") == 1
	}, 5*time.Second, time.Millisecond, "no connection is left but this one")
}

func TestADatabaseThatIsRefusedIsNotCalledTheLogin(t *testing.T) {
	_, o := start(t)
	o.Database = 99
	_, err := o.Open(soon(t))
	require.ErrorContains(t, err, "it refused the database: ERR DB index is out of range")
	require.ErrorAs(t, err, new(redis.Error))
}

// A server that has too many clients says so unasked and ends the connection. The password is not wrong then.
func TestAServerThatWantsNoConnectionDoesNotRefuseTheLogin(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() { // ends when the connection does
		defer theirs.Close()
		said := make([]byte, 1024)
		_, _ = theirs.Read(said)
		_, _ = theirs.Write([]byte("-ERR max number of clients reached\r\n"))
	}()
	o := conn.Opener{
		Dial:        func(context.Context) (net.Conn, error) { return ours, nil },
		Credentials: func(context.Context, *conn.Renewing) (string, string, error) { return "alice", "wonderland", nil },
	}
	_, err := o.Open(soon(t))
	require.ErrorContains(t, err, "it refused the connection: ERR max number of clients reached")
	require.ErrorAs(t, err, new(redis.Error))
}

// A server that does not answer holds up nobody for longer than the context lasts, nor does one that does not accept.
func TestOpenIsBoundedByItsContext(t *testing.T) {
	node, o := start(t)
	o.Credentials = func(context.Context, *conn.Renewing) (string, string, error) { return "alice", "wonderland", nil }
	require.NoError(t, node.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := o.Open(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, node.Resume())

	o.DialTimeout = time.Millisecond
	o.Dial = func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	_, err = o.Open(soon(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A write takes no longer than the WriteTimeout, or than there was for opening the connection.
func TestAWriteThatIsNotReadTimesOut(t *testing.T) {
	node, o := start(t)
	o.WriteTimeout = 50 * time.Millisecond
	byTimeout, err := o.Open(soon(t))
	require.NoError(t, err)
	defer byTimeout.Close()
	o.WriteTimeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	byContext, err := o.Open(ctx)
	require.NoError(t, err)
	defer byContext.Close()
	require.NoError(t, node.Pause())
	for _, c := range []redis.Conn{byTimeout, byContext} {
		err = nil
		for range 1000 { // more than the buffers on the way can hold
			if err = c.Send("SET", "x", strings.Repeat("x", 1<<20)); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	require.NoError(t, node.Resume())
}

// There is no read timeout: a reader waits for as long as it takes.
func TestAReaderWaitsForALongTime(t *testing.T) {
	_, o := start(t)
	o.WriteTimeout = 10 * time.Millisecond
	c, err := o.Open(soon(t))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Send("BLPOP", "nothing", "0.2"))
	require.NoError(t, c.Flush())
	reply, err := c.Receive()
	require.NoError(t, err)
	require.Nil(t, reply)
}
