package redlock

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"
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
	dials              chan struct{} // holds one element for each call of dial that has not returned
}

// maxDials is how many calls of one node's Dial may run at a time: one for the node, and one for its subscriber.
const maxDials = 2

// resolve checks the nodes. It refuses two nodes with the same address or the same name.
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
	e := endpoint{name: n.Name, dial: n.Dial, dials: make(chan struct{}, maxDials)}
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
		// Here and below, no part of the URL is quoted. With a slash in it, a password may end up in any part.
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
		database = ""
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
	if e.database, err = databaseOf(field+".URL", database, u); err != nil {
		return e, err
	}
	if e.name == "" {
		e.name = e.address
	}
	return e, nil
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
		case name != "db" && isPlain(name) && !strings.Contains(u.RawQuery+u.Fragment, "@"):
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

// open dials, and has the handshake log in and prepare the connection. It takes no longer than timeout, which is also
// how long each later write may take.
func (e *endpoint) open(ctx context.Context, timeout time.Duration, handshake func(redis.Conn) error) (redis.Conn, *link, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, link, err := e.connect(ctx, timeout)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = handshake(conn)
	if !stop() { // the connection is closed already, whatever the server answered
		err = fmt.Errorf("it did not answer within %v", timeout)
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, link, nil
}

// connect opens the network connection.
func (e *endpoint) connect(ctx context.Context, writeTimeout time.Duration) (redis.Conn, *link, error) {
	if e.dial != nil {
		conn, err := e.dialOwn(ctx)
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

// dialOwn calls the node's own Dial and waits for it no longer than ctx lasts, even if Dial ignores ctx. A connection
// that Dial returns later is closed.
func (e *endpoint) dialOwn(ctx context.Context) (redis.Conn, error) {
	select {
	case e.dials <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("its Dial has not returned since it was last called: %w", ctx.Err())
	}
	var conn redis.Conn
	var err error
	dialled := make(chan struct{})
	go func() { // ends when the user's function returns
		defer close(dialled)
		conn, err = e.dial(ctx)
		<-e.dials
	}()
	select {
	case <-dialled:
		return conn, err
	case <-ctx.Done():
		go func() {
			if <-dialled; err == nil {
				conn.Close()
			}
		}()
		return nil, fmt.Errorf("its Dial has not returned: %w", ctx.Err())
	}
}

// start logs in and sends these commands, all in one batch. The caller receives the replies to the commands.
func (e *endpoint) start(conn redis.Conn, commands ...[]any) error {
	logins := e.logins()
	for _, c := range slices.Concat(logins, commands) {
		if err := conn.Send(c[0].(string), c[1:]...); err != nil {
			return err
		}
	}
	if err := conn.Flush(); err != nil {
		return err
	}
	for range logins {
		if _, err := conn.Receive(); err != nil {
			return fmt.Errorf("it refused the login: %w", err)
		}
	}
	return nil
}

// logins is AUTH and SELECT, as far as the node's URL needs them. A node's own Dial logs in by itself.
func (e *endpoint) logins() (commands [][]any) {
	switch {
	case e.dial != nil:
		return nil
	case e.username != "" && e.password != "":
		commands = append(commands, []any{"AUTH", e.username, e.password})
	case e.password != "":
		commands = append(commands, []any{"AUTH", e.password})
	}
	if e.database != 0 {
		commands = append(commands, []any{"SELECT", e.database})
	}
	return commands
}

// A link is the network connection below redigo. It saves system time: redigo would set the write deadline for each
// command of a batch, and clear the read deadline before each reply. A link sets a deadline once per write, and has
// none for reads. It also knows whether a reply came from the network together with the one before.
type link struct {
	net.Conn
	writeTimeout time.Duration
	read         bool // something was read since fresh was last called; the reader's
}

func (l *link) Read(p []byte) (int, error) {
	l.read = true
	return l.Conn.Read(p)
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

func (l *link) Write(p []byte) (int, error) {
	if err := l.SetWriteDeadline(time.Now().Add(l.writeTimeout)); err != nil {
		return 0, err
	}
	return l.Conn.Write(p)
}

func (l *link) SetReadDeadline(time.Time) error { return nil }
