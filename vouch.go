package redlock

import (
	"fmt"

	"github.com/gomodule/redigo/redis"
)

// A grant counts only if the server still has the data set that the marker names. INFO replication vouches for that
// (Q1). The run id cannot: a server can become a replica, load another server's data, marker included, and be promoted
// again, all in one process. There are three cases:
//
//   - The last INFO that vouched is younger than vouchInterval when the acquire is sent: the grant counts at once.
//   - It is older: an INFO follows the acquire in the same flush (nextBatch). The grant waits for that answer.
//   - The acquire relied on an earlier INFO, but the grant comes more than vouchReach after that was asked for: another
//     INFO is sent, and the grant waits for its answer (vouchLate).

// askReplication is the command that checks whether the server is still a master with this replication history. The
// history is fixed when the command is made. What other replies say before the answer comes does not change it, because
// the waiting votes were asked for with the older marker. n.mu is held.
func (n *node) askReplication() *command {
	if history := n.server.history; n.asksOf == nil || n.asksOf.history != history {
		n.asksOf = &replicationQuestion{history: history, command: command{name: "INFO", args: []any{"replication"},
			done: func(n *node, q request, reply any, err error) { n.learnReplication(history, q, reply, err) }}}
	}
	return &n.asksOf.command
}

// A replicationQuestion is kept and sent again, because it is asked many times a second.
type replicationQuestion struct {
	history string
	command command
}

// learnReplication counts the waiting votes if the server vouched for them, and otherwise makes them unknown. If the
// data set is another one, it also asks ready.lua whether the server may grant with that.
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

// A heldVote is a grant that does not count until the server has vouched for its data set.
type heldVote struct {
	round  *round
	answer answer
}

// vouchLate makes a grant wait for an INFO that is not answered yet. If the data set was found to be another one after
// the acquire was sent, that INFO would vouch for the wrong one: the vote is then unknown.
func (n *node) vouchLate(q request, a answer) {
	n.mu.Lock()
	same := q.sentAt > n.renamed
	if same && len(n.unvouched) == 0 { // else an INFO is under way already
		n.queue = append(n.queue, request{command: n.askReplication()})
	}
	n.mu.Unlock()
	if !same {
		q.round.record(n.index, answer{vote: unknown, err: errUnready})
		return
	}
	q.round.vouching(n.index, a.clock)
	n.unvouched = append(n.unvouched, heldVote{q.round, a})
	n.wakeUp()
}

// countUnvouched counts the waiting votes: as granted, or as unknown if there is a cause. The reader calls it, and run
// when no reader is left.
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
