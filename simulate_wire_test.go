package redlock_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A link is the way between one client and one node. A fault of the link is one of all its connections.
type link struct {
	seed   uint64
	slow   atomic.Int64                      // the most that one delivery takes, in ns
	lag    [2]atomic.Int64                   // by direction: what each delivery takes beyond that, in ns
	random *rand.Rand                        // of all lanes; nil: each has its own
	heard  func(direction int, bytes []byte) // what was delivered; nil: nobody asks

	mu    sync.Mutex // guards the rest
	made  uint64     // lanes, so that each has a random source of its own
	held  [2]int     // by direction: how many reasons there are to deliver nothing
	lanes map[*lane]struct{}
}

// The two directions of a link.
const (
	requests = iota
	replies
)

func newLink(seed uint64, slow time.Duration) *link {
	l := &link{seed: seed, lanes: map[*lane]struct{}{}}
	l.slow.Store(int64(slow))
	return l
}

// hold stops one direction, or lets it go on. What was written meanwhile is then delivered, late.
func (l *link) hold(direction, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[direction] += by
	for lane := range l.lanes {
		lane.look()
	}
}

// reset breaks every connection. What was on its way is lost.
func (l *link) reset() {
	l.mu.Lock()
	lanes := make([]*lane, 0, len(l.lanes))
	for lane := range l.lanes {
		lanes = append(lanes, lane)
	}
	l.mu.Unlock()
	for _, lane := range lanes {
		lane.end(true)
	}
}

func (l *link) isHeld(direction int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[direction] > 0
}

// connect makes a connection over the link and returns both its ends.
func (l *link) connect() (client, server net.Conn) {
	to, from := newLane(l, requests), newLane(l, replies)
	return &wire{in: from, out: to}, &wire{in: to, out: from}
}

// A lane is one direction of one connection. Bytes are delivered in order, late, and also after the sender has closed.
type lane struct {
	link      *link
	direction int
	changed   chan struct{} // capacity 1

	mu      sync.Mutex // guards the rest; nothing but the random source and link.heard is called under it
	random  *rand.Rand
	parcels []parcel
	closed  bool // no more is written; what was is still delivered
	broken  bool // nothing more is delivered
}

type parcel struct {
	at    time.Time
	bytes []byte
}

func newLane(l *link, direction int) *lane {
	lane := &lane{link: l, direction: direction, changed: make(chan struct{}, 1)}
	l.mu.Lock()
	l.made++
	if lane.random = l.random; lane.random == nil {
		lane.random = rand.New(rand.NewPCG(l.seed, l.made))
	}
	l.lanes[lane] = struct{}{}
	l.mu.Unlock()
	return lane
}

func (l *lane) look() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *lane) end(broken bool) {
	l.mu.Lock()
	l.closed = true
	l.broken = l.broken || broken
	l.mu.Unlock()
	l.look()
}

func (l *lane) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Mostly fast, and now and then as slow as the link allows.
	late := l.random.Float64()
	at := time.Now().Add(time.Duration(late*late*late*float64(l.link.slow.Load())) + time.Duration(l.link.lag[l.direction].Load()))
	if l.closed {
		return 0, net.ErrClosed
	}
	if n := len(l.parcels); n > 0 && at.Before(l.parcels[n-1].at) {
		at = l.parcels[n-1].at
	}
	l.parcels = append(l.parcels, parcel{at, append([]byte(nil), p...)})
	l.look()
	return len(p), nil
}

func (l *lane) Read(p []byte) (int, error) { // by one goroutine
	for {
		n, wait, err := l.take(p)
		if err != nil {
			l.leave()
		}
		if n > 0 || err != nil {
			return n, err
		}
		if wait == 0 { // until something changes
			<-l.changed
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-l.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take returns what is due, or how long until something is due; 0: not known.
func (l *lane) take(p []byte) (n int, wait time.Duration, err error) {
	held := l.link.isHeld(l.direction)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken:
		return 0, 0, errors.New("connection reset")
	case held:
		return 0, 0, nil
	case len(l.parcels) == 0 && l.closed:
		return 0, 0, io.EOF
	case len(l.parcels) == 0:
		return 0, 0, nil
	}
	first := &l.parcels[0]
	if wait := time.Until(first.at); wait > 0 {
		return 0, wait, nil
	}
	n = copy(p, first.bytes)
	if l.link.heard != nil {
		l.link.heard(l.direction, first.bytes[:n])
	}
	if first.bytes = first.bytes[n:]; len(first.bytes) == 0 {
		l.parcels = l.parcels[1:]
	}
	return n, 0, nil
}

func (l *lane) leave() {
	l.link.mu.Lock()
	defer l.link.mu.Unlock()
	delete(l.link.lanes, l)
}

// A wire is one end of a connection.
type wire struct{ in, out *lane }

func (w *wire) Read(p []byte) (int, error)  { return w.in.Read(p) }
func (w *wire) Write(p []byte) (int, error) { return w.out.Write(p) }

// Close lets what was written arrive, as TCP does, and reads no more.
func (w *wire) Close() error {
	w.out.end(false)
	w.in.end(true)
	return nil
}

func (w *wire) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "wire", Net: "unix"} }
func (w *wire) RemoteAddr() net.Addr             { return w.LocalAddr() }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
