package fleet

import (
	"fmt"
	"time"
)

// A CutMode says which data passes between a node and its clients.
type CutMode int

const (
	Flowing    CutMode = iota // everything
	CutBoth                   // nothing arrives in either direction
	CutReplies                // requests arrive, replies do not
)

func (m CutMode) String() string { return [...]string{"heal", "cut", "cut replies"}[m] }

// Pause stops the server: connections stay open, dials succeed, and nothing is answered.
func (n *Node) Pause() error {
	return n.do("pause", func() error {
		if !n.backend.Alive() {
			return errDown
		}
		if n.paused {
			return nil
		}
		err := n.backend.Pause()
		n.paused = err == nil
		return err
	})
}

// Resume ends Pause. Requests that were sent meanwhile are executed now. Without a Pause it does nothing.
func (n *Node) Resume() error {
	return n.do("resume", func() error {
		if !n.paused || !n.backend.Alive() {
			n.paused = false
			return nil
		}
		err := n.backend.Resume()
		n.paused = err != nil
		return err
	})
}

// Cut blocks everything between the node and its clients, in both directions. Nothing is closed or refused: connections
// hang, and new ones open but are not served. It replaces CutReplies.
func (n *Node) Cut() error { return n.cut(CutBoth) }

// CutReplies lets requests arrive and be executed, but holds back the replies. It replaces Cut. After Heal, the replies
// arrive on connections that are still open.
func (n *Node) CutReplies() error { return n.cut(CutReplies) }

func (n *Node) cut(mode CutMode) error {
	return n.do(mode.String(), func() error {
		if err := n.setMode(mode); err != nil {
			return err
		}
		n.mode = mode
		return nil
	})
}

func (n *Node) setMode(mode CutMode) error {
	c := n.backend.Cutter()
	switch {
	case c != nil && !n.backend.Alive():
		return nil // Start will do it
	case c != nil:
		return c.Cut(mode)
	case n.link != nil:
		n.link.cut(mode)
		return nil
	case mode == Flowing:
		return nil
	}
	return n.fleet.unsupported(mode.String(), "start it with Options.Links")
}

// Delay delays everything by d in each direction, in addition to any Cut. It replaces an earlier Delay.
func (n *Node) Delay(d time.Duration) error {
	return n.do(fmt.Sprintf("delay %v", d), func() error {
		if n.link == nil {
			return n.fleet.unsupported("delay", "start it with Options.Links")
		}
		n.link.setDelay(max(d, 0))
		return nil
	})
}

// Heal ends Cut, CutReplies and Delay, but not Pause. What was held back is delivered. If there is nothing to end, it
// does nothing.
func (n *Node) Heal() error {
	return n.do("heal", func() error {
		if n.link != nil {
			n.link.setDelay(0)
		}
		if err := n.setMode(Flowing); err != nil {
			return err
		}
		n.mode = Flowing
		return nil
	})
}
