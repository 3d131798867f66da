package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorumlock/redlock/internal/fleet/server"
)

// A link is a TCP proxy in front of one node. It can hold data back in each direction without closing connections, and
// it can delay data.
//
// Goroutines: one accepts while the link is up. Each connection has one that dials and waits, and four that move bytes
// (see lane). wg counts all of them, and close waits for them.
type link struct {
	upstream func() server.Address // the node; fixed after its first start
	front    server.Address
	release  func() // frees the port

	requests, replies gate
	delayNanos        atomic.Int64

	closing context.Context // ends with close
	end     context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex // guards what follows; nothing waits under it
	listener net.Listener
	conns    map[*linkConn]struct{}
}

const (
	dialTimeout   = 5 * time.Second
	listenTimeout = 2 * time.Second
)

// prepare chooses the address of the link, which never changes. The link does not listen before up.
func (l *link) prepare(upstream func() server.Address) error {
	behind := upstream()
	l.upstream, l.release = upstream, func() {}
	l.front = server.Address{Network: behind.Network, Password: behind.Password}
	l.conns = map[*linkConn]struct{}{}
	l.requests.init()
	l.replies.init()
	l.closing, l.end = context.WithCancel(context.Background())
	if behind.Network == "unix" {
		l.front.At = filepath.Join(filepath.Dir(behind.At), "link.sock")
		return nil
	}
	port, release, err := server.Reserve()
	if err != nil {
		l.end()
		return err
	}
	l.release = release
	l.front.At = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return nil
}

func (l *link) address() server.Address { return l.front }

// up starts to accept connections.
func (l *link) up() error {
	listener, err := listen(l.front)
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil || l.closing.Err() != nil {
		return errors.Join(errors.New("link: it is already up, or closed"), listener.Close())
	}
	l.listener = listener
	l.wg.Go(func() { l.accept(listener) })
	return nil
}

// listen listens on the address of a former listener. On some systems the former socket needs a moment to close.
func listen(at server.Address) (net.Listener, error) {
	if at.Network == "unix" {
		_ = os.Remove(at.At) // of the former listener, if it exists
	}
	began := time.Now()
	for {
		listener, err := net.Listen(at.Network, at.At)
		if err == nil {
			if unix, ok := listener.(*net.UnixListener); ok {
				unix.SetUnlinkOnClose(false) // a dial must be refused, not fail with a missing file
			}
			return listener, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(began) > listenTimeout {
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
}

// down makes the link refuse connections. Open connections end when the server closes them.
func (l *link) down() {
	l.mu.Lock()
	listener := l.listener
	l.listener = nil
	l.mu.Unlock()
	if listener != nil {
		_ = server.CloseListener(listener)
	}
}

// cut sets which data passes.
func (l *link) cut(mode CutMode) {
	l.requests.set(mode != CutBoth)
	l.replies.set(mode == Flowing)
}

func (l *link) setDelay(d time.Duration) { l.delayNanos.Store(int64(d)) }

func (l *link) delay() time.Duration { return time.Duration(l.delayNanos.Load()) }

// close ends everything and waits.
func (l *link) close() {
	l.end() // first, so that up fails after down
	l.down()
	l.mu.Lock()
	for c := range l.conns {
		c.end()
	}
	l.mu.Unlock()
	l.wg.Wait()
	l.release()
}

func (l *link) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // probably out of file descriptors; the connection waits in the backlog
			continue
		}
		c := newLinkConn(l, client)
		l.mu.Lock()
		if l.closing.Err() != nil {
			l.mu.Unlock()
			c.end()
			continue
		}
		l.conns[c] = struct{}{}
		l.wg.Go(c.run)
		l.mu.Unlock()
	}
}

// A gate lets bytes through or holds them back.
type gate struct {
	mu     sync.RWMutex  // write-locked to change open; read-locked while delivering, so that nothing passes after set(false)
	opened chan struct{} // closed while open
	open   bool
}

func (g *gate) init() {
	g.opened, g.open = make(chan struct{}), true
	close(g.opened)
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case open && !g.open:
		close(g.opened)
	case !open && g.open:
		g.opened = make(chan struct{})
	}
	g.open = open
}

// pass waits until the gate is open and calls do. The gate cannot close during do, so do must be short. pass returns
// false if ctx ended first.
func (g *gate) pass(ctx context.Context, do func()) bool {
	for {
		g.mu.RLock()
		if g.open {
			do()
			g.mu.RUnlock()
			return true
		}
		opened := g.opened
		g.mu.RUnlock()
		select {
		case <-opened:
		case <-ctx.Done():
			return false
		}
	}
}
