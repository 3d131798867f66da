package redlock_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A proxy speaks the Redis protocol. It passes on each command and its reply, one at a time. It keeps a client's
// connection while the server behind it changes.
type proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex // guards the rest
	to    string
	from  string // the script with which it leads to next; "": it does not
	next  string
	info  func(string) string                       // what it makes of replies to INFO; nil: it passes them on
	lie   func(command string, reply []byte) []byte // what it makes of replies to a command or a script; nil: it passes them on
	conns []net.Conn
}

func newProxy(t *testing.T, n *fleet.Node) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener}
	p.lead(t, n)
	p.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
			p.wg.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// proxies has a proxy in front of each node, and their URLs.
func proxies(t *testing.T, f *fleet.Fleet) (all []*proxy, urls []string) {
	for i, n := range f.Nodes() {
		all = append(all, newProxy(t, n))
		urls = append(urls, all[i].url())
	}
	return all, urls
}

func (p *proxy) url() string { return "redis://" + p.listener.Addr().String() }

func (p *proxy) lead(t *testing.T, n *fleet.Node) {
	u, err := url.Parse(n.URL())
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = u.Host
}

// leadFrom leads to that server from the next run of the script on.
func (p *proxy) leadFrom(t *testing.T, script string, n *fleet.Node) {
	u, err := url.Parse(n.URL())
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from, p.next = script, u.Host
}

// tell makes the proxy pass on replies to INFO so.
func (p *proxy) tell(info func(string) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = info
}

// lies makes the proxy pass on replies so. A script has its own name.
func (p *proxy) lies(lie func(command string, reply []byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lie = lie
}

// edited is the reply as the client gets it.
func (p *proxy) edited(command, reply []byte) []byte {
	p.mu.Lock()
	edit, lie := p.info, p.lie
	p.mu.Unlock()
	words := strings.Split(string(command), "\r\n")
	if lie != nil && len(words) > 2 {
		name := words[2]
		if name == "EVALSHA" {
			name = redlock.ScriptName(words[4])
		}
		return lie(name, reply)
	}
	if edit == nil || len(words) < 3 || words[2] != "INFO" || reply[0] != '$' {
		return reply
	}
	_, text, _ := strings.Cut(string(reply), "\r\n")
	text = edit(strings.TrimSuffix(text, "\r\n"))
	return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text)
}

// target is where this command goes.
func (p *proxy) target(command []byte) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if words := strings.Split(string(command), "\r\n"); p.from != "" && len(words) > 4 && redlock.ScriptName(words[4]) == p.from {
		p.to, p.from = p.next, ""
	}
	return p.to
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	in := bufio.NewReader(client)
	var server net.Conn
	var out *bufio.Reader
	at := ""
	for {
		command, err := readValue(in)
		if err != nil {
			break
		}
		if to := p.target(command); to != at {
			if server != nil {
				server.Close()
			}
			if server, err = net.Dial("tcp", to); err != nil {
				break
			}
			out, at = bufio.NewReader(server), to
			p.mu.Lock()
			p.conns = append(p.conns, server)
			p.mu.Unlock()
		}
		if _, err = server.Write(command); err != nil {
			break
		}
		reply, err := readValue(out)
		if err != nil {
			break
		}
		if _, err = client.Write(p.edited(command, reply)); err != nil {
			break
		}
	}
	if server != nil {
		server.Close()
	}
}

// readValue reads one value of the Redis protocol (RESP 2), as it was sent.
func readValue(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	var all bytes.Buffer
	all.Write(line)
	switch line[0] {
	case '$':
		if n >= 0 {
			_, err = io.CopyN(&all, r, int64(n)+2)
		}
	case '*':
		for range n {
			var item []byte
			if item, err = readValue(r); err != nil {
				break
			}
			all.Write(item)
		}
	}
	return all.Bytes(), err
}
