// Package limit sends the commands of this library and nothing more: the same bytes, recorded from a client, over one
// connection per server, with as many outstanding commands as a client would have goroutines. It waits for no quorum,
// holds no lease, and allocates nothing. Its result is the upper limit for any client that sends these commands.
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
	loop   *Loop
	index  int
	conn   net.Conn
	slots  []slot
	ballot uint64
	err    error // set when run has returned
}

// A slot does what one goroutine of a client would do: acquire its lock, release it, and repeat.
type slot struct {
	acquire, release []byte
	ballotAt         int // position of the ballot in acquire; 0: there is none
	began            time.Time
	held             bool
	over             bool
}

func dial(ctx context.Context, server string) (net.Conn, error) {
	network, address, err := split(server)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, address)
}

// run answers each reply with the slot's next command. Replies come in the order of the commands, so the slots take
// turns, and no queue is needed to match replies with slots.
func (n *lane) run(done func(server int, took time.Duration)) error {
	r, w := bufio.NewReaderSize(n.conn, 1<<16), bufio.NewWriterSize(n.conn, 1<<16)
	for i := range n.slots {
		n.begin(&n.slots[i], w)
	}
	for left := len(n.slots); left > 0; {
		for i := range n.slots {
			s := &n.slots[i]
			if s.over {
				continue
			}
			if r.Buffered() == 0 {
				if err := w.Flush(); err != nil {
					return err
				}
			}
			if err := s.receive(r); err != nil {
				return err
			}
			if s.held {
				w.Write(s.release) // a bufio.Writer keeps its error for Flush
				continue
			}
			done(n.index, time.Since(s.began))
			if n.loop.stopping.Load() {
				s.over = true
				left--
				continue
			}
			n.begin(s, w)
		}
	}
	return nil
}

// begin sends an acquire with a ballot that this server has not seen.
func (n *lane) begin(s *slot, w *bufio.Writer) {
	if s.ballotAt != 0 {
		n.ballot++ // about microseconds, so it has as many digits as the recorded one until the year 2286
		strconv.AppendUint(s.acquire[s.ballotAt:s.ballotAt], n.ballot, 10)
	}
	s.began = time.Now()
	w.Write(s.acquire)
}

// receive reads the reply to the slot's last command. Both scripts reply a positive integer on success.
func (s *slot) receive(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if line[0] != ':' || line[1] == '-' || line[1] == '0' {
		rest, _ := r.Peek(min(r.Buffered(), 200))
		return fmt.Errorf("a script replied %q %q, which is not success", line, rest)
	}
	s.held = !s.held
	return nil
}
