package fleet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	laneChunk    = 16 << 10              // bytes read at a time
	laneChunks   = 64                    // chunks on their way, a direction; then the sender must wait, as TCP would make it
	deliverSlice = 20 * time.Millisecond // how long one write may hold a gate open
)

// A linkConn is one client's connection and its other half to the node.
type linkConn struct {
	link   *link
	client net.Conn
	ctx    context.Context // ends when the connection is over, which ends its goroutines
	cancel context.CancelFunc

	mu     sync.Mutex // guards server against end
	server net.Conn   // nil until dialled
}

func newLinkConn(l *link, client net.Conn) *linkConn {
	c := &linkConn{link: l, client: client}
	c.ctx, c.cancel = context.WithCancel(l.closing)
	return c
}

// end closes both halves at once. It may be called often.
func (c *linkConn) end() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
}

func (c *linkConn) run() {
	defer c.link.wg.Done()
	defer func() {
		c.end()
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
	}()
	// The accept has told the client nothing of the node. Behind a cut the node must not learn of the
	// client either; what the client sends meanwhile waits in its socket, even if it closes.
	if !c.link.requests.pass(c.ctx, func() {}) || !c.dial() {
		c.reset()
		return
	}
	requests := &lane{conn: c, from: c.client, to: c.server, gate: &c.link.requests}
	replies := &lane{conn: c, from: c.server, to: c.client, gate: &c.link.replies, drain: true}
	var wg sync.WaitGroup
	wg.Add(2)
	go func() {
		defer wg.Done()
		// The client has closed, or given up: what it sent before is delivered, and the node sees the end of
		// it. The connection lives on until the node closes too.
		if err := requests.run(); errors.Is(err, io.EOF) {
			requests.pass(func() { closeWrite(c.server) })
		} else {
			c.end()
		}
	}()
	go func() {
		defer wg.Done()
		_ = replies.run()
		c.end() // a Redis that closed its end reads no more either
	}()
	wg.Wait()
}

func (c *linkConn) dial() bool {
	to := c.link.upstream()
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	server, err := new(net.Dialer).DialContext(ctx, to.network, to.at)
	if err != nil {
		return false
	}
	c.mu.Lock()
	c.server = server
	c.mu.Unlock()
	if c.ctx.Err() != nil { // end was called before it could see server
		_ = server.Close()
		return false
	}
	return true
}

// reset lets the client's next use of the connection fail as on a server that is gone.
func (c *linkConn) reset() {
	if tcp, ok := c.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// A lane moves bytes one way. One goroutine reads and stamps them with the time they are due, the other
// delivers them when that time has come and the gate is open; so a delay delays but does not throttle.
type lane struct {
	conn     *linkConn
	from, to net.Conn
	gate     *gate
	drain    bool // go on reading when nobody takes it: a lost reply must not stop the requests
}

type chunk struct {
	due  time.Time
	data []byte
	end  error // why there is no more; then data is empty
}

// run returns why the sender's bytes ended, after all of them were delivered or dropped.
func (n *lane) run() error {
	queue := make(chan chunk, laneChunks)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(queue)
		n.read(queue)
	}()
	defer func() { <-done }()
	for c := range queue {
		if !n.await(c.due) {
			return context.Cause(n.conn.ctx)
		}
		if c.end != nil {
			// The end is held back like the bytes before it: behind a cut nobody learns of a close.
			n.pass(func() {})
			return c.end
		}
		if err := n.deliver(c.data); err != nil && !n.drain {
			n.conn.end() // unblocks read
			return err
		} else if err != nil {
			n.to = nil
		}
	}
	return context.Cause(n.conn.ctx)
}

func (n *lane) read(queue chan<- chunk) {
	buffer := make([]byte, laneChunk)
	for {
		count, err := n.from.Read(buffer)
		due := time.Now().Add(n.conn.link.delay())
		if count > 0 && !n.push(queue, chunk{due: due, data: append([]byte(nil), buffer[:count]...)}) {
			return
		}
		if err != nil {
			n.push(queue, chunk{due: due, end: err})
			return
		}
	}
}

func (n *lane) push(queue chan<- chunk, c chunk) bool {
	select {
	case queue <- c:
		return true
	case <-n.conn.ctx.Done():
		return false
	}
}

func (n *lane) await(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return n.conn.ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-n.conn.ctx.Done():
		return false
	}
}

func (n *lane) pass(do func()) bool { return n.gate.pass(n.conn.ctx, do) }

// deliver writes data in slices short enough that the gate can fall between them: the receiver may be
// paused with a full socket.
func (n *lane) deliver(data []byte) error {
	if n.to == nil {
		return nil
	}
	for len(data) > 0 {
		var count int
		var err error
		passed := n.pass(func() {
			_ = n.to.SetWriteDeadline(time.Now().Add(deliverSlice))
			count, err = n.to.Write(data)
		})
		switch {
		case !passed:
			return context.Cause(n.conn.ctx)
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		data = data[count:]
	}
	return nil
}
