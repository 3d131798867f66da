package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/conn"
)

// How a connection to an endpoint is opened, and how it logs in.

// callsAtATime is how many calls of one node's Dial, and of its Credentials, may run at a time: one for the node, and
// one for its subscriber.
const callsAtATime = 2

// A login is what was sent to log in on one connection, and how many replies come to it.
type login struct {
	conn.Login
	replies int
}

// start sends these commands behind the login, and receives the replies to the login. Its error does not have the
// password. The caller receives the replies to the commands.
func (l login) start(conn redis.Conn, commands ...[]any) error {
	for _, c := range commands {
		if err := conn.Send(c[0].(string), c[1:]...); err != nil {
			return l.unsent(err)
		}
	}
	if err := conn.Flush(); err != nil {
		return l.unsent(err)
	}
	if err := l.Receive(conn, l.replies); err != nil {
		return l.refused(conn, err, len(commands) > 0)
	}
	return nil
}

// refused is what an error means that came as a reply to the login. A server that wants no connection says nothing more,
// where one that refuses the login also answers the commands behind it, if there are any.
func (l login) refused(opened redis.Conn, err error, more bool) error {
	if more && isRefusal(err) {
		if _, ended := opened.Receive(); ended != nil && !isRefusal(ended) {
			return refusedConnection(err)
		}
	}
	return conn.RefusedLogin(err)
}

// unsent is why the handshake could not be sent; see link.Write.
func (l login) unsent(err error) error {
	if isRefusal(err) {
		return refusedConnection(redis.Error(conn.Hide(err.Error(), l.Password)))
	}
	return err
}

// refusedConnection is the error of a server that says why it wants no connection, and ends it: it has too many clients,
// or is in protected mode. It does so unasked, so what it says looks like the reply to whatever was sent first.
func refusedConnection(refusal error) error {
	var said redis.Error
	if errors.As(refusal, &said) && strings.HasPrefix(string(said), "DENIED ") && strings.Contains(string(said), protectedMode) {
		// Behind that are a thousand characters more, which would be in every error and in each line of the log.
		before, _, _ := strings.Cut(string(said), protectedMode)
		return fmt.Errorf("it refused the connection: %w, where it serves its own host alone, because its default user has no "+
			"password; set one (requirepass), or protected-mode no where an ACL file or a firewall keeps strangers out",
			redis.Error(before+protectedMode))
	}
	return fmt.Errorf("it refused the connection: %w", refusal)
}

// protectedMode is what Redis, Valkey and Redict say of it.
const protectedMode = "in protected mode"

// open opens a connection, and has the handshake prepare it, which begins with login.start. It takes no longer than
// timeout, which is also how long each later write may take. Only a lookup of the host's name may go on for longer, until
// life ends.
func (e *endpoint) open(life context.Context, timeout time.Duration, handshake func(redis.Conn, login) error) (redis.Conn, *link, error) {
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	opened, link, login, err := e.connect(ctx, life, timeout)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { opened.Close() })
	err = handshake(opened, login)
	if !stop() { // the connection is closed already, whatever the server answered
		err = fmt.Errorf("it did not answer within %v", timeout)
	}
	if err != nil {
		broke := opened.Err() != nil
		opened.Close()
		if broke {
			err = e.explain(ctx, timeout, err)
		}
		return nil, nil, err
	}
	if link != nil {
		link.opening = false
	}
	return opened, link, nil
}

// connect opens a connection and sends the login, without a flush. There is no link if the node has a Dial of its own.
func (e *endpoint) connect(ctx, life context.Context, writeTimeout time.Duration) (redis.Conn, *link, login, error) {
	if e.dial != nil {
		opened, err := e.dialOwn(ctx)
		return opened, nil, login{}, err
	}
	l, err := e.dialNet(ctx, life, writeTimeout)
	if err != nil {
		return nil, nil, login{}, err
	}
	opened := redis.NewConn(l, 0, 0)
	sent, err := e.sendLogin(ctx, opened)
	if err != nil {
		opened.Close()
		return nil, nil, login{}, err
	}
	return opened, l, sent, nil
}

func (e *endpoint) dialNet(ctx, life context.Context, writeTimeout time.Duration) (*link, error) {
	opened, err := e.dialAddress(ctx, life)
	if err != nil {
		return nil, err
	}
	stream := opened
	if e.tls != nil {
		if stream, err = e.secure(ctx, opened, writeTimeout); err != nil {
			opened.Close()
			return nil, err
		}
	}
	return &link{Net: conn.Net{Conn: stream, WriteTimeout: writeTimeout}, opening: true}, nil
}

// sendLogin asks Credentials, if the node has one, only once the connection is open: a server that is away costs no call.
func (e *endpoint) sendLogin(ctx context.Context, to redis.Conn) (login, error) {
	l := login{Login: conn.Login{User: e.username, Password: e.password, Database: e.database}}
	if e.credentials != nil {
		var err error
		if l.Login, err = e.askCredentials(ctx); err != nil {
			return login{}, err
		}
	}
	replies, err := l.Send(to)
	l.replies = replies
	return l, err
}

// askCredentials calls the node's Credentials, and waits for it no longer than ctx lasts.
func (e *endpoint) askCredentials(ctx context.Context) (conn.Login, error) {
	return callUser(ctx, e.asking, "Credentials", func() (conn.Login, error) {
		user, password, err := e.credentials(ctx)
		if err != nil {
			return conn.Login{}, &conn.CredentialsError{From: "Credentials", Err: err, Secret: password}
		}
		return conn.Login{User: user, Password: password, Database: e.database}, nil
	}, func(conn.Login) {})
}

// dialOwn calls the node's own Dial, and waits for it no longer than ctx lasts. A connection that Dial returns later is
// closed.
func (e *endpoint) dialOwn(ctx context.Context) (redis.Conn, error) {
	opened, err := callUser(ctx, e.dials, "Dial", func() (redis.Conn, error) { return e.dial(ctx) },
		func(late redis.Conn) {
			if late != nil {
				late.Close()
			}
		})
	switch {
	case err != nil:
		return nil, err
	case opened == nil:
		return nil, errors.New("its Dial returned neither a connection nor an error")
	}
	return &ownConn{Conn: opened, readTimeout: e.readTimeout}, nil
}

// callUser calls a function of the user, and waits for it no longer than ctx lasts, even if the function ignores ctx.
// What it returns later, without an error, is given to late. running holds one element for each call that has not
// returned.
func callUser[T any](ctx context.Context, running chan struct{}, name string, call func() (T, error), late func(T)) (T, error) {
	var none, result T
	select {
	case running <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("its %s has not returned since it was last called: %w", name, ctx.Err())
	}
	err := fmt.Errorf("its %s ended its goroutine", name) // unless it returns: runtime.Goexit, as by t.FailNow
	returned := make(chan struct{})
	go func() { // ends when the user's function returns
		defer close(returned)
		defer func() { <-running }()
		result, err = call()
	}()
	select {
	case <-returned:
		return result, err
	case <-ctx.Done():
		go func() {
			if <-returned; err == nil {
				late(result)
			}
		}()
		return none, fmt.Errorf("its %s has not returned: %w", name, ctx.Err())
	}
}

// A link is the network connection below redigo. It knows whether a reply came from the network together with the one
// before.
type link struct {
	conn.Net
	read bool // something was read since fresh was last called; the reader's

	opening bool // the handshake is under way: one goroutine writes and reads. It does not change after that
}

// Write returns what the server said, if it ended the connection before the handshake was sent. Nobody could read that
// later: redigo closes a connection when a write fails.
func (l *link) Write(p []byte) (int, error) {
	n, err := l.Net.Write(p)
	if err != nil && l.opening && !errors.Is(err, os.ErrDeadlineExceeded) {
		if said := l.lastWords(); said != nil {
			return n, said
		}
	}
	return n, err
}

// lastWords is the error that came before the server ended the connection, or nil.
func (l *link) lastWords() error {
	// What there is came before the end of the connection, so this does not wait. The limit is for what only looks like its
	// end.
	said := make([]byte, 4096) // what a server in protected mode says has 1064 bytes
	n, _ := l.ReadWithin(said, lastWordsTime)
	line, _, whole := strings.Cut(string(said[:n]), "\r\n")
	if text, ok := strings.CutPrefix(line, "-"); ok && whole {
		return redis.Error(text)
	}
	return nil
}

const lastWordsTime = 100 * time.Millisecond

func (l *link) Read(p []byte) (int, error) {
	l.read = true
	return l.Net.Read(p)
}

// fresh reports whether anything was read from the network since it was last called. Without a link that is not known,
// so the answer is yes.
func (l *link) fresh() bool {
	if l == nil {
		return true
	}
	read := l.read
	l.read = false
	return read
}

// An ownConn is a connection that the node's own Dial made. Dial must not set a read timeout: a connection that is idle
// would then end with an i/o timeout, although its server is well. Nobody else sets a deadline for reading, so an
// ownConn says what is wrong.
type ownConn struct {
	redis.Conn
	readTimeout *atomic.Bool // the node's: one of its connections ended by a read timeout
}

// errReadTimeout does not wrap the network's error, which would be shown in its place.
var errReadTimeout = fmt.Errorf("a read timeout, likely set by the node's Dial, ended the connection: %s: %w",
	readTimeoutRemedy, os.ErrDeadlineExceeded)

const readTimeoutRemedy = "let Dial set none (no redis.DialReadTimeout), because the connection is idle between requests, " +
	"and a server that stops answering is noticed without one"

// name returns errReadTimeout if a read timeout ended the connection, else err.
func (c *ownConn) name(err error) error {
	if err == nil || !isReadTimeout(err) && !isReadTimeout(c.Conn.Err()) {
		return err
	}
	c.readTimeout.Store(true)
	return errReadTimeout
}

// isReadTimeout reports whether a deadline for reading has passed. The system's own time limits are other errors.
func isReadTimeout(err error) bool {
	var network *net.OpError
	return errors.Is(err, os.ErrDeadlineExceeded) && !(errors.As(err, &network) && network.Op == "write")
}

func (c *ownConn) Err() error { return c.name(c.Conn.Err()) }

func (c *ownConn) Send(command string, args ...any) error {
	return c.name(c.Conn.Send(command, args...))
}

func (c *ownConn) Flush() error { return c.name(c.Conn.Flush()) }

func (c *ownConn) Receive() (any, error) {
	reply, err := c.Conn.Receive()
	return reply, c.name(err)
}

func (c *ownConn) Do(command string, args ...any) (any, error) {
	reply, err := c.Conn.Do(command, args...)
	return reply, c.name(err)
}
