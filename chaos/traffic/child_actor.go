package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
)

// A ChildActor is a client in a process of its own, which can be stopped and killed.
type ChildActor struct {
	ID  int
	log *Log
	cmd *exec.Cmd
	in  io.WriteCloser
	out *os.File

	words  *json.Decoder
	exited chan struct{} // closed when the process was waited for
	zero   int64         // the machine's monotonic clock when the log began

	op      uint64
	guarded *Guarded
	until   int64
	fence   uint64
	token   string
	seen    [2]int64
}

// ChildAvailable says whether this system can stop a process and know that it has stopped.
func ChildAvailable() error { return childAvailable() }

// A ChildSpec is what a child is to be.
type ChildSpec struct {
	Command []string // that calls ServeChild
	Subject string
	URLs    []string
	TTL     time.Duration
	Durable bool
}

// childPatience bounds what a child does at once.
const childPatience = 10 * time.Second

// StartChild starts the process and opens its client. It ends with Close.
func StartChild(id int, log *Log, spec ChildSpec) (*ChildActor, error) {
	if err := childAvailable(); err != nil {
		return nil, err
	}
	if len(spec.Command) == 0 {
		return nil, errors.New("no command for a child was given")
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
	c.out = out.(*os.File) // which knows deadlines
	c.words = json.NewDecoder(c.out)
	if err := c.start(); err != nil {
		return nil, fmt.Errorf("start of a child, %v: %w", spec.Command, err)
	}
	err = c.order(order{Do: "open", Subject: spec.Subject, URLs: spec.URLs, TTL: int64(spec.TTL), Durable: spec.Durable, Client: id})
	if err == nil {
		_, err = c.hear("opened", childPatience)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// start runs the process from a thread that lives as long as it does, as it is to die with that thread.
func (c *ChildActor) start() error {
	tieToUs(c.cmd)
	started := make(chan error, 1)
	go func() { // ends with the process, which Close kills
		runtime.LockOSThread()
		defer close(c.exited)
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_, _ = c.cmd.Process.Wait() // and not cmd.Wait, which would close the pipe under its reader
		}
	}()
	return <-started
}

func (c *ChildActor) order(o order) error { return json.NewEncoder(c.in).Encode(o) }

// hear waits for a word.
func (c *ChildActor) hear(want string, patience time.Duration) (word, error) {
	_ = c.out.SetReadDeadline(time.Now().Add(patience + childPatience))
	var w word
	if err := c.words.Decode(&w); err != nil {
		return w, fmt.Errorf("the child was to tell %q: %w", want, err)
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

// ErrDied says that the child died as it was told to.
var ErrDied = errors.New("the child died")

// Acquire has the child take the lock. If it is to die, it does between two commands that the lock needs
// both of, or else as soon as it has the lock; Acquire returns ErrDied then.
func (c *ChildActor) Acquire(g *Guarded, patience time.Duration, die bool) error {
	c.op, c.guarded, c.fence, c.token = c.log.ops.Add(1), g, 0, ""
	c.log.Add(c.event(history.Acquire))
	if err := c.order(order{Do: "acquire", Name: g.Name, Patience: int64(patience), Die: die}); err != nil {
		return err
	}
	w, err := c.hear("granted", patience)
	switch {
	case die && errors.Is(err, io.EOF): // in a gap: nobody was told
		return c.mourn()
	case err != nil:
		return err
	case w.Told != "granted":
		e := c.event(history.Failed)
		if w.Told == "refused" {
			e.Kind = history.Refused
		}
		e.Error = w.Error
		c.log.Add(e)
		return errors.New(w.Error)
	}
	c.fence, c.token = w.Fence, w.Token
	c.log.Add(c.event(history.Granted))
	if die {
		return errors.Join(c.cmd.Process.Kill(), c.mourn())
	}
	c.seen[0] = g.fenced.read(c.log, c.event(history.Read))
	c.seen[1] = g.unfenced.read(c.log, c.event(history.Read))
	return nil
}

// mourn records the death.
func (c *ChildActor) mourn() error {
	<-c.exited
	c.log.Add(history.Event{Kind: history.Fault, Client: c.ID, Fault: "kill", Begin: true})
	return ErrDied
}

// StopBeforeWrite has the child look at its lease and then stop, just before it would write. It returns when
// the child has stopped.
func (c *ChildActor) StopBeforeWrite() error {
	if err := c.order(order{Do: "write"}); err != nil {
		return err
	}
	w, err := c.hear("looked", 0)
	if err != nil {
		return err
	}
	if !w.Valid {
		return errors.New("the child's lease was over before it could be stopped")
	}
	if err := awaitStop(c.cmd.Process); err != nil {
		return err
	}
	c.log.Add(history.Event{Kind: history.Fault, Client: c.ID, Fault: "stop", Begin: true})
	return nil
}

// Continue wakes the child. It writes, and looks at its lease after that.
func (c *ChildActor) Continue() (valid bool, err error) {
	if err := wake(c.cmd.Process); err != nil {
		return false, err
	}
	c.log.Add(history.Event{Kind: history.Fault, Client: c.ID, Fault: "stop"})
	if _, err := c.hear("wrote", 0); err != nil {
		return false, err
	}
	e := c.event(history.Write)
	if c.fence != 0 {
		c.guarded.fenced.write(c.log, e, c.seen[0]+1)
	}
	c.guarded.unfenced.write(c.log, e, c.seen[1]+1)
	w, err := c.hear("looked", 0)
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

// Release has the child let go.
func (c *ChildActor) Release(patience time.Duration) error {
	if err := c.order(order{Do: "release", Patience: int64(patience)}); err != nil {
		return err
	}
	w, err := c.hear("released", patience)
	if err != nil {
		return err
	}
	// That it began to release is known only now; it stopped believing no later than it last looked.
	e := c.event(history.Release)
	e.Until = c.until
	c.log.Add(e)
	e = c.event(history.Freed)
	e.Error = w.Error
	c.log.Add(e)
	return nil
}

// Close ends the process, whether or not it is stopped.
func (c *ChildActor) Close() error {
	_ = c.cmd.Process.Kill() // it may have died already
	<-c.exited
	_ = c.in.Close()
	return c.out.Close()
}
