package redlock

// A request is one command on its way: of a round, or the node's own.
type request struct {
	round   *round
	command *command
	sentAt  Instant
	sampled bool // the first of its batch: its round-trip time is measured
	vouched bool // its vote waits for the INFO behind it in the batch
	overdue bool // it was answered too long after the INFO before it
}

// A command is one of the node's own, beside the rounds.
type command struct {
	name string
	args []any
	done func(n *node, q request, reply any, err error) // called by the reader; also where the connection broke
}

// What every connected server is asked now and then.
var (
	askTime = &command{name: "TIME", done: (*node).learnTime}
	askInfo = &command{name: "INFO", done: (*node).learnInfo}

	askPersistence = &command{name: "CONFIG", args: []any{"GET", "*appendfsync*"}, done: (*node).learnPersistence}
)

func (q *request) name() string {
	if q.round != nil {
		return "EVALSHA"
	}
	return q.command.name
}

func (q *request) arguments(args []any, stands *readiness, node int) []any {
	if q.round == nil {
		return append(args, q.command.args...)
	}
	return q.round.encode(args, stands, node)
}
