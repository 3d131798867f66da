package redlock

import (
	"fmt"
	"sync"
)

// A quorumLog is what a client remembers to log that too few nodes vote, and that enough vote again.
type quorumLog struct {
	mu      sync.Mutex // guards the rest; nothing is counted or logged under it
	looking bool       // a goroutine counts and logs: one at a time, so that the lines are in order
	again   bool       // a vote has changed since that goroutine began to count
	gone    bool       // the last line said that there is no quorum
}

// votesChanged is called when a node may have become a voter, or have stopped being one. It logs nothing before every
// node was tried once. A clock that is out of step does not count here, because it is known only when a round compares
// clocks.
func (c *Client) votesChanged() {
	if c.notifier == nil || c.notifier.log == nil || !c.hasTried() || c.isClosed() {
		return
	}
	l := &c.quorumLog
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = true
	if l.looking {
		return
	}
	l.looking = true
	for l.again {
		l.again = false
		gone := l.gone
		l.mu.Unlock()
		gone = c.logQuorum(gone)
		l.mu.Lock()
		l.gone = gone
	}
	l.looking = false
}

// logQuorum logs if there is a quorum and was none, or the other way round. gone is how it was, and the result how it is.
func (c *Client) logQuorum(gone bool) bool {
	votes, open := c.countVotes()
	switch {
	case !gone && votes+open < c.need:
		c.cfg.Logger.Warn(c.voteCount(votes) + ": nothing is granted or renewed")
		return true
	case gone && votes >= c.need:
		c.cfg.Logger.Info(c.voteCount(votes) + ": locks are granted and renewed again")
		return false
	}
	return gone
}

func (c *Client) voteCount(votes int) string {
	verb := "vote"
	if votes == 1 {
		verb = "votes"
	}
	return fmt.Sprintf("redlock: %d of %d nodes %s, and it takes %d", votes, len(c.nodes), verb, c.need)
}

// countVotes is how many nodes vote, and how many are about to say whether they do.
func (c *Client) countVotes() (votes, open int) {
	for _, n := range c.nodes {
		n.mu.Lock()
		s := &n.readiness
		fit, ready := n.up && n.unfit == nil, s.ready
		asked, unjudged := s.asking || !s.known, s.unjudged
		n.mu.Unlock()
		if unjudged { // it is asked again as soon as others can be heard
			word, _ := c.word(n)
			asked = asked || word != wordLook
		}
		switch {
		case !fit:
		case ready:
			votes++
		case asked:
			open++
		}
	}
	return votes, open
}
