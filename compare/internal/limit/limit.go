// Package limit sends the commands of this library and nothing more: the same bytes, as recorded from a
// client, over as many connections as a client has, one a server, with as many commands outstanding as it
// would have goroutines. It asks for no quorum, keeps no lease, and allocates nothing. What it reaches is the
// most that any client that sends these commands can.
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

// A Config is what a loop sends, and where.
type Config struct {
	URLs   []string // of the servers, which must be ready to grant
	Window int      // commands outstanding on each connection
	Fence  bool
	Name   func(i int) string // of lock i, below Window
	// Done is told each acquire and release that a server has answered, and the time they took there. It is
	// called by one goroutine a server.
	Done func(server int, took time.Duration)
}

// A Loop runs until Stop. It has one goroutine a server, which Stop waits for.
type Loop struct {
	stopping atomic.Bool
	wg       sync.WaitGroup
	lanes    []*lane
	release  func() bool // of the watch over ctx
}

// Start connects, and begins. When ctx ends, the connections are closed.
func Start(ctx context.Context, c Config) (*Loop, error) {
	recorded, highest, err := record(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("recording what the library sends: %w", err)
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

// Stop releases what is held, ends the loop and returns what went wrong in it.
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

// A lane is one connection. Its goroutine writes and reads in turn: the server takes all that is written
// before its replies, which are small, are read.
type lane struct {
	loop   *Loop
	index  int
	conn   net.Conn
	slots  []slot
	ballot uint64
	err    error // set when run has returned
}

// A slot is what one goroutine of a client would do: acquire its lock, release it, and again.
type slot struct {
	acquire, release []byte
	ballotAt         int // where in acquire the ballot is; 0: there is none
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

// run answers each reply with the slot's next command. Replies come in the order of the commands, so the
// slots take turns, and no queue is needed to tell whose a reply is.
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
			if err := s.hear(r); err != nil {
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
		n.ballot++ // microseconds, or nearly so: as many digits as the recorded one has until the year 2286
		strconv.AppendUint(s.acquire[s.ballotAt:s.ballotAt], n.ballot, 10)
	}
	s.began = time.Now()
	w.Write(s.acquire)
}

// hear takes the reply to the slot's last command. Both scripts answer a positive integer when all went well.
func (s *slot) hear(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if line[0] != ':' || line[1] == '-' || line[1] == '0' {
		rest, _ := r.Peek(min(r.Buffered(), 200))
		return fmt.Errorf("a script replied %q %q, which is no success", line, rest)
	}
	s.held = !s.held
	return nil
}
