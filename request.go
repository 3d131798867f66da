package redlock

// A request is one command to the node: of a round, or of the node itself.
type request struct {
	round   *round
	more    []*round // further leases that the same command renews (batchRenewals)
	command *command
	sentAt  Instant
	heard   Instant // when its answer came, or a little later
	light   bool    // an acquire in its light form; see light.go
	full    bool    // an acquire whose light form was refused
	raised  bool    // that light form had stored the ballot
	later   bool    // its round began before this node was asked
	sampled bool    // the first of its batch: its round-trip time is measured
	vouched bool    // its vote waits for the INFO behind it in the batch (vouch.go)
	again   bool    // sent once more, because the server refused it: a renewal in a command of its own
	overdue bool    // its answer came more than vouchReach after the INFO that it relied on
}

// A command is one that the node sends for itself, outside of rounds.
type command struct {
	name string
	args []any
	done func(n *node, q request, reply any, err error) // also called, with an error, if the connection broke
}

// whole is the command with its name.
func (c *command) whole() []any { return append([]any{c.name}, c.args...) }

// What every connected server is asked every healthInterval.
var (
	askTime = &command{name: "TIME", done: (*node).learnTime}
	askInfo = &command{name: "INFO", done: (*node).learnInfo}
	// askWrite changes nothing: that key is the queue of no lock, because no lock key is empty.
	askWrite = &command{name: "SET", args: []any{waitPrefix, "", "XX", "PX", 1}, done: (*node).learnWrite}

	askKill        = &command{name: "CLIENT", args: []any{"KILL", "ID", int64(nobody)}, done: (*node).learnKill} // by Status alone
	askPersistence = &command{name: "CONFIG", args: []any{"GET", "*appendfsync*"}, done: (*node).learnPersistence}
)

func (q *request) name() string {
	if q.round != nil {
		return "EVALSHA"
	}
	return q.command.name
}

func (q *request) arguments(args []any, state *readiness, n *node) []any {
	if q.round == nil {
		return append(args, q.command.args...)
	}
	if q.round.script.own == ownLease {
		return q.encodeRenewals(args, state, n.index)
	}
	return q.encode(args, state, n)
}

// isOwed reports whether it is a release, which is owed to the node until a server has answered it (L3).
func (q *request) isOwed() bool { return q.round != nil && q.round.script.cleansUp }

// rounds are the rounds that the command belongs to.
func (q *request) rounds(yield func(*round) bool) {
	if q.round == nil || !yield(q.round) {
		return
	}
	for _, r := range q.more {
		if !yield(r) {
			return
		}
	}
}

// load is the command that makes the script known again to a server that forgot it.
func (s *script) load() *command {
	return &command{name: "SCRIPT", args: []any{"LOAD", s.source}, done: (*node).reloaded}
}
