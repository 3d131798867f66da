package redlock

import (
	"fmt"

	"github.com/gomodule/redigo/redis"
)

// A vote counts only if the server's data set is the one that the marker names. INFO vouches for that (Q1).

// askReplication confirms, or not, that the data set is still the one that is asked to grant: that of a master with
// this history. The votes that come before the answer on this connection wait for it. What other replies have told
// meanwhile does not count: the marker was sent before. n.mu is held.
func (n *node) askReplication() *command {
	if history := n.server.history; n.asksOf == nil || n.asksOf.history != history {
		n.asksOf = &replicationQuestion{history: history, command: command{name: "INFO", args: []any{"replication"},
			done: func(n *node, q request, reply any, err error) { n.learnReplication(history, q, reply, err) }}}
	}
	return &n.asksOf.command
}

// A replicationQuestion is asked many times a second.
type replicationQuestion struct {
	history string
	command command
}

func (n *node) learnReplication(history string, q request, reply any, err error) {
	var cause error
	if text, errReply := redis.String(reply, err); errReply != nil {
		cause = fmt.Errorf("INFO, which vouches for its votes: %w", errReply)
	} else {
		role, now := readReplication(text)
		n.mu.Lock()
		if role == "master" && now == history {
			n.vouchedAt = q.sentAt
		} else {
			n.vouchedAt = longAgo
			cause = errUnready
		}
		n.mu.Unlock()
	}
	n.countUnvouched(cause)
	if cause == errUnready {
		n.askReady()
	}
}

// A heldVote is one that granted and does not count before the server has vouched for its data set.
type heldVote struct {
	round  *round
	answer answer
}

// vouchLate has a vote wait for an INFO that is still to be answered: that the history is the one of the marker that the
// vote was asked with.
func (n *node) vouchLate(q request, a answer) {
	n.mu.Lock()
	same := q.sentAt > n.renamed
	if same && len(n.unvouched) == 0 { // else one is under way already
		n.queue = append(n.queue, request{command: n.askReplication()})
	}
	n.mu.Unlock()
	if !same {
		q.round.record(n.index, answer{vote: unknown, err: errUnready})
		return
	}
	n.unvouched = append(n.unvouched, heldVote{q.round, a})
	n.wakeUp()
}

// countUnvouched counts the votes that waited, as unknown if there is a cause. The reader calls it, and run when no
// reader is left.
func (n *node) countUnvouched(cause error) {
	for i := range n.unvouched {
		v := &n.unvouched[i]
		if cause != nil {
			v.answer = answer{vote: unknown, err: cause}
		}
		v.round.record(n.index, v.answer)
		*v = heldVote{}
	}
	n.unvouched = n.unvouched[:0]
}
