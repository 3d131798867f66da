package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Data says what a node that starts finds of its former life.
type Data int

const (
	Empty Data = iota // nothing: keys, scripts and saved files are gone
	Kept              // its RDB or AOF as it was saved; with neither, nothing. See [Node.Save] for embedded
)

func (d Data) String() string {
	if d == Kept {
		return "kept"
	}
	return "empty"
}

// A backend is one server, to be started and ended many times. Node calls all but alive and the two
// addresses one at a time.
type backend interface {
	address() address // where clients, or the link, reach it
	truth() address   // where it can be reached while packet rules cut it off
	start(ctx context.Context, data Data) error
	stop(ctx context.Context) error
	kill() error
	pause() error
	resume() error
	save(ctx context.Context) error
	alive() bool
	clock() clockFile                 // "": it cannot be set
	peerAddress() (host, port string) // by which the fleet's other servers reach it
	cutter() cutter                   // nil: packets cannot be dropped here, use the link
	close() error
}

// A Node is one server of a fleet. Its name and URL are the same for the fleet's whole life. Its methods
// may be called concurrently; those that change it wait for each other.
type Node struct {
	fleet   *Fleet
	name    string
	backend backend
	link    *link // nil without Options.Links

	mu     sync.Mutex // guards what follows, and that one fault is done at a time; held while waiting for the server
	paused bool
	closed bool
	mode   cutMode

	viewsMu     sync.Mutex // guards views; held while their doors open and shut, never while waiting for the server
	views       map[*View]struct{}
	viewsClosed bool
}

func newNode(f *Fleet, i int) (*Node, error) {
	n := &Node{fleet: f, name: fmt.Sprintf("node-%d", i+1)}
	if f.options.Links {
		n.link = new(link)
	}
	var err error
	if n.backend, err = f.launcher.node(n.name, n.gone); err != nil {
		return nil, fmt.Errorf("%s: %w", n.name, err)
	}
	if n.link == nil {
		return n, nil
	}
	if err = n.link.prepare(n.backend.address); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: link: %w", n.name, err), n.backend.close())
	}
	return n, nil
}

// gone closes the door: a dial to a dead server must be refused, not answered by the link.
func (n *Node) gone() {
	if n.link != nil {
		n.link.down()
	}
	n.shutViews()
}

// Name returns "node-1", "node-2" and so on.
func (n *Node) Name() string { return n.name }

// URL returns where clients are to connect: redis://127.0.0.1:port or unix:///path. It goes through the
// link where there is one, and stays the same over stop, kill and restart.
func (n *Node) URL() string {
	return n.front().url()
}

// DirectURL returns a way to the node past the link and past packet rules, for checks that want to see
// what is on the node whatever the network does. It does not help against Pause. It may be a unix:// URL.
func (n *Node) DirectURL() string { return n.backend.truth().url() }

// Dial opens a connection by the way of URL. Each command on it fails after timeout.
func (n *Node) Dial(ctx context.Context, timeout time.Duration) (redis.Conn, error) {
	return n.front().dial(ctx, timeout)
}

// DialDirect opens a connection by the way of DirectURL. Each command on it fails after timeout.
func (n *Node) DialDirect(ctx context.Context, timeout time.Duration) (redis.Conn, error) {
	return n.backend.truth().dial(ctx, timeout)
}

// Alive says whether the server exists. A paused or cut-off one does.
func (n *Node) Alive() bool { return n.backend.alive() }

// do runs one change of the node under its lock, names the node in the error and writes the log line.
func (n *Node) do(what string, change func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	began := time.Now()
	err := change()
	took := time.Since(began).Round(10 * time.Microsecond)
	if err != nil {
		n.fleet.log.printf("%s: %s: failed after %v: %v", n.name, what, took, err)
		return fmt.Errorf("%s: %s: %w", n.name, what, err)
	}
	n.fleet.log.printf("%s: %s (%v)", n.name, what, took)
	return nil
}

var (
	errDown   = errors.New("the node is down")
	errUp     = errors.New("the node is up")
	errClosed = errors.New("the fleet is closed")
)

// Start starts a node that is down and returns when it answers PING. The server has a new run id. A Cut,
// CutReplies or Delay goes on as before; only Heal ends them.
func (n *Node) Start(ctx context.Context, data Data) error {
	ctx, cancel := bounded(ctx, startTimeout)
	defer cancel()
	defer context.AfterFunc(n.fleet.closing, cancel)()
	return n.do("start "+data.String(), func() error {
		switch {
		case n.closed:
			return errClosed
		case n.backend.alive():
			return errUp
		}
		n.paused = false
		if err := n.backend.start(ctx, data); err != nil {
			return err
		}
		// Packet rules are gone with the container. They come back before the link opens the door, so that
		// no client gets through in between.
		if c := n.backend.cutter(); c != nil && n.mode != flowing {
			if err := c.cut(n.mode); err != nil {
				return errors.Join(err, n.backend.kill())
			}
		}
		return n.open()
	})
}

func (n *Node) open() error {
	if n.link != nil {
		if err := n.link.up(); err != nil {
			return errors.Join(err, n.backend.kill())
		}
	}
	if err := n.openViews(); err != nil {
		return errors.Join(err, n.backend.kill())
	}
	if !n.backend.alive() { // it died before up, and its own call of gone came too early
		n.gone()
		return errDied
	}
	return nil
}

// Stop ends the server in the orderly way, with SIGTERM, and returns when it is gone. A paused node is
// resumed for it. A node that is down stays so.
func (n *Node) Stop(ctx context.Context) error {
	ctx, cancel := bounded(ctx, stopTimeout)
	defer cancel()
	return n.end("stop", func() error { return n.backend.stop(ctx) })
}

// Kill ends the server with SIGKILL and returns when it is gone. What it had not read yet is never
// applied, also where it was paused. A node that is down stays so.
func (n *Node) Kill() error { return n.end("kill", n.backend.kill) }

func (n *Node) end(what string, end func() error) error {
	return n.do(what, func() error {
		if !n.backend.alive() {
			return nil
		}
		if err := end(); err != nil {
			return err
		}
		n.paused = false
		return nil
	})
}

// Save writes the dataset to disk, for a later Start with Kept. On an embedded node it takes a copy, which
// Kept brings back; an embedded node that was never saved keeps all it had, as if every write went to an
// AOF. Copies hold strings, hashes, lists, sets and sorted sets with the TTL of the key.
func (n *Node) Save(ctx context.Context) error {
	ctx, cancel := bounded(ctx, stopTimeout)
	defer cancel()
	return n.do("save", func() error {
		if !n.backend.alive() {
			return errDown
		}
		return n.backend.save(ctx)
	})
}

// RunID returns the run id that the server reports, asked by the way of DirectURL.
func (n *Node) RunID(ctx context.Context) (string, error) {
	conn, err := n.DialDirect(ctx, 5*time.Second)
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.name, err)
	}
	defer conn.Close()
	info, err := redis.String(conn.Do("INFO", "server"))
	if err != nil {
		return "", fmt.Errorf("%s: INFO: %w", n.name, err)
	}
	return infoField(info, "run_id"), nil
}

// close ends the node for good. The link goes first: its connections hold no end of the server open.
func (n *Node) close() error {
	return n.do("close", func() error {
		n.closed = true
		n.closeViews()
		if n.link != nil {
			n.link.close()
		}
		return n.backend.close()
	})
}
