package election

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/redlock"
)

// A Leader is what observers know of who leads. The zero Leader means that nobody does.
type Leader struct {
	Label  string // see [Options]; "" if the lock was not taken by an election
	Number uint64 // see [Term.Number]; 0 also if the lock was not taken by an election
	Token  string // the owner token of its lease; see [redlock.Lease.Token]
}

// None reports whether nobody leads.
func (l Leader) None() bool { return l.Token == "" }

// String shows who leads, and not the owner token, which is a secret.
func (l Leader) String() string {
	switch {
	case l.None():
		return "nobody"
	case l.Number == 0 && l.Label == "":
		return "an unknown leader"
	case l.Number == 0: // Config.NoFence
		return strconv.Quote(l.Label)
	default:
		return fmt.Sprintf("%q, term %d", l.Label, l.Number)
	}
}

// LogValue is String, so that it shows no owner token in a log. JSON of it does.
func (l Leader) LogValue() slog.Value { return slog.StringValue(l.String()) }

// record is how a Leader is stored and published: "<token> <number> <label>".
func (l Leader) record() string {
	return l.Token + " " + strconv.FormatUint(l.Number, 10) + " " + l.Label
}

func parseRecord(record string) (l Leader, ok bool) {
	parts := strings.SplitN(record, " ", 3)
	if len(parts) != 3 || parts[0] == "" {
		return Leader{}, false
	}
	number, err := strconv.ParseUint(parts[1], 10, 64)
	return Leader{parts[2], number, parts[0]}, err == nil
}

// Leader asks the nodes who leads. The zero Leader means that nobody does. A moment later this may have changed.
//
// If too few nodes vote, the error is a [*redlock.RoundError] that is [redlock.ErrNoQuorum]. While the leader changes, or
// while nodes that are away leave it open, Leader asks again until ctx ends. A leader's label arrives a round trip of the
// leader after its lock. So before Leader says that the lock was not taken by an election, it looks for the label for a
// NodeTimeout of the client. Other errors are [redlock.ErrInvalid], [redlock.ErrClosed] and ctx.Err().
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := e.check(); err != nil {
		return Leader{}, err
	}
	owner := nameless{patience: e.nodes.NodeTimeout()}
	for pause := minPoll; ; pause = min(2*pause, e.poll) {
		s, err := e.look(ctx, Leader{})
		switch {
		case err != nil:
			return Leader{}, err
		case s.found && (!s.nameless() || owner.saw(s)):
			return s.leader, nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Leader{}, ctx.Err()
		}
	}
}

// A sighting is what one look found.
type sighting struct {
	found  bool   // else it is not known who leads
	leader Leader // without label and number, if no record of this owner was found

	began, ended time.Time
}

// nameless reports whether there is an owner, but no record of it.
func (s sighting) nameless() bool {
	return !s.leader.None() && s.leader == Leader{Token: s.leader.Token}
}

// look asks the nodes who leads. If it is still known, its record is not read again.
func (e *Election) look(ctx context.Context, known Leader) (sighting, error) {
	s := sighting{began: time.Now()}
	state, err := e.client.Inspect(ctx, e.name)
	if err != nil {
		return s, err
	}
	s.leader.Token, s.found = ownerIn(state)
	switch token := s.leader.Token; {
	case !s.found || token == "":
	case token == known.Token && known.Label != "":
		s.leader = known
	default:
		s.leader, err = e.readRecord(ctx, token, state)
	}
	s.ended = time.Now()
	return s, err
}

// ownerIn returns who has the lock on a quorum of the nodes; "": nobody has. It is not known (false) while the nodes that
// did not answer could make a quorum with those that have an owner: a leader's lock may be on a bare quorum, and one of
// these nodes away.
func ownerIn(state *redlock.State) (token string, known bool) {
	if state.Held {
		return state.Token, true
	}
	unknown, most, count := 0, 0, map[string]int{}
	for _, n := range state.Nodes {
		switch {
		case n.Err != nil:
			unknown++
		case n.Held:
			count[n.Token]++
			most = max(most, count[n.Token])
		}
	}
	return "", most+unknown < state.Quorum
}

// isBelieved reports whether a leader may have this number. One that is far ahead of the servers' clocks may be a single node's
// nonsense, unless a quorum has granted as much (protocol step F2).
func (e *Election) isBelieved(number uint64, state *redlock.State) bool {
	has := 0
	for _, n := range state.Nodes {
		if n.Fence >= number {
			has++
		}
	}
	return number <= e.nodes.Believed() || has >= state.Quorum
}

// readRecord returns what any node has stored of the leader with this token, which was seen in that state.
func (e *Election) readRecord(ctx context.Context, token string, state *redlock.State) (Leader, error) {
	records := make(chan string, e.nodes.Nodes())
	for node := range e.nodes.Nodes() {
		e.nodes.Get(node, e.leaderKey, func(record string, _ error) { records <- record })
	}
	timer := time.NewTimer(e.nodes.NodeTimeout())
	defer timer.Stop()
	for range e.nodes.Nodes() {
		select {
		case record := <-records:
			if l, ok := parseRecord(record); ok && l.Token == token && e.isBelieved(l.Number, state) {
				return l, nil
			}
		case <-timer.C:
			return Leader{Token: token}, nil
		case <-ctx.Done():
			return Leader{}, ctx.Err()
		}
	}
	return Leader{Token: token}, nil
}
