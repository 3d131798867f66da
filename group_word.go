package redlock

import (
	"sync"
	"time"
)

// What one node says of the groups of a Sharded, and news of that (Q3). groups.go asks for it.

// A groupWord is what a node last said of the groups. It outlives the connection: a node that is away, or has forgotten,
// takes nothing back.
type groupWord struct {
	contact   Instant      // since when it has been heard again and again: the longest gap was shorter than freshFor
	heard     Instant      // when the last question was asked that it answered
	tried     Instant      // when the last question was asked that was answered, or the last attempt to connect began that failed
	voted     Instant      // when the question was asked to which it answered that it votes; longAgo: it says something else now
	refused   *ConfigError // it has refused the groups, and since then neither it nor a quorum of its group has voted; or nil
	refusedAt Instant      // when that question was asked
}

var noWord = groupWord{contact: longAgo, heard: longAgo, tried: longAgo, voted: longAgo, refusedAt: longAgo}

// learn takes the answer to a question that was asked then.
func (w *groupWord) learn(votes bool, differs *ConfigError, asked Instant, fresh time.Duration) {
	if asked.Sub(w.heard) > fresh {
		w.contact = asked
	}
	w.heard, w.tried, w.voted = asked, asked, longAgo
	switch {
	case votes:
		w.voted, w.refused = asked, nil
	case differs == nil: // it may have forgotten
	case differs.has(agreedGroups):
		w.refused, w.refusedAt = differs, asked
	default: // it has the same groups, and something else differs
		w.refused = nil
	}
}

// groupNews tells callers that wait that a node has said something, or that an attempt to connect has failed. The clients
// of a Sharded share it. nil: nobody waits.
type groupNews struct {
	mu   sync.Mutex    // guards next
	next chan struct{} // closed by the next news
}

func newGroupNews() *groupNews { return &groupNews{next: make(chan struct{})} }

func (g *groupNews) tell() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.next)
	g.next = make(chan struct{})
}

func (g *groupNews) await() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next
}

// freshFor is for how long what a node said of the groups counts. It is longer than it takes until all nodes were asked
// again (checkHealth), also those that have just become silent: usually no acquire waits for that.
func (s *settings) freshFor() time.Duration { return healthInterval + 5*s.stallTimeout() }
