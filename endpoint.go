package redlock

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"
)

// credentials is the type of [Node.Credentials].
type credentials = func(context.Context) (user, password string, err error)

// An endpoint is where a node is and how to log in there.
type endpoint struct {
	name               string
	network, address   string
	username, password string
	database           int
	tls                *tls.Config // nil: none
	credentials        credentials // nil: username and password
	names              *lookups    // of the host in address
	dial               func(context.Context) (redis.Conn, error)
	dials, asking      chan struct{} // hold one element for each call of dial, or credentials, that has not returned
	readTimeout        *atomic.Bool  // a connection of dial ended by a read timeout
}

// id is the name of the node, as all processes that mean the same node have it: in the address of a host, case means
// nothing.
func (e *endpoint) id() string {
	if e.network == "tcp" && e.name == e.address {
		return strings.ToLower(e.name)
	}
	return e.name
}

// resolve checks the nodes. It refuses two nodes with the same address or the same name. credentials is for nodes that
// have no login of their own; it may be nil.
func resolve(nodes []Node, credentials credentials) ([]endpoint, error) {
	endpoints := make([]endpoint, len(nodes))
	byName, byAddress := map[string]int{}, map[string]int{}
	for i, node := range nodes {
		field := fmt.Sprintf("Nodes[%d]", i)
		e, err := node.endpoint(field, credentials)
		if err != nil {
			return nil, err
		}
		if e.dial == nil {
			at := e.network + " " + e.address
			if e.network == "tcp" { // the name of a host; two paths that differ in case are two sockets
				at = strings.ToLower(at)
			}
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

func (n Node) endpoint(field string, credentials credentials) (endpoint, error) {
	e := endpoint{name: n.Name, credentials: n.Credentials, dial: n.Dial, readTimeout: new(atomic.Bool),
		names: &lookups{ask: askResolver},
		dials: make(chan struct{}, callsAtATime), asking: make(chan struct{}, callsAtATime)}
	switch {
	case n.Dial != nil && n.URL != "":
		return e, invalid(field, "it has both a URL and Dial; give one of them")
	case n.Dial != nil && n.Credentials != nil:
		return e, invalid(field+".Credentials", "it is set beside Dial, whose connections are logged in already; let Dial ask for the password")
	case n.Dial != nil && n.TLS != nil:
		return e, invalid(field+".TLS", "it is set beside Dial, which opens the connections itself; let Dial make the TLS")
	case n.Dial != nil && n.Name == "":
		return e, invalid(field+".Name", "a node with Dial needs a name")
	case n.Dial != nil:
		return e, nil
	case n.URL == "":
		return e, invalid(field+".URL", "it is empty; give redis://host:port")
	}
	raw := strings.TrimSpace(n.URL)
	if !strings.Contains(raw, "://") {
		raw = "redis://" + raw
	}
	// Here and below, no part of the URL is quoted. With a slash in it, a password may end up in any part.
	switch {
	case strings.Contains(raw, "#"): // a URL ends there, so a user name before it would be taken for the host
		return e, invalid(field+".URL", "it has a #; percent-encode it in a user name, password or path: %%23")
	case strings.Contains(hostIn(raw), ","):
		return e, invalid(field+".URL", "it has a comma; give each URL as an argument of its own: Nodes(strings.Split(list, \",\")...)")
	case hasBareIPv6(raw): // before Go 1.26 the last part of it is a port, and the rest a host
		return e, invalid(field+".URL", "its host has several colons; write an IPv6 address in brackets: redis://[2001:db8::1]:6379")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return e, invalid(field+".URL", "it is not a URL; percent-encode what is special in a user name or password")
	}
	if u.User != nil {
		e.username = u.User.Username()
		password, set := u.User.Password()
		if e.password = password; !set { // redis://secret@host, as redis-cli takes it
			e.username, e.password = "", u.User.Username()
		}
		if e.password == "" { // nothing to log in with
			e.username = ""
		}
	}
	switch {
	case u.User != nil && n.Credentials != nil:
		return e, invalid(field+".Credentials", "it is set, but the URL has a user name or password too; give one of them")
	case u.User == nil && n.Credentials == nil:
		e.credentials = credentials
	}
	database := strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "unix":
		e.network, e.address = "unix", u.Path
		if u.Host != "" || u.Path == "" {
			return e, invalid(field+".URL", "a socket is written unix:///path, with three slashes")
		}
		if n.TLS != nil {
			return e, invalid(field+".TLS", "it is set, but the URL is not rediss://, and a socket has no TLS; leave it out")
		}
		database = ""
	case "redis", "rediss":
		if strings.Contains(u.Path, "@") { // a slash in a password ended the host, and what was meant as the host comes later
			return e, invalid(field+".URL", "it has an @ behind a slash; percent-encode what is special in a user name or password: / is %%2F, @ is %%40")
		}
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		if u.Hostname() == "" {
			return e, invalid(field+".URL", "it has no host; give redis://host:port")
		}
		if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
			return e, invalid(field+".URL", "its port is not 1 to 65535")
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
			return e, invalid(field+".TLS", "it is set, but the URL is not rediss://; write rediss://, or leave TLS out")
		}
	default:
		return e, invalid(field+".URL", "its scheme is none of redis://, rediss:// and unix://")
	}
	if e.database, err = databaseOf(field+".URL", database, u); err != nil {
		return e, err
	}
	if e.name == "" {
		e.name = e.address
	}
	return e, nil
}

// hostIn is the host and port of a URL, as they are written. It is "" if there is an @ behind them, because that may be in
// front of the host, and what looks like one a password with a slash.
func hostIn(raw string) string {
	_, host, _ := strings.Cut(raw, "://")
	if i := strings.IndexAny(host, "/?"); i >= 0 {
		if strings.Contains(host[i:], "@") {
			return ""
		}
		host = host[:i]
	}
	return host[strings.LastIndexByte(host, '@')+1:]
}

// hasBareIPv6 reports whether the host of a URL has more than one colon and no bracket.
func hasBareIPv6(raw string) bool {
	host := hostIn(raw)
	return strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[")
}

// databaseOf is the database number: the path that follows the host, or the parameter db. Other parameters are refused:
// to ignore silently what means something to another client would be wrong.
func databaseOf(field, path string, u *url.URL) (int, error) {
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return 0, invalid(field, "what follows the question mark cannot be read; write ?db=3, or percent-encode a ? in a password")
	}
	for name, values := range parameters {
		switch {
		case name != "db" && isPlain(name) && !strings.Contains(u.RawQuery, "@"):
			return 0, invalid(field, "it has the parameter %q; only db is known", name)
		case name != "db": // not quoted: it may be a part of a password
			return 0, invalid(field, "it has a parameter other than db; percent-encode a ? in a password")
		case len(values) > 1 || path != "" && values[0] != path:
			return 0, invalid(field, "it has more than one database")
		}
		path = values[0]
		if path == "" {
			return 0, invalid(field, "its parameter db is empty; write ?db=3")
		}
	}
	if path == "" {
		return 0, nil
	}
	number, err := strconv.Atoi(path)
	if err != nil || number < 0 {
		return 0, invalid(field, "what follows the host, or ?db=, is no database number")
	}
	return number, nil
}

// isPlain reports whether the name of a parameter is safe to quote: it is short and has only letters, digits, - and _.
func isPlain(name string) bool {
	return name != "" && len(name) <= 32 && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
