package fleet

import (
	"fmt"
	"time"
)

// A cutter drops packets at the node.
type cutter interface{ cut(mode cutMode) error }

type cutMode int

const (
	flowing    cutMode = iota
	cutBoth            // nothing arrives in either direction
	cutReplies         // requests arrive, replies do not
)

func (m cutMode) String() string { return [...]string{"heal", "cut", "cut replies"}[m] }

// Pause stops the server: connections stay open, dials succeed, and nothing is answered.
func (n *Node) Pause() error {
	return n.do("pause", func() error {
		if !n.backend.alive() {
			return errDown
		}
		if n.paused {
			return nil
		}
		err := n.backend.pause()
		n.paused = err == nil
		return err
	})
}

// Resume ends Pause. Requests that were sent meanwhile are executed now. Without a Pause it does nothing.
func (n *Node) Resume() error {
	return n.do("resume", func() error {
		if !n.paused || !n.backend.alive() {
			n.paused = false
			return nil
		}
		err := n.backend.resume()
		n.paused = err != nil
		return err
	})
}

// Cut blocks everything between the node and its clients, in both directions. Nothing is closed or refused: connections
// hang, and new ones open but are not served. It replaces CutReplies.
func (n *Node) Cut() error { return n.cut(cutBoth) }

// CutReplies lets requests arrive and be executed, but holds back the replies. It replaces Cut. After Heal, the replies
// arrive on connections that are still open.
func (n *Node) CutReplies() error { return n.cut(cutReplies) }

func (n *Node) cut(mode cutMode) error {
	return n.do(mode.String(), func() error {
		if err := n.setMode(mode); err != nil {
			return err
		}
		n.mode = mode
		return nil
	})
}

func (n *Node) setMode(mode cutMode) error {
	c := n.backend.cutter()
	switch {
	case c != nil && !n.backend.alive():
		return nil // Start will do it
	case c != nil:
		return c.cut(mode)
	case n.link != nil:
		n.link.cut(mode)
		return nil
	case mode == flowing:
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
		if err := n.setMode(flowing); err != nil {
			return err
		}
		n.mode = flowing
		return nil
	})
}
