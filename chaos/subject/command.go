package subject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Command is a mutex under test that is a program, in any language. The program is one client: it runs once for each, with
// the variables REDLOCK_CHAOS_URLS (redis:// URLs, separated by commas), REDLOCK_CHAOS_CLIENT (the client's number, from 1)
// and REDLOCK_CHAOS_TTL_MS in its environment. It reads requests from its standard input and writes replies to its standard
// output, a line of JSON each: see command.schema.json and docs/failover.md. When its input ends it ends too, within
// three seconds, or is killed with its process group.
//
// What the program does not say is left out, as with [Functions]. A program that ends early, or writes a line that is no
// reply, is an error of Open, or aborts the run.
type Command struct {
	Line   string    // what sh -c runs
	Stderr io.Writer // receives what the programs write to their standard error, with the client before each line. Its Write may be called concurrently. Default: os.Stderr
}

// Name returns the line.
func (s Command) Name() string { return s.Line }

// HasOwnClock returns true: the wall clock of a program cannot be set.
func (Command) HasOwnClock() bool { return true }

// HasOwnClock reports whether the subject reads a wall clock that is not that of Options.Clock. It asks the subject's
// method HasOwnClock() bool; without one the answer is no.
func HasOwnClock(s Subject) bool {
	own, ok := s.(interface{ HasOwnClock() bool })
	return ok && own.HasOwnClock()
}

const (
	startPatience   = 30 * time.Second // for the first reply: an interpreter may start slowly
	answerPatience  = 10 * time.Second // for what needs no waiting
	latePatience    = 3 * time.Second  // for the reply to an acquire whose time is over
	closePatience   = 3 * time.Second  // for a program whose input has ended
	defaultPatience = 30 * time.Second // for an acquire whose context has no deadline
)

// Open starts the program, and lets it acquire and release a lock that nobody else wants. Whether it gets that lock does
// not matter: the program speaks.
func (s Command) Open(ctx context.Context, o Options) (Client, error) {
	for _, url := range o.URLs {
		if !strings.HasPrefix(url, "redis://") {
			return nil, fmt.Errorf("%q: a command can be given redis:// URLs only", url)
		}
	}
	p, err := s.start(o)
	if err != nil {
		return nil, fmt.Errorf("start of the command: %w", err)
	}
	c := &commandClient{
		options: o, process: p, ended: make(chan struct{}), calls: map[uint64]*call{}, leases: map[string]*commandLease{},
	}
	go c.read()
	ctx, done := context.WithTimeout(ctx, startPatience)
	defer done()
	r, err := c.ask(ctx, request{Op: "acquire", Name: fmt.Sprintf("chaos/open-%d", o.Client), TimeoutMillis: 1000})
	if err == nil && r.granted() {
		_ = r.held.Release(ctx)
		err = c.whyBroken()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("the command did not answer its first request in time")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.mu.Lock()
	c.open = true
	c.mu.Unlock()
	return c, nil
}

// A commandClient is a program that runs. Its reading goroutine ends when the program's output does; Close waits for it.
type commandClient struct {
	options   Options
	process   *process
	ended     chan struct{}  // closed when nothing is read from the program any more
	returning sync.WaitGroup // of locks that were granted too late; Close waits for them
	closing   sync.Once

	mu     sync.Mutex // guards the rest; nothing waits under it
	last   uint64     // the number of the last request
	calls  map[uint64]*call
	leases map[string]*commandLease // those that are not released
	open   bool                     // from the end of Open to Close
	broken error                    // why nothing can be asked any more
}

// A call waits for its reply.
type call struct {
	op       string
	answered chan reply // has room for the reply
	left     bool       // nobody waits any more; guarded by mu of the client
}

// ask sends a request and waits for its reply until ctx ends.
func (c *commandClient) ask(ctx context.Context, r request) (reply, error) {
	waiting := &call{op: r.Op, answered: make(chan reply, 1)}
	c.mu.Lock()
	c.last++
	r.ID = c.last
	err := c.broken
	if err == nil {
		c.calls[r.ID] = waiting
	}
	c.mu.Unlock()
	if err != nil {
		return reply{}, err
	}
	if err := c.process.send(r); err != nil {
		c.unread(err)
		return reply{}, c.whyBroken()
	}
	select {
	case got := <-waiting.answered:
		return got, nil
	case <-c.ended:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case got := <-waiting.answered: // just now
		return got, nil
	default:
	}
	waiting.left = true
	if c.broken != nil {
		return reply{}, c.broken
	}
	return reply{}, fmt.Errorf("no reply to %s: %w", r.Op, ctx.Err())
}

// whyBroken is why nothing can be asked any more; nil: it can.
func (c *commandClient) whyBroken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// unread finds out why a request could not be written: mostly because the program has ended.
func (c *commandClient) unread(err error) {
	if c.whyBroken() != nil {
		return
	}
	timer := time.NewTimer(drainPatience)
	defer timer.Stop()
	select {
	case <-c.ended:
	case <-timer.C:
		c.fail(fmt.Errorf("the command does not read its standard input: %w", err))
	}
}

// fail ends the program, because nothing that it says could be understood any more. The first reason counts.
func (c *commandClient) fail(why error) {
	c.mu.Lock()
	first, open := c.broken == nil, c.open
	if first {
		c.broken = why
	}
	c.mu.Unlock()
	c.process.kill()
	if first && open && c.options.Fail != nil {
		c.options.Fail(fmt.Errorf("client %d: %w", c.options.Client, why))
	}
}

// read takes in what the program writes, until it ends.
func (c *commandClient) read() {
	defer close(c.ended)
	lines := c.process.lines()
	for lines.Scan() {
		if err := c.receive(lines.Bytes()); err != nil {
			c.fail(err)
			break
		}
	}
	c.fail(c.process.end(lines.Err()))
}

// receive takes in one line. An error means that it is no reply.
func (c *commandClient) receive(line []byte) error {
	m, err := parseMessage(line)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Lost != "" {
		if l := c.leases[m.Lost]; l != nil { // else it was released meanwhile
			l.lose()
		}
		return nil
	}
	waiting := c.calls[m.ID]
	if waiting == nil {
		return wrongLine(line, fmt.Errorf("id %d was answered before, or never asked", m.ID))
	}
	if err := m.answers(waiting.op); err != nil {
		return wrongLine(line, err)
	}
	delete(c.calls, m.ID)
	switch {
	case !waiting.left:
		if waiting.op == "acquire" && m.granted() { // here, so that a lost that follows finds it
			m.held = &commandLease{client: c, reply: m.reply, lost: make(chan struct{})}
			c.leases[m.Lease] = m.held
		}
		waiting.answered <- m.reply
	case waiting.op == "acquire" && m.granted() && c.broken == nil: // nobody believes in it
		c.returning.Go(func() {
			ctx, done := context.WithTimeout(context.Background(), answerPatience)
			defer done()
			_, _ = c.ask(ctx, request{Op: "release", Lease: m.Lease}) // if this fails, the TTL ends it
		})
	}
	return nil
}

// Acquire waits a little longer than ctx: a reply that is late is better than none. A context that is cancelled ends the
// wait at once.
func (c *commandClient) Acquire(ctx context.Context, name string) (Lease, error) {
	began := time.Now()
	patience := defaultPatience
	if deadline, ok := ctx.Deadline(); ok {
		patience = max(0, deadline.Sub(began))
	}
	waiting, done := context.WithTimeout(context.WithoutCancel(ctx), patience+latePatience)
	defer done()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			done()
		}
	})()
	r, err := c.ask(waiting, request{Op: "acquire", Name: name, TimeoutMillis: millis(patience)})
	switch {
	case err != nil:
		return nil, err
	case r.Error != "":
		return nil, errors.New(r.Error)
	case !r.granted():
		return nil, ErrRefused
	}
	r.held.until = began.Add(c.options.TTL)
	return r.held, nil
}

// Close ends the program's input, so that it ends, and kills it if it does not.
func (c *commandClient) Close() error {
	c.closing.Do(func() {
		c.mu.Lock()
		c.open = false
		if c.broken == nil {
			c.broken = errors.New("the client is closed")
		}
		c.mu.Unlock()
		c.process.close()
	})
	<-c.ended
	c.returning.Wait()
	return nil
}
