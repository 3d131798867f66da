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
	laneChunks   = 64                    // chunks in flight per direction; then the sender must wait, as in TCP
	deliverSlice = 20 * time.Millisecond // how long one write may hold a gate open
)

// A linkConn is the connection of one client, and the matching connection to the node.
type linkConn struct {
	link   *link
	client net.Conn
	ctx    context.Context // ends with the connection, and ends its goroutines
	cancel context.CancelFunc

	mu     sync.Mutex // guards server, which end closes
	server net.Conn   // nil until dialled
}

func newLinkConn(l *link, client net.Conn) *linkConn {
	c := &linkConn{link: l, client: client}
	c.ctx, c.cancel = context.WithCancel(l.closing)
	return c
}

// end closes both connections at once. It may be called several times.
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
	defer func() {
		c.end()
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
	}()
	// Accepting the connection does not involve the node. During a cut the node must not see the client either. What
	// the client sends meanwhile stays in its socket, even if it closes.
	if !c.link.requests.pass(c.ctx, func() {}) || !c.dial() {
		c.reset()
		return
	}
	requests := &lane{conn: c, from: c.client, to: c.server, gate: &c.link.requests}
	replies := &lane{conn: c, from: c.server, to: c.client, gate: &c.link.replies, drain: true}
	var wg sync.WaitGroup
	wg.Go(func() {
		// The client has closed its end. Everything that it sent is delivered, and then the node sees the end of file.
		// The connection stays open until the node closes too.
		if err := requests.run(); errors.Is(err, io.EOF) {
			requests.pass(func() { closeWrite(c.server) })
		} else {
			c.end()
		}
	})
	wg.Go(func() {
		_ = replies.run()
		c.end() // a Redis that has closed its end does not read any more
	})
	wg.Wait()
}

func (c *linkConn) dial() bool {
	to := c.link.upstream()
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	server, err := new(net.Dialer).DialContext(ctx, to.Network, to.At)
	if err != nil {
		return false
	}
	c.mu.Lock()
	c.server = server
	c.mu.Unlock()
	if c.ctx.Err() != nil { // end was called before server was set
		_ = server.Close()
		return false
	}
	return true
}

// reset makes the client's next use of the connection fail, as with a server that has ended.
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

// A lane moves bytes in one direction. One goroutine reads them and adds the time at which they are due. The other one
// delivers them at that time, when the gate is open. So a delay does not reduce the throughput.
type lane struct {
	conn     *linkConn
	from, to net.Conn
	gate     *gate
	drain    bool // continue to read after a failed write: lost replies must not stop the requests
}

type chunk struct {
	due  time.Time
	data []byte
	end  error // why this is the last chunk; data is empty then
}

// run returns why the data of the sender ended, after all of it was delivered or dropped.
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
			// The end is held back like the bytes before it: during a cut nobody notices a close.
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

// deliver writes data in short steps, so that the gate can close in between, even if the receiver is paused and its
// socket is full.
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
