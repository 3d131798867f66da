package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/fleet/server"
)

// Data says which data a node has after its start.
type Data int

const (
	Empty Data = iota // none: keys, scripts and saved files are deleted
	Kept              // its RDB or AOF, if it has one; see [Node.Save] for embedded nodes
)

func (d Data) String() string {
	if d == Kept {
		return "kept"
	}
	return "empty"
}

// A Node is one server of a fleet. Its name and URL never change. Its methods may be called concurrently; those that
// change the node wait for each other.
type Node struct {
	fleet   *Fleet
	name    string
	backend Backend
	link    *link // nil without Options.Links

	mu     sync.Mutex // guards what follows, and that one fault is applied at a time; held while waiting for the server
	paused bool
	closed bool
	mode   CutMode

	viewsMu     sync.Mutex // guards views; held while they go up and down, never while waiting for the server
	views       map[*View]struct{}
	viewsClosed bool
}

func newNode(f *Fleet, i int) (*Node, error) {
	n := &Node{fleet: f, name: nameOf(i)}
	if f.options.Links {
		n.link = new(link)
	}
	var err error
	if n.backend, err = f.launcher.Node(n.name, n.gone); err != nil {
		return nil, fmt.Errorf("%s: %w", n.name, err)
	}
	if n.link == nil {
		return n, nil
	}
	if err = n.link.prepare(n.backend.Address); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: link: %w", n.name, err), n.backend.Close())
	}
	return n, nil
}

// gone makes the link and the views refuse connections: a dial to a dead server must fail.
func (n *Node) gone() {
	if n.link != nil {
		n.link.down()
	}
	n.shutViews()
}

// nameOf is the name of the node with this index.
func nameOf(i int) string { return fmt.Sprintf("node-%d", i+1) }

// Names returns the names of the first n nodes of any fleet.
func Names(n int) (names []string) {
	for i := range n {
		names = append(names, nameOf(i))
	}
	return names
}

// Name returns "node-1", "node-2" and so on.
func (n *Node) Name() string { return n.name }

// URL returns the URL for clients: redis://127.0.0.1:port or unix:///path. It leads through the link if there is one,
// and does not change over stop, kill and restart.
func (n *Node) URL() string {
	return n.front().URL()
}

// DirectURL returns a URL that bypasses the link and packet rules, for checks that must see the node whatever the
// network does. It does not bypass Pause. It may be a unix:// URL.
func (n *Node) DirectURL() string { return n.backend.Direct().URL() }

// Dial connects to URL. Each command on the connection fails after timeout.
func (n *Node) Dial(ctx context.Context, timeout time.Duration) (redis.Conn, error) {
	return n.front().Dial(ctx, timeout)
}

// DialDirect connects to DirectURL. Each command on the connection fails after timeout.
func (n *Node) DialDirect(ctx context.Context, timeout time.Duration) (redis.Conn, error) {
	return n.backend.Direct().Dial(ctx, timeout)
}

// Alive reports whether the server is running, even if it is paused or cut off.
func (n *Node) Alive() bool { return n.backend.Alive() }

// do makes one change of the node under its mutex. It adds the name of the node to the error, and logs the change.
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

// Start starts a node that is down, and returns when it answers PING. The server has a new run id. A Cut, CutReplies or
// Delay continues; only Heal ends them.
func (n *Node) Start(ctx context.Context, data Data) error {
	ctx, cancel := bounded(ctx, startTimeout)
	defer cancel()
	defer context.AfterFunc(n.fleet.closing, cancel)()
	return n.do("start "+data.String(), func() error {
		switch {
		case n.closed:
			return errClosed
		case n.backend.Alive():
			return errUp
		}
		n.paused = false
		if err := n.backend.Start(ctx, data); err != nil {
			return err
		}
		// Packet rules ended with the container. They are added again before the link goes up, so that no client gets
		// through in between.
		if c := n.backend.Cutter(); c != nil && n.mode != Flowing {
			if err := c.Cut(n.mode); err != nil {
				return errors.Join(err, n.backend.Kill())
			}
		}
		return n.open()
	})
}

func (n *Node) open() error {
	if n.link != nil {
		if err := n.link.up(); err != nil {
			return errors.Join(err, n.backend.Kill())
		}
	}
	if err := n.openViews(); err != nil {
		return errors.Join(err, n.backend.Kill())
	}
	if !n.backend.Alive() { // it died before the link was up, so its call of gone came too early
		n.gone()
		return server.ErrDied
	}
	return nil
}

// Stop ends the server with SIGTERM, and returns when it has ended. A paused node is resumed. A node that is down stays
// down.
func (n *Node) Stop(ctx context.Context) error {
	ctx, cancel := bounded(ctx, server.StopTimeout)
	defer cancel()
	return n.end("stop", func() error { return n.backend.Stop(ctx) })
}

// Kill ends the server with SIGKILL, and returns when it has ended. Requests that it has not read are never executed,
// even if it was paused. A node that is down stays down.
func (n *Node) Kill() error { return n.end("kill", n.backend.Kill) }

func (n *Node) end(what string, end func() error) error {
	return n.do(what, func() error {
		if !n.backend.Alive() {
			return nil
		}
		if err := end(); err != nil {
			return err
		}
		n.paused = false
		return nil
	})
}

// Save writes the data to disk, for a later Start with Kept. On an embedded node it makes a copy, which Kept restores.
// An embedded node that was never saved loses nothing, as if every write went to an AOF. Copies contain strings,
// hashes, lists, sets and sorted sets, with the TTLs of their keys.
func (n *Node) Save(ctx context.Context) error {
	ctx, cancel := bounded(ctx, server.StopTimeout)
	defer cancel()
	return n.do("save", func() error {
		if !n.backend.Alive() {
			return errDown
		}
		return n.backend.Save(ctx)
	})
}

// RunID asks the server for its run id, at DirectURL.
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

// close ends the node for good. The link is closed first, so that its connections do not keep the server open.
func (n *Node) close() error {
	return n.do("close", func() error {
		n.closed = true
		n.closeViews()
		if n.link != nil {
			n.link.close()
		}
		return n.backend.Close()
	})
}

// infoField returns one field of the reply to INFO, or "".
func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), field+":"); ok {
			return value
		}
	}
	return ""
}
