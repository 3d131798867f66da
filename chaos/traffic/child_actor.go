package traffic

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/subject"
)

// A ChildActor is a client in a separate process, which can be stopped and killed.
type ChildActor struct {
	ID  int
	log *Log
	cmd *exec.Cmd
	in  io.WriteCloser
	out *os.File

	replies *json.Decoder
	exited  chan struct{}    // closed when the process has ended and was waited for
	state   *os.ProcessState // how it ended; set before exited is closed
	zero    int64            // the machine's monotonic clock when the log began

	op      uint64
	guarded *Guarded
	want    subject.Want
	until   int64
	fence   uint64
	token   string
	seen    [2]int64
}

// ChildAvailable returns an error if this system cannot stop a process and notice that it has stopped.
func ChildAvailable() error { return childAvailable() }

// A ChildSpec describes a child.
type ChildSpec struct {
	Command []string // it calls ServeChild
	Subject string
	URLs    []string
	TTL     time.Duration
	Durable bool
}

// childPatience bounds what a child does without waiting.
const childPatience = 10 * time.Second

// StartChild starts the process and opens its client. It ends with Close.
func StartChild(id int, log *Log, spec ChildSpec) (*ChildActor, error) {
	if err := childAvailable(); err != nil {
		return nil, err
	}
	if len(spec.Command) == 0 {
		return nil, errors.New("no command for a child process was given")
	}
	c := &ChildActor{ID: id, log: log, exited: make(chan struct{}), zero: monotonic() - int64(log.Since())}
	c.cmd = exec.Command(spec.Command[0], spec.Command[1:]...)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = out.(*os.File) // it supports deadlines
	c.replies = json.NewDecoder(c.out)
	if err := c.start(); err != nil {
		return nil, fmt.Errorf("start of the child process %v: %w", spec.Command, err)
	}
	err = c.send(request{Do: "open", Subject: spec.Subject, URLs: spec.URLs, TTL: int64(spec.TTL), Durable: spec.Durable, Client: id})
	var w reply
	if err == nil {
		w, err = c.receive("opened", childPatience)
	}
	switch {
	case err != nil || w.Told != "opened" && w.Error == "":
		err = fmt.Errorf("%w: does it call traffic.ServeChild? Its command is %q", cmp.Or(err, errors.New("the child answered something else")), spec.Command)
	case w.Told != "opened":
		err = fmt.Errorf("the child did not open the lock: %s", w.Error)
	default:
		return c, nil
	}
	return nil, errors.Join(err, c.Close())
}

// errEnded means that the child ended, and did not say why.
var errEnded = errors.New("the child ended before it answered")

// ended makes of an error of its pipes that the child ended, if it did.
func (c *ChildActor) ended(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	select {
	case <-c.exited:
		return fmt.Errorf("%w (%v)", errEnded, c.state)
	case <-time.After(childPatience):
		return fmt.Errorf("the child closed its input or output, and did not end: %w", err)
	}
}

// start runs the process from a thread that lives as long as the process: when the thread ends, the process is killed.
func (c *ChildActor) start() error {
	tieToUs(c.cmd)
	started := make(chan error, 1)
	go func() { // ends with the process, which Close kills
		runtime.LockOSThread()
		defer close(c.exited)
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.state = reap(c.cmd.Process)
		}
	}()
	return <-started
}

func (c *ChildActor) send(r request) error { return c.ended(json.NewEncoder(c.in).Encode(r)) }

// receive waits for a reply.
func (c *ChildActor) receive(want string, patience time.Duration) (reply, error) {
	_ = c.out.SetReadDeadline(time.Now().Add(patience + childPatience))
	var w reply
	if err := c.replies.Decode(&w); err != nil {
		return w, fmt.Errorf("no reply %q of the child process: %w", want, c.ended(err))
	}
	w.At -= c.zero
	if w.Until != 0 {
		w.Until = max(1, w.Until-c.zero)
		c.until = max(c.until, w.Until)
	}
	return w, nil
}

func (c *ChildActor) event(kind history.Kind) history.Event {
	return history.Event{Kind: kind, Client: c.ID, Op: c.op, Resource: c.guarded.Name, Fence: c.fence, Token: c.token}
}

func (c *ChildActor) read() { c.seen = c.guarded.read(c.log, c.event(history.Read), c.want) }

var (
	// ErrDied means that the child died as requested.
	ErrDied = errors.New("the child died")
	// ErrNotGranted means that the child did not get the lock. It can try again.
	ErrNotGranted = errors.New("the child did not get the lock")
	// ErrLeaseOver means that the child was not stopped, because its lease was over before that. It can be released.
	ErrLeaseOver = errors.New("the child's lease was over before it could be stopped")
)

// Acquire makes the child take the lock. With die, the child dies between two commands that the lock needs, or else as
// soon as it has the lock; Acquire then returns ErrDied. Other errors are ErrNotGranted, or of the child process.
func (c *ChildActor) Acquire(g *Guarded, want subject.Want, patience time.Duration, die bool) error {
	c.op, c.guarded, c.want, c.fence, c.token = c.log.ops.Add(1), g, want, 0, ""
	c.until = 1 // the lease has not been seen valid; 0 would mean that nobody looked
	c.log.Add(g.requested(c.ID, c.op, want))
	err := c.send(request{
		Do: "acquire", Name: g.Name, Reader: want.Reader, Permits: want.Permits, Patience: int64(patience), Die: die,
	})
	if err != nil {
		return err
	}
	w, err := c.receive("granted", patience)
	switch {
	case die && errors.Is(err, errEnded): // it died in a gap, without a reply
		return c.died()
	case err != nil:
		return err
	case w.Told != "granted":
		e := c.event(history.Failed)
		if w.Told == "refused" {
			e.Kind = history.Refused
		}
		e.Error = w.Error
		c.log.Add(e)
		return fmt.Errorf("%w: %s", ErrNotGranted, w.Error)
	}
	c.fence, c.token = w.Fence, w.Token
	c.log.Add(c.event(history.Granted))
	if die {
		return errors.Join(kill(c.cmd.Process), c.died())
	}
	c.read()
	return nil
}

// died waits for the death of the process and records it.
func (c *ChildActor) died() error {
	<-c.exited
	c.log.Add(history.Event{Kind: history.Fault, Client: c.ID, Fault: "kill", Begin: true})
	return ErrDied
}

// StopBeforeWrite makes the child look at its lease and then stop, just before its write. It returns when the child has
// stopped.
func (c *ChildActor) StopBeforeWrite() error {
	if err := c.send(request{Do: "write"}); err != nil {
		return err
	}
	w, err := c.receive("looked", 0)
	if err != nil {
		return err
	}
	if !w.Valid {
		return ErrLeaseOver
	}
	if err := awaitStop(c.cmd.Process); err != nil {
		return err
	}
	c.log.Add(history.Event{Kind: history.Fault, Client: c.ID, Fault: "stop", Begin: true})
	return nil
}

// Continue wakes the child. It writes, and then looks at its lease.
func (c *ChildActor) Continue() (valid bool, err error) {
	if err := wake(c.cmd.Process); err != nil {
		return false, err
	}
	c.log.Add(history.Event{Kind: history.Fault, Client: c.ID, Fault: "stop"})
	if _, err := c.receive("wrote", 0); err != nil {
		return false, err
	}
	switch e := c.event(history.Write); {
	case c.want.IsShared():
		c.read()
	case c.fence != 0:
		c.guarded.fenced.write(c.log, e, c.seen[0]+1)
		fallthrough
	default:
		c.guarded.unfenced.write(c.log, e, c.seen[1]+1)
	}
	w, err := c.receive("looked", 0)
	if err != nil {
		return false, err
	}
	if !w.Valid {
		e := c.event(history.Lost)
		e.Until = c.until
		c.log.Add(e)
	}
	return w.Valid, nil
}

// Release makes the child release the lock.
func (c *ChildActor) Release(patience time.Duration) error {
	if err := c.send(request{Do: "release", Patience: int64(patience)}); err != nil {
		return err
	}
	w, err := c.receive("released", patience)
	if err != nil {
		return err
	}
	// The beginning of the release is known only now. The child stopped believing no later than at its last look.
	e := c.event(history.Release)
	e.Until, e.Untold = c.until, w.Untold
	c.log.Add(e)
	e = c.event(history.Freed)
	e.Error = w.Error
	c.log.Add(e)
	return nil
}

// Close kills the process, even if it is stopped.
func (c *ChildActor) Close() error {
	_ = kill(c.cmd.Process) // it may have died already
	<-c.exited
	_ = c.in.Close()
	return c.out.Close()
}
