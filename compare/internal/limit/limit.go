// Package limit sends the commands of this library and nothing more: to the same bare quorum of servers for each lock,
// over one connection per server, with as many outstanding commands as a client would have goroutines. It waits for no
// quorum, holds no lease, and allocates nothing. Its result is the upper limit for any client that sends these commands.
package limit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A Config says what a loop sends, and where.
type Config struct {
	URLs   []string // of the servers, which must be ready to grant
	Window int      // commands outstanding on each connection
	Fence  bool
	Name   func(i int) string // of lock i, below Window
	// Done is called for each pair of acquire and release that a server has answered, with the time they took. It is
	// called by one goroutine per server.
	Done func(server int, took time.Duration)
}

// Quorum is how many servers the library asks for each lock.
func (c Config) Quorum() int { return len(c.URLs)/2 + 1 }

// A Loop runs until Stop. It has one goroutine per server; Stop waits for them.
type Loop struct {
	stopping atomic.Bool
	wg       sync.WaitGroup
	lanes    []*lane
	release  func() bool // stops watching ctx
}

// Start connects and begins. When ctx ends, it closes the connections.
func Start(ctx context.Context, c Config) (*Loop, error) {
	recorded, highest, err := record(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("record what the library sends: %w", err)
	}
	l := &Loop{release: func() bool { return true }}
	for i, server := range c.URLs {
		lane := &lane{loop: l, index: i, slots: recorded[i], ballot: max(highest, uint64(time.Now().UnixMicro()))}
		if lane.conn, err = dial(ctx, server); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", server, err), l.Stop())
		}
		l.lanes = append(l.lanes, lane)
	}
	l.release = context.AfterFunc(ctx, func() {
		for _, lane := range l.lanes {
			lane.conn.Close()
		}
	})
	for _, lane := range l.lanes {
		l.wg.Go(func() { lane.err = lane.run(c.Done) })
	}
	return l, nil
}

// Stop releases all locks, ends the loop and returns its errors.
func (l *Loop) Stop() error {
	l.stopping.Store(true)
	l.wg.Wait()
	l.release()
	var errs []error
	for _, lane := range l.lanes {
		lane.conn.Close()
		errs = append(errs, lane.err)
	}
	return errors.Join(errs...)
}

// A lane is one connection. Its goroutine alternates between writing and reading. This cannot block: replies are small,
// so the server accepts everything that is written before its replies are read.
type lane struct {
	loop     *Loop
	index    int
	conn     net.Conn
	w        *bufio.Writer
	slots    []slot
	ballot   uint64
	expected []int // replies to come: a slot, or vouching
	waiting  []int // slots whose acquire was answered, and not vouched for
	unsure   int   // acquires written since the marker was last asked for
	err      error // set when run has returned
}

// A slot does what one goroutine of a client would do: acquire its lock, release it, and repeat.
type slot struct {
	acquire, release []byte
	ballotAt         int // position of the ballot in acquire; 0: there is none
	began            time.Time
	held             bool
}

// vouching stands for the replies to vouch.
const vouching = -1

// vouch is what a flush with acquires in light form ends with: the marker and the time.
const vouch = "*2\r\n$3\r\nGET\r\n$12\r\nredlock:node\r\n*1\r\n$4\r\nTIME\r\n"

func dial(ctx context.Context, server string) (net.Conn, error) {
	network, address, err := split(server)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, address)
}

// Read sends all that is written before it reads, and so before it may block. A reply may wait for the rest of a command
// of which the writer has sent the beginning.
func (n *lane) Read(p []byte) (int, error) {
	if n.unsure > 0 {
		n.w.WriteString(vouch) // a bufio.Writer keeps its error for Flush
		n.expected, n.unsure = append(n.expected, vouching), 0
	}
	if err := n.w.Flush(); err != nil {
		return 0, err
	}
	return n.conn.Read(p)
}

// run answers each reply with the slot's next command.
func (n *lane) run(done func(server int, took time.Duration)) error {
	r := bufio.NewReaderSize(n, readSize)
	n.w = bufio.NewWriterSize(n.conn, writeSize)
	for i := range n.slots {
		n.begin(i)
	}
	for left := len(n.slots); left > 0; {
		i := n.expected[0]
		if n.expected = n.expected[1:]; i == vouching {
			if err := n.vouched(r); err != nil {
				return err
			}
			continue
		}
		s := &n.slots[i]
		if err := s.receive(r); err != nil {
			return err
		}
		if s.held {
			n.waiting = append(n.waiting, i)
			continue
		}
		done(n.index, time.Since(s.began))
		if n.loop.stopping.Load() {
			left--
			continue
		}
		n.begin(i)
	}
	return nil
}

// readSize and writeSize are those of the buffers of a lane. A test makes them smaller.
var readSize, writeSize = 1 << 16, 1 << 16

// begin sends an acquire with a ballot that this server has not seen.
func (n *lane) begin(i int) {
	s := &n.slots[i]
	if s.ballotAt != 0 {
		n.ballot++ // about microseconds, so it has as many digits as the recorded one until the year 2286
		strconv.AppendUint(s.acquire[s.ballotAt:s.ballotAt], n.ballot, 10)
	}
	s.began = time.Now()
	n.w.Write(s.acquire)
	n.expected = append(n.expected, i)
	n.unsure++
}

// end sends the release.
func (n *lane) end(i int) {
	n.w.Write(n.slots[i].release)
	n.expected = append(n.expected, i)
}

// vouched takes the marker and the time, and releases what they vouch for.
func (n *lane) vouched(r *bufio.Reader) error {
	const lines = 2 + 5 // a bulk string, and an array of two
	for range lines {
		if _, err := r.ReadSlice('\n'); err != nil {
			return err
		}
	}
	for _, i := range n.waiting {
		n.end(i)
	}
	n.waiting = n.waiting[:0]
	return nil
}

// receive reads the replies to the slot's last commands: OK and 1, or a positive integer from the release.
func (s *slot) receive(r *bufio.Reader) error {
	expect := []byte{':'}
	if !s.held {
		expect = []byte("+:")
		if s.ballotAt == 0 {
			expect = expect[:1]
		}
	}
	for _, kind := range expect {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line[0] != kind || line[1] == '-' || line[1] == '0' {
			rest, _ := r.Peek(min(r.Buffered(), 200))
			return fmt.Errorf("a server replied %q %q, which is not success", line, rest)
		}
	}
	s.held = !s.held
	return nil
}
