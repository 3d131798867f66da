package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// An Opener opens connections for a Node.Dial. Its fields do not change.
type Opener struct {
	// Dial opens the network connection, with TLS if there is any.
	Dial func(context.Context) (net.Conn, error)
	// DialTimeout bounds Dial. 0: only the context does.
	DialTimeout time.Duration
	// WriteTimeout bounds each write. So does what the context leaves when Open is called, if that is less. A writer that
	// waits for longer would not notice a server that has stopped. 0: only the context does, or [defaultWriteTimeout].
	WriteTimeout time.Duration
	Database     int
	// Credentials returns who logs in. It may keep the connection, to renew the login later. nil: nobody logs in.
	Credentials func(context.Context, *Renewing) (user, password string, err error)
}

// defaultWriteTimeout is for connections that are opened without any time limit.
const defaultWriteTimeout = time.Second

// Open opens a connection that is logged in and has its database selected. It has no read timeout.
func (o Opener) Open(ctx context.Context) (redis.Conn, error) {
	r, err := o.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { r.Conn.Close() })
	err = o.logIn(ctx, r)
	if !stop() { // the connection is closed already
		err = fmt.Errorf("it did not log in in time: %w", ctx.Err())
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	if r.stop == nil {
		return r.Conn, nil
	}
	return r, nil
}

func (o Opener) dial(ctx context.Context) (*Renewing, error) {
	timeout := o.WriteTimeout
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); timeout <= 0 || left < timeout {
			timeout = max(left, time.Millisecond)
		}
	}
	if timeout <= 0 {
		timeout = defaultWriteTimeout
	}
	if o.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.DialTimeout)
		defer cancel()
	}
	network, err := o.Dial(ctx)
	switch {
	case err != nil:
		return nil, err
	case network == nil:
		return nil, errors.New("its dialer returned neither a connection nor an error")
	}
	return &Renewing{network: network, Conn: redis.NewConn(&Net{Conn: network, WriteTimeout: timeout}, 0, 0)}, nil
}

func (o Opener) logIn(ctx context.Context, r *Renewing) error {
	var user, password string
	if o.Credentials != nil {
		var err error
		if user, password, err = o.Credentials(ctx, r); err != nil {
			return err
		}
	}
	login := r.first(Login{User: user, Password: password, Database: o.Database})
	replies, err := login.Send(r.Conn)
	if err == nil {
		err = r.Conn.Flush()
	}
	if err == nil {
		err = login.Receive(r.Conn, replies)
	}
	if err == nil {
		return nil
	}
	if isRefusal(err) {
		// A server that wants no connection, because it has too many clients, says so unasked and ends it. One that refuses
		// the login answers what comes next.
		if _, ended := r.Conn.Do("PING"); ended != nil && !isRefusal(ended) {
			return fmt.Errorf("it refused the connection: %w", err)
		}
	}
	return RefusedLogin(err)
}

// RefusedLogin says what the server refused with this error, in reply to a [Login]. A connection that broke meanwhile says nothing
// about the login: as it is where a server has no memory for clients (maxmemory-clients), or is about to end.
func RefusedLogin(err error) error {
	if !isRefusal(err) {
		return err
	}
	if strings.Contains(err.Error(), "DB index") { // SELECT goes with the login
		return fmt.Errorf("it refused the database: %w", err)
	}
	return fmt.Errorf("it refused the login: %w", err)
}
