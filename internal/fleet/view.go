package fleet

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A View is a way to a node that one client has for itself: a TCP proxy that can be cut, or led to another
// node, while the others notice nothing. It lies before the node's own link, if there is one. Like that it
// refuses dials while the server is down, and ends with the fleet. Its methods may be called concurrently.
type View struct {
	link *link
	node atomic.Pointer[Node] // where it leads; changed by Lead alone
}

// NewView opens a way to the node. It is there until the fleet is closed.
func (n *Node) NewView() (*View, error) {
	v := &View{link: new(link)}
	v.node.Store(n)
	if err := v.link.prepare(func() address { return v.node.Load().front() }); err != nil {
		return nil, fmt.Errorf("%s: view: %w", n.name, err)
	}
	return v, n.addView(v)
}

// front is where clients reach the node.
func (n *Node) front() address {
	if n.link != nil {
		return n.link.address()
	}
	return n.backend.address()
}

// URL returns where the client is to connect. It stays the same wherever the view leads.
func (v *View) URL() string { return v.link.address().url() }

// Cut holds back everything, both ways, as [Node.Cut] does.
func (v *View) Cut() { v.link.cut(cutBoth) }

// CutReplies lets requests arrive, and be applied, but no reply leave, as [Node.CutReplies] does.
func (v *View) CutReplies() { v.link.cut(cutReplies) }

// Heal ends Cut and CutReplies. What was held flows on.
func (v *View) Heal() { v.link.cut(flowing) }

// Delay makes everything take d longer in each direction. It replaces an earlier Delay; 0 ends it.
func (v *View) Delay(d time.Duration) { v.link.setDelay(max(d, 0)) }

// Lead makes the view's address that of another node, as a failover or a replaced machine does: connections
// to the former node end, and new ones go to the other.
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
	if !n.backend.alive() {
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

// openViews lets dials through. A server that died meanwhile is found out by the caller.
func (n *Node) openViews() error {
	n.viewsMu.Lock()
	defer n.viewsMu.Unlock()
	var err error
	for v := range n.views {
		v.link.down() // a view that was led here at this very moment is open already
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
