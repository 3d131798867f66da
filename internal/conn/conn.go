// Package conn has what this library and its adapters share about a connection to a server: its deadlines, its login,
// and a login that changes while the connection is open.
package conn

import (
	"errors"
	"net"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Net is a network connection below redigo. It saves system time: redigo would set the write deadline for each command
// of a batch, and clear the read deadline before each reply. A Net sets a deadline once per write, and has none for
// reads. It also keeps from redigo what would end the process; see replies.
type Net struct {
	net.Conn
	WriteTimeout time.Duration // above 0
	replies      replies       // the reader's
}

func (n *Net) Read(p []byte) (int, error) {
	size, err := n.Conn.Read(p)
	if refused := n.replies.follow(p[:size]); refused != nil {
		return 0, refused
	}
	return size, err
}

func (n *Net) Write(p []byte) (int, error) {
	if err := n.SetWriteDeadline(time.Now().Add(n.WriteTimeout)); err != nil {
		return 0, err
	}
	return n.Conn.Write(p)
}

// SetReadDeadline does nothing.
func (n *Net) SetReadDeadline(time.Time) error { return nil }

// ReadWithin is one Read that takes no longer than the timeout. Later reads fail from then on: it is for a connection that
// will be closed.
func (n *Net) ReadWithin(p []byte, timeout time.Duration) (int, error) {
	if err := n.Conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return 0, err
	}
	return n.Conn.Read(p)
}

// A Login is who logs in, and the database that is used. The zero Login sends nothing.
type Login struct {
	User     string // empty: the server's default user
	Password string
	Database int
}

// Send sends AUTH and SELECT, as far as they are needed. It does not flush. It returns how many replies will come.
func (l Login) Send(conn redis.Conn) (replies int, err error) {
	if args := l.auth(); args != nil {
		if err := conn.Send("AUTH", args...); err != nil {
			return 0, err
		}
		replies++
	}
	if l.Database != 0 {
		if err := conn.Send("SELECT", l.Database); err != nil {
			return 0, err
		}
		replies++
	}
	return replies, nil
}

// auth returns the arguments of AUTH, or nil if there is nothing to say.
func (l Login) auth() []any {
	switch {
	case l.User != "":
		return []any{l.User, l.Password}
	case l.Password != "":
		return []any{l.Password}
	default:
		return nil
	}
}

// Receive receives the replies to Send. Its error does not have the password.
func (l Login) Receive(conn redis.Conn, replies int) error {
	for range replies {
		if _, err := conn.Receive(); err != nil {
			return l.hide(err)
		}
	}
	return nil
}

// hide takes the password out of a server's refusal. A server that does not know AUTH repeats what it was sent.
func (l Login) hide(err error) error {
	if isRefusal(err) {
		return redis.Error(Hide(err.Error(), l.Password))
	}
	return err
}

// isRefusal reports whether the error is the server's answer, and not the end of the connection.
func isRefusal(err error) bool {
	var refusal redis.Error
	return errors.As(err, &refusal)
}

// A CredentialsError is why a function of the user gave no login. It is a type of its own so that a network error of
// that function does not look like one of the node.
type CredentialsError struct {
	From   string // the function's name
	Err    error
	Secret string // what the function returned beside its error; it is not shown
}

func (c *CredentialsError) Error() string {
	return "no login from its " + c.From + ": " + Hide(c.Err.Error(), c.Secret)
}

// Unwrap returns the function's error.
func (c *CredentialsError) Unwrap() error { return c.Err }

// Hide takes the secret out of the text.
func Hide(text, secret string) string {
	if secret == "" {
		return text
	}
	return strings.ReplaceAll(text, secret, "…")
}
