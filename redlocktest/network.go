package redlocktest

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// A network is the way between one node and its clients: connections in memory. Writes never wait. What is in flight
// during a pause or a partition is held, not lost, as in TCP.
type network struct {
	mu          sync.Mutex // guards the rest, and the fields of the pipes
	paused      bool       // requests are held
	partitioned bool       // requests and replies are held
	delay       time.Duration
	pipes       map[*pipe]struct{} // without those that were read to their end
}

// A pipe is one direction of a connection.
type pipe struct {
	network  *network
	requests bool          // else replies
	changed  chan struct{} // capacity 1: wakes the reader

	messages []message // none overtakes another
	closed   bool      // nothing more is written; what was written is still delivered
	broken   error     // nothing more is delivered
}

type message struct {
	due  time.Time
	data []byte
}

// connect returns both ends of a new connection.
func (n *network) connect() (client, server net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	requests, replies := n.newPipe(true), n.newPipe(false)
	return &end{in: replies, out: requests}, &end{in: requests, out: replies}
}

func (n *network) newPipe(requests bool) *pipe {
	p := &pipe{network: n, requests: requests, changed: make(chan struct{}, 1)}
	if n.pipes == nil {
		n.pipes = map[*pipe]struct{}{}
	}
	n.pipes[p] = struct{}{}
	return p
}

// set changes how messages are delivered.
func (n *network) set(change func(*network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
	for p := range n.pipes {
		p.wake()
	}
}

// reset breaks every connection. What is in flight is lost.
func (n *network) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.pipes {
		p.abort(syscall.ECONNRESET)
	}
}

func (p *pipe) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// abort must be called with network.mu held.
func (p *pipe) abort(why error) {
	if p.broken == nil {
		p.broken = why
	}
	p.messages = nil
	delete(p.network.pipes, p)
	p.wake()
}

func (p *pipe) write(data []byte) (int, error) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	switch {
	case p.closed:
		return 0, net.ErrClosed
	case p.broken != nil:
		return 0, &net.OpError{Op: "write", Net: "memory", Err: syscall.ECONNRESET}
	}
	p.messages = append(p.messages, message{time.Now().Add(p.network.delay), append([]byte(nil), data...)})
	p.wake()
	return len(data), nil
}

// read waits for data. One goroutine at a time may call it.
func (p *pipe) read(data []byte) (int, error) {
	for {
		n, wait, err := p.take(data)
		if n > 0 || err != nil {
			return n, err
		}
		if wait == 0 {
			<-p.changed
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-p.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take returns what is due, or how long until something is; 0 means until a change.
func (p *pipe) take(data []byte) (n int, wait time.Duration, err error) {
	network := p.network
	network.mu.Lock()
	defer network.mu.Unlock()
	switch {
	case p.broken != nil:
		return 0, 0, &net.OpError{Op: "read", Net: "memory", Err: p.broken}
	case network.partitioned || network.paused && p.requests:
		return 0, 0, nil
	case len(p.messages) == 0 && p.closed:
		delete(network.pipes, p)
		return 0, 0, io.EOF
	case len(p.messages) == 0:
		return 0, 0, nil
	}
	first := &p.messages[0]
	if wait := time.Until(first.due); wait > 0 {
		return 0, wait, nil
	}
	n = copy(data, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		p.messages = p.messages[1:]
	}
	return n, 0, nil
}

// An end is one end of a connection.
type end struct{ in, out *pipe }

func (e *end) Read(data []byte) (int, error)  { return e.in.read(data) }
func (e *end) Write(data []byte) (int, error) { return e.out.write(data) }

// Close lets what was written arrive, and reads no more.
func (e *end) Close() error {
	e.out.network.mu.Lock()
	defer e.out.network.mu.Unlock()
	e.out.closed = true
	e.out.wake()
	e.in.abort(net.ErrClosed)
	return nil
}

func (e *end) LocalAddr() net.Addr              { return address{} }
func (e *end) RemoteAddr() net.Addr             { return address{} }
func (e *end) SetDeadline(time.Time) error      { return nil }
func (e *end) SetReadDeadline(time.Time) error  { return nil }
func (e *end) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }
