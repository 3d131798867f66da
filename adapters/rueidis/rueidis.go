// Package rueidis makes nodes for redlock from the options of a rueidis client.
//
//	import redlockrueidis "github.com/quorumlock/redlock/adapters/rueidis"
//
//	nodes, err := redlockrueidis.Nodes(
//		rueidis.ClientOption{InitAddress: []string{"10.0.0.1:6379"}, Username: "locker", Password: password},
//		rueidis.ClientOption{InitAddress: []string{"10.0.1.1:6379"}, Username: "locker", Password: password},
//		rueidis.ClientOption{InitAddress: []string{"10.0.2.1:6379"}, Username: "locker", Password: password},
//	)
//	…
//	client, err := redlock.New(redlock.Config{Nodes: nodes})
//
// Each of the options is for one independent master. No rueidis client is made, and no connection of rueidis is opened:
// redlock opens its own, one a node, and one more while locks are contended.
//
// # What is taken over
//
//	InitAddress         exactly one address
//	DialCtxFn, DialFn   called for each connection, as in rueidis. A unix socket has one: see rueidis.ParseURL
//	Dialer              with its timeout, which is 5s by default, for the network connection. redlock also bounds the
//	                    whole, with the login, by four NodeTimeouts or 1s, whichever is longer
//	TLSConfig           a copy of it
//	Username, Password  an empty Username is the server's default user
//	AuthCredentialsFn   called for each new connection, and again at RefreshAfter. An open connection then logs in anew
//	                    with its next command, within five seconds
//	SelectDB            the database
//	ConnWriteTimeout    as the write timeout, if it is shorter than the time for opening a connection
//
// # What is refused
//
// What redlock cannot do, and what matters to a lock, is an error that names the field: several addresses, Sentinel and
// Standalone.EnableRedirect, because a node is one master, and a lock must not follow a failover; ReplicaOnly, because a
// lock must be written.
//
// # What is ignored
//
// All about Cluster, replicas beside a primary, caches, pools, pipelines, buffers, retries and lifetimes of connections,
// because redlock has none of them; AlwaysRESP2, because redlock speaks RESP2. A server in cluster mode has no vote, and
// its error says so. ClientName and ClientSetInfo, because redlock names its connections redlock. ClientNoTouch and
// ClientNoEvict.
package rueidis

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/conn"
)

// Node returns the node that the option describes. It connects to nothing. The node's Name is the address; where several
// servers are behind one address by way of a dial function, give each a Name of its own. The option may be changed
// afterwards, but not what it points to.
//
// Errors are [redlock.ErrInvalid], and name the field.
func Node(opt rueidis.ClientOption) (redlock.Node, error) {
	return node("ClientOption", opt)
}

// Nodes returns a node for each of the options, as [Node] does.
func Nodes(opts ...rueidis.ClientOption) ([]redlock.Node, error) {
	nodes := make([]redlock.Node, len(opts))
	for i, opt := range opts {
		var err error
		if nodes[i], err = node(fmt.Sprintf("ClientOption[%d]", i), opt); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

func node(name string, opt rueidis.ClientOption) (redlock.Node, error) {
	if field, wrong := check(&opt); wrong != "" {
		return redlock.Node{}, fmt.Errorf("%w: %s.%s: %s", redlock.ErrInvalid, name, field, wrong)
	}
	if opt.Dialer.Timeout == 0 {
		opt.Dialer.Timeout = rueidis.DefaultDialTimeout
	}
	if opt.Dialer.KeepAlive == 0 {
		opt.Dialer.KeepAlive = rueidis.DefaultTCPKeepAlive
	}
	opener := conn.Opener{
		Dial:         dialer(&opt),
		DialTimeout:  opt.Dialer.Timeout,
		WriteTimeout: opt.ConnWriteTimeout,
		Database:     opt.SelectDB,
		Credentials:  credentials(&opt),
	}
	return redlock.Node{Name: opt.InitAddress[0], Dial: opener.Open}, nil
}

// check returns the field that cannot be taken over, and what is wrong with it; or nothing.
func check(opt *rueidis.ClientOption) (field, wrong string) {
	switch {
	case opt.Sentinel.MasterSet != "":
		return "Sentinel.MasterSet", "a lock must not follow a failover: the new master may lack locks. Give the address of one " +
			"master, which no Sentinel watches"
	case opt.Standalone.EnableRedirect:
		return "Standalone.EnableRedirect", "a lock must not follow a failover: the new primary may lack locks. Unset it"
	case opt.ReplicaOnly:
		return "ReplicaOnly", "a lock must be written, and replicas are read-only. Give the address of a master"
	case len(opt.InitAddress) != 1:
		return "InitAddress", fmt.Sprintf("it has %d addresses, and a node is one server. Give one, and make a node for each master",
			len(opt.InitAddress))
	case opt.SelectDB < 0:
		return "SelectDB", fmt.Sprintf("%d is no database number", opt.SelectDB)
	case opt.DialCtxFn != nil || opt.DialFn != nil: // it knows what its address means
		return "", ""
	}
	if _, _, err := net.SplitHostPort(opt.InitAddress[0]); err != nil {
		return "InitAddress", fmt.Sprintf("%q is not host:port; a unix socket needs a DialCtxFn, as rueidis.ParseURL makes it",
			opt.InitAddress[0])
	}
	return "", ""
}

// dialer returns what opens the network connection. A dial function of the option also makes the TLS.
func dialer(opt *rueidis.ClientOption) func(context.Context) (net.Conn, error) {
	address, dialer := opt.InitAddress[0], opt.Dialer
	config := opt.TLSConfig
	if config != nil {
		config = config.Clone()
	}
	switch withContext, without := opt.DialCtxFn, opt.DialFn; {
	case withContext != nil:
		return func(ctx context.Context) (net.Conn, error) {
			own := dialer
			return withContext(ctx, address, &own, config)
		}
	case without != nil:
		return func(context.Context) (net.Conn, error) {
			own := dialer
			return without(address, &own, config)
		}
	case config != nil:
		secure := tls.Dialer{NetDialer: &dialer, Config: config}
		return func(ctx context.Context) (net.Conn, error) { return secure.DialContext(ctx, "tcp", address) }
	default:
		return func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", address) }
	}
}

// credentials returns what tells the login for a new connection.
func credentials(opt *rueidis.ClientOption) func(context.Context, *conn.Renewing) (user, password string, err error) {
	ask, user, password := opt.AuthCredentialsFn, opt.Username, opt.Password
	if ask == nil {
		return func(context.Context, *conn.Renewing) (string, string, error) { return user, password, nil }
	}
	return func(_ context.Context, c *conn.Renewing) (string, string, error) {
		where := rueidis.AuthCredentialsContext{Address: c.RemoteAddr()}
		first, err := ask(where)
		if err != nil {
			return "", "", &conn.CredentialsError{From: "AuthCredentialsFn", Err: err, Secret: first.Password}
		}
		if !first.RefreshAfter.IsZero() {
			r := &refresher{ask: ask, where: where, conn: c}
			c.Keep(r.stop)
			r.schedule(time.Until(first.RefreshAfter))
		}
		return first.Username, first.Password, nil
	}
}

// leastPause is between two calls of AuthCredentialsFn for one connection: a RefreshAfter in the past must not keep a
// processor busy. It is also the pause after a call that failed.
const leastPause = time.Second

// A refresher renews the login of one connection when it is time, on a timer's goroutine.
type refresher struct {
	ask   func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error)
	where rueidis.AuthCredentialsContext
	conn  *conn.Renewing

	mu      sync.Mutex // guards the rest; ask is not called under it
	timer   *time.Timer
	stopped bool
}

func (r *refresher) schedule(in time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.timer = time.AfterFunc(max(in, leastPause), r.refresh)
	}
}

// refresh keeps the old login if there is no new one: it is still good, for as long as the server says. If the server
// ends the connection, the next one asks again, and the error is told.
func (r *refresher) refresh() {
	next, err := r.ask(r.where)
	if err != nil {
		r.schedule(leastPause)
		return
	}
	r.conn.Renew(next.Username, next.Password)
	if !next.RefreshAfter.IsZero() {
		r.schedule(time.Until(next.RefreshAfter))
	}
}

func (r *refresher) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.timer.Stop()
}
