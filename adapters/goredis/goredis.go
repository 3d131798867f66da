// Package goredis makes nodes for redlock from the options of a go-redis client.
//
//	nodes, err := goredis.Nodes(
//		&redis.Options{Addr: "10.0.0.1:6379", Username: "locker", Password: password},
//		&redis.Options{Addr: "10.0.1.1:6379", Username: "locker", Password: password},
//		&redis.Options{Addr: "10.0.2.1:6379", Username: "locker", Password: password},
//	)
//	…
//	client, err := redlock.New(redlock.Config{Nodes: nodes})
//
// Each of the options is for one independent master. No go-redis client is made, and no connection of go-redis is
// opened: redlock opens its own, one a node, and one more while locks are contended.
//
// # What is taken over
//
//	Addr, Network              as in go-redis, also its defaults
//	Dialer                     called for each connection; it then also makes the TLS, as in go-redis
//	TLSConfig                  a copy of it
//	Username, Password         an empty Username is the server's default user
//	CredentialsProvider,       asked for each new connection. The provider whose name is longest comes first, as in
//	CredentialsProviderContext,  go-redis. When a streaming one has a new login, open connections log in anew with
//	StreamingCredentialsProvider their next command, within five seconds
//	DB                         the database
//	DialTimeout                for the network connection. redlock also bounds the whole, with the login, by four
//	                           NodeTimeouts or 1s, whichever is longer
//	WriteTimeout               if it is shorter than that
//
// # What is refused
//
// What redlock cannot do, and what matters to a lock, is an error that names the field: an OnConnect, because it needs a
// connection of go-redis; options of a Sentinel client, because a lock must not follow a failover; a Network or an Addr
// that go-redis could not dial either. Options of Cluster and Ring clients have other types.
//
// # What is ignored
//
// ReadTimeout, because a connection of redlock waits for replies without a time limit, and redlock notices by itself
// that a server has stopped. All about pools, lifetimes of connections, retries, buffers, pipelines, limiters, caches
// and maintenance notifications, because redlock has none of them. Protocol, because the replies to redlock's commands
// are the same in RESP2, which it speaks. ClientName and what else go-redis says of itself, because redlock names its
// connections redlock.
package goredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/conn"
)

// Node returns the node that the options describe. It connects to nothing. The node's Name is the Addr; where several
// servers are behind one Addr by way of a Dialer, give each a Name of its own. The options may be changed afterwards, but
// not what they point to.
//
// Errors are [redlock.ErrInvalid], and name the field.
func Node(opts *redis.Options) (redlock.Node, error) {
	return node("Options", opts)
}

// Nodes returns a node for each of the options, as [Node] does.
func Nodes(opts ...*redis.Options) ([]redlock.Node, error) {
	nodes := make([]redlock.Node, len(opts))
	for i, o := range opts {
		var err error
		if nodes[i], err = node(fmt.Sprintf("Options[%d]", i), o); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// The defaults of go-redis.
const (
	defaultAddr        = "localhost:6379"
	defaultDialTimeout = 5 * time.Second
)

// failoverAddr is the Addr in the options of a client that redis.NewFailoverClient made.
const failoverAddr = "FailoverClient"

func node(name string, opts *redis.Options) (redlock.Node, error) {
	if opts == nil {
		return redlock.Node{}, fmt.Errorf("%w: %s: it is nil", redlock.ErrInvalid, name)
	}
	o := *opts
	if o.Addr == "" {
		o.Addr = defaultAddr
	}
	if o.Network == "" {
		o.Network = "tcp"
		if strings.HasPrefix(o.Addr, "/") {
			o.Network = "unix"
		}
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = defaultDialTimeout
	}
	if field, wrong := check(&o); wrong != "" {
		return redlock.Node{}, fmt.Errorf("%w: %s.%s: %s", redlock.ErrInvalid, name, field, wrong)
	}
	opener := conn.Opener{
		Dial:         dialer(&o),
		DialTimeout:  o.DialTimeout,
		WriteTimeout: max(o.WriteTimeout, 0), // -1 and -2 mean that there is none
		Database:     o.DB,
		Credentials:  credentials(&o),
	}
	return redlock.Node{Name: o.Addr, Dial: opener.Open}, nil
}

// check returns the field that cannot be taken over, and what is wrong with it; or nothing.
func check(o *redis.Options) (field, wrong string) {
	switch {
	case o.Addr == failoverAddr:
		return "Addr", "these are the options of a Sentinel client, and a lock must not follow a failover: the new master may " +
			"lack locks. Give the address of one master, which no Sentinel watches"
	case o.OnConnect != nil:
		return "OnConnect", "it needs a connection of go-redis. Unset it in a copy of the options; a login goes into " +
			"CredentialsProviderContext. Or use redlock.Node.Dial"
	case o.DB < 0:
		return "DB", fmt.Sprintf("%d is no database number", o.DB)
	case o.Dialer != nil: // it knows what its network and address mean
		return "", ""
	}
	switch o.Network {
	case "unix":
		return "", ""
	case "tcp", "tcp4", "tcp6":
		if _, _, err := net.SplitHostPort(o.Addr); err != nil {
			return "Addr", fmt.Sprintf("%q is not host:port", o.Addr)
		}
		return "", ""
	default:
		return "Network", fmt.Sprintf("%q is none of tcp, tcp4, tcp6 and unix; for others, set a Dialer", o.Network)
	}
}

// dialer returns what opens the network connection. A Dialer of the options also makes the TLS.
func dialer(o *redis.Options) func(context.Context) (net.Conn, error) {
	network, address := o.Network, o.Addr
	if dial := o.Dialer; dial != nil {
		return func(ctx context.Context) (net.Conn, error) { return dial(ctx, network, address) }
	}
	if o.TLSConfig != nil {
		secure := tls.Dialer{Config: o.TLSConfig.Clone()}
		return func(ctx context.Context) (net.Conn, error) { return secure.DialContext(ctx, network, address) }
	}
	var plain net.Dialer
	return func(ctx context.Context) (net.Conn, error) { return plain.DialContext(ctx, network, address) }
}

// credentials returns what tells the login for a new connection.
func credentials(o *redis.Options) func(context.Context, *conn.Renewing) (user, password string, err error) {
	switch {
	case o.StreamingCredentialsProvider != nil:
		provider := o.StreamingCredentialsProvider
		return func(_ context.Context, r *conn.Renewing) (string, string, error) { return follow(provider, r) }
	case o.CredentialsProviderContext != nil:
		provider := o.CredentialsProviderContext
		return func(ctx context.Context, _ *conn.Renewing) (string, string, error) {
			user, password, err := provider(ctx)
			if err != nil {
				return "", "", &conn.CredentialsError{From: "CredentialsProviderContext", Err: err, Secret: password}
			}
			return login(user, password)
		}
	case o.CredentialsProvider != nil:
		provider := o.CredentialsProvider
		return func(context.Context, *conn.Renewing) (string, string, error) { return login(provider()) }
	default:
		user, password := o.Username, o.Password
		return func(context.Context, *conn.Renewing) (string, string, error) { return login(user, password) }
	}
}

// login is who logs in: go-redis does not log in without a password.
func login(user, password string) (string, string, error) {
	if password == "" {
		user = ""
	}
	return user, password, nil
}

// follow subscribes to the provider until the connection is closed.
func follow(provider auth.StreamingCredentialsProvider, r *conn.Renewing) (user, password string, err error) {
	const name = "StreamingCredentialsProvider"
	first, unsubscribe, err := provider.Subscribe(&listener{r})
	if err != nil {
		return "", "", &conn.CredentialsError{From: name, Err: err}
	}
	r.Keep(func() {
		if unsubscribe != nil {
			// It may wait for a lock that the provider holds while it asks for a new login. The connection does not wait.
			go func() { _ = unsubscribe() }() // nothing is left that could go wrong
		}
	})
	if first == nil {
		return "", "", &conn.CredentialsError{From: name, Err: errors.New("it returned no credentials")}
	}
	return login(first.BasicAuth())
}

// A listener renews the login of one connection.
type listener struct{ conn *conn.Renewing }

// OnNext gets a new login. The provider may hold a lock meanwhile.
func (l *listener) OnNext(next auth.Credentials) {
	user, password, _ := login(next.BasicAuth())
	l.conn.Renew(user, password)
}

// OnError keeps the connection: its login is still good, for as long as the server says. If the server ends it, the next
// connection asks the provider again, and its error is told.
func (l *listener) OnError(error) {}
