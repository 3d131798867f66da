package conn

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
)

// A Renewing is a connection whose login may be renewed while it is open. The next command then goes behind an AUTH,
// whose reply Receive keeps to itself. A connection that is subscribed cannot log in anew, so it is closed.
//
// As with other connections of redigo, one goroutine sends, and one receives. Every command but those behind SUBSCRIBE
// has one reply.
type Renewing struct {
	redis.Conn
	network net.Conn
	stop    func() // nil: nobody renews the login. It does not change once the connection is open

	mu             sync.Mutex // guards the rest; nothing is sent, received or called under it
	login          Login      // that was sent last, or is to be sent
	due            bool       // it is to be sent
	sent, received int        // commands sent, and replies received
	own            []ownAuth  // those whose reply has not come
	subscribed     bool
	failed         error // why the connection was closed from here
	closed         bool
}

// An ownAuth is an AUTH that nobody but the connection knows of.
type ownAuth struct {
	number   int // among the commands sent
	password string
}

// errRenewed is why a connection ends that cannot log in anew.
var errRenewed = errors.New("its login was renewed, which a connection that is subscribed cannot do: another one is opened")

// RemoteAddr is the server's address.
func (r *Renewing) RemoteAddr() net.Addr { return r.network.RemoteAddr() }

// Keep says that somebody will renew the login, until stop is called: when the connection is closed. It is called at
// most once, by the Opener's Credentials.
func (r *Renewing) Keep(stop func()) { r.stop = stop }

// Renew logs in anew with the next command. It does not wait and calls nothing.
func (r *Renewing) Renew(user, password string) {
	r.mu.Lock()
	same := r.login.User == user && r.login.Password == password
	r.login.User, r.login.Password = user, password
	r.due = !r.subscribed
	end := r.subscribed && !same
	r.mu.Unlock()
	if end {
		r.fail(errRenewed)
	}
}

// fail closes the connection. What sends or receives on it gets the error.
func (r *Renewing) fail(err error) {
	r.mu.Lock()
	if r.failed == nil {
		r.failed = err
	}
	r.mu.Unlock()
	r.Conn.Close() // not r.Close, which calls stop: the one who renews may call Renew under a lock of its own
}

// first returns the login to begin with: l, or a later one that Renew was given meanwhile.
func (r *Renewing) first(l Login) Login {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due {
		l.User, l.Password = r.login.User, r.login.Password
	}
	r.login, r.due = l, false
	return l
}

// Send sends the command, behind an AUTH if the login was renewed.
func (r *Renewing) Send(command string, args ...any) error {
	r.mu.Lock()
	r.subscribed = r.subscribed || strings.EqualFold(command, "SUBSCRIBE")
	auth := []any(nil)
	if r.due {
		r.due = false
		if auth = r.login.auth(); auth != nil {
			r.own = append(r.own, ownAuth{r.sent, r.login.Password})
			r.sent++
		}
	}
	r.sent++
	r.mu.Unlock()
	if auth != nil {
		if err := r.Conn.Send("AUTH", auth...); err != nil {
			return r.why(err)
		}
	}
	return r.why(r.Conn.Send(command, args...))
}

// Flush flushes what was sent.
func (r *Renewing) Flush() error { return r.why(r.Conn.Flush()) }

// Receive receives a reply. If the server refuses a renewed login, the connection ends.
func (r *Renewing) Receive() (any, error) {
	for {
		reply, err := r.Conn.Receive()
		auth, own := r.isOwn()
		if !own {
			return reply, r.why(err)
		}
		if isRefusal(err) {
			// Not wrapped: a refusal would look like the reply to another command.
			err = fmt.Errorf("it refused the renewed login: %s", Hide(err.Error(), auth.password))
			r.fail(err)
		}
		if err != nil {
			return nil, r.why(err)
		}
	}
}

// isOwn counts a reply, and reports whether it is that to an AUTH of the connection's own.
func (r *Renewing) isOwn() (auth ownAuth, own bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own = len(r.own) > 0 && r.own[0].number == r.received; own {
		auth, r.own = r.own[0], r.own[1:]
	}
	r.received++
	return auth, own
}

// Do sends the command and receives its reply. No other reply may be outstanding.
func (r *Renewing) Do(command string, args ...any) (any, error) {
	if err := r.Send(command, args...); err != nil {
		return nil, err
	}
	if err := r.Flush(); err != nil {
		return nil, err
	}
	return r.Receive()
}

// Err is why the connection cannot be used any more.
func (r *Renewing) Err() error { return r.why(r.Conn.Err()) }

// why is the reason for which the connection was closed from here, if err came of that.
func (r *Renewing) why(err error) error {
	if err == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil && !isRefusal(err) {
		return r.failed
	}
	return err
}

// Close closes the connection.
func (r *Renewing) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.mu.Unlock()
	err := r.Conn.Close()
	if first && r.stop != nil {
		r.stop()
	}
	return err
}
