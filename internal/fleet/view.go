package fleet

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/internal/fleet/server"
)

// A View is a TCP proxy to a node for one client. It can be cut, or redirected to another node, without an effect on
// other clients. It is in front of the node's own link, if there is one. Like the link it refuses connections while the
// server is down, and ends with the fleet. Its methods may be called concurrently.
type View struct {
	link *link
	node atomic.Pointer[Node] // its target; changed only by Lead
}

// NewView opens a View of the node. It exists until the fleet is closed.
func (n *Node) NewView() (*View, error) {
	v := &View{link: new(link)}
	v.node.Store(n)
	if err := v.link.prepare(func() server.Address { return v.node.Load().front() }); err != nil {
		return nil, fmt.Errorf("%s: view: %w", n.name, err)
	}
	return v, n.addView(v)
}

// front is the address for clients.
func (n *Node) front() server.Address {
	if n.link != nil {
		return n.link.address()
	}
	return n.backend.Address()
}

// URL returns the URL for the client. It does not change when the view is redirected.
func (v *View) URL() string { return v.link.address().URL() }

// Cut holds back everything in both directions, like [Node.Cut].
func (v *View) Cut() { v.link.cut(CutBoth) }

// CutReplies lets requests arrive and be executed, but holds back the replies, like [Node.CutReplies].
func (v *View) CutReplies() { v.link.cut(CutReplies) }

// Heal ends Cut and CutReplies. What was held back is delivered.
func (v *View) Heal() { v.link.cut(Flowing) }

// Delay delays everything by d in each direction. It replaces an earlier Delay; 0 ends it.
func (v *View) Delay(d time.Duration) { v.link.setDelay(max(d, 0)) }

// Lead redirects the view to another node, as a failover or a replaced machine does. Connections to the former node
// end, and new ones go to the other node.
func (v *View) Lead(to *Node) error {
	v.node.Load().dropView(v)
	v.node.Store(to)
	v.link.hangUp()
	return to.addView(v)
}

func (n *Node) addView(v *View) error {
	n.viewsMu.Lock()
	defer n.viewsMu.Unlock()
	if n.viewsClosed {
		v.link.close()
		return fmt.Errorf("%s: view: %w", n.name, errClosed)
	}
	if n.views == nil {
		n.views = map[*View]struct{}{}
	}
	n.views[v] = struct{}{}
	if !n.backend.Alive() {
		return nil // Start opens it
	}
	if err := v.link.up(); err != nil {
		return fmt.Errorf("%s: view: %w", n.name, err)
	}
	return nil
}

func (n *Node) dropView(v *View) {
	n.viewsMu.Lock()
	delete(n.views, v)
	n.viewsMu.Unlock()
	v.link.down()
}

// openViews makes the views accept connections. The caller checks whether the server has died meanwhile.
func (n *Node) openViews() error {
	n.viewsMu.Lock()
	defer n.viewsMu.Unlock()
	var err error
	for v := range n.views {
		v.link.down() // a view that was redirected here at this moment is already up
		err = errors.Join(err, v.link.up())
	}
	return err
}

func (n *Node) shutViews() {
	n.viewsMu.Lock()
	defer n.viewsMu.Unlock()
	for v := range n.views {
		v.link.down()
	}
}

func (n *Node) closeViews() {
	n.viewsMu.Lock()
	views := n.views
	n.views, n.viewsClosed = nil, true
	n.viewsMu.Unlock()
	for v := range views {
		v.link.close()
	}
}

// hangUp ends every connection.
func (l *link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.end()
	}
}
