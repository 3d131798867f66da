package redlock

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// An endpoint is where a node is and how to log in there.
type endpoint struct {
	name               string
	network, address   string
	username, password string
	database           int
	tls                *tls.Config // nil: none
	dial               func(context.Context) (redis.Conn, error)
}

// resolve checks the nodes and refuses any two at one address.
func resolve(nodes []Node) ([]endpoint, error) {
	endpoints := make([]endpoint, len(nodes))
	byName, byAddress := map[string]int{}, map[string]int{}
	for i, node := range nodes {
		field := fmt.Sprintf("Nodes[%d]", i)
		e, err := node.endpoint(field)
		if err != nil {
			return nil, err
		}
		if e.dial == nil {
			at := e.network + " " + strings.ToLower(e.address)
			if j, ok := byAddress[at]; ok {
				return nil, invalid(field, "%s is the address of Nodes[%d] too; one server has one vote", e.address, j)
			}
			byAddress[at] = i
		}
		if j, ok := byName[e.name]; ok {
			return nil, invalid(field+".Name", "%q is the name of Nodes[%d] too", e.name, j)
		}
		byName[e.name] = i
		endpoints[i] = e
	}
	return endpoints, nil
}

func (n Node) endpoint(field string) (endpoint, error) {
	e := endpoint{name: n.Name, dial: n.Dial}
	switch {
	case n.Dial != nil && n.URL != "":
		return e, invalid(field, "it has both a URL and Dial; give one of them")
	case n.Dial != nil && n.Name == "":
		return e, invalid(field+".Name", "a node with Dial needs a name")
	case n.Dial != nil:
		return e, nil
	case n.URL == "":
		return e, invalid(field+".URL", "it is empty; give redis://host:port")
	}
	raw := n.URL
	if !strings.Contains(raw, "://") {
		raw = "redis://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		// No part of the URL is quoted, here and below: a password with a slash in it may be anywhere.
		return e, invalid(field+".URL", "it is not a URL; percent-encode what is special in a user name or password")
	}
	if u.User != nil {
		e.username = u.User.Username()
		password, set := u.User.Password()
		if e.password = password; !set { // redis://secret@host, as redis-cli takes it
			e.username, e.password = "", u.User.Username()
		}
	}
	database := strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "unix":
		e.network, e.address = "unix", u.Path
		if u.Host != "" || u.Path == "" {
			return e, invalid(field+".URL", "a socket is written unix:///path, with three slashes")
		}
		database = u.Query().Get("db")
	case "redis", "rediss":
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		if u.Hostname() == "" {
			return e, invalid(field+".URL", "it has no host; give redis://host:port")
		}
		e.network, e.address = "tcp", net.JoinHostPort(u.Hostname(), port)
		if u.Scheme == "rediss" {
			e.tls = &tls.Config{}
			if n.TLS != nil {
				e.tls = n.TLS.Clone()
			}
			if e.tls.ServerName == "" {
				e.tls.ServerName = u.Hostname()
			}
		} else if n.TLS != nil {
			return e, invalid(field+".TLS", "it is set, but the URL is not rediss://")
		}
	default:
		return e, invalid(field+".URL", "its scheme is none of redis://, rediss:// and unix://")
	}
	if database != "" {
		if e.database, err = strconv.Atoi(database); err != nil || e.database < 0 {
			return e, invalid(field+".URL", "what follows the host is no database number")
		}
	}
	if e.name == "" {
		e.name = e.address
	}
	return e, nil
}

// connect opens a connection that has not logged in yet (but one of the node's own Dial has).
func (e *endpoint) connect(ctx context.Context, writeTimeout time.Duration) (redis.Conn, *link, error) {
	if e.dial != nil {
		conn, err := e.dial(ctx)
		return conn, nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, e.network, e.address)
	if err != nil {
		return nil, nil, err
	}
	if e.tls != nil {
		secure := tls.Client(conn, e.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, nil, err
		}
		conn = secure
	}
	l := &link{Conn: conn, writeTimeout: writeTimeout}
	return redis.NewConn(l, 0, 0), l, nil
}

// login sends what a connection of the node's own URL needs first, and says how many replies it will get.
func (e *endpoint) login(conn redis.Conn) (replies int, err error) {
	if e.dial != nil {
		return 0, nil
	}
	if e.password != "" {
		args := []any{e.password}
		if e.username != "" {
			args = []any{e.username, e.password}
		}
		if err := conn.Send("AUTH", args...); err != nil {
			return 0, err
		}
		replies++
	}
	if e.database != 0 {
		if err := conn.Send("SELECT", e.database); err != nil {
			return 0, err
		}
		replies++
	}
	return replies, nil
}

// A link bounds each write by a time, where redigo would set the deadline anew for every command of a
// batch, and leaves the read deadline, which redigo clears before every reply, as it is: none. It knows
// whether a reply lay there already when the one before was read.
type link struct {
	net.Conn
	writeTimeout time.Duration
	read         bool // since fresh was last asked; the reader's
}

func (l *link) Read(p []byte) (int, error) {
	l.read = true
	return l.Conn.Read(p)
}

// fresh reports whether anything was read from the network since it was last called. Without a link nobody
// knows, so it may have been.
func (l *link) fresh() bool {
	if l == nil {
		return true
	}
	read := l.read
	l.read = false
	return read
}

func (l *link) Write(p []byte) (int, error) {
	if err := l.SetWriteDeadline(time.Now().Add(l.writeTimeout)); err != nil {
		return 0, err
	}
	return l.Conn.Write(p)
}

func (l *link) SetReadDeadline(time.Time) error { return nil }
