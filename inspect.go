package redlock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
)

// A State says who holds a name: according to a quorum of the nodes, and according to each node.
type State struct {
	Name string
	// Held: a quorum of the nodes has the name for one owner. If only fewer nodes have it, somebody is acquiring or
	// releasing it, or failed to; or holds it, was not renewed yet, and a node that has it does not answer, or forgot it.
	Held bool
	// Token is the owner's token; see [Lease.Token]. Other libraries write other values.
	Token string
	// Remaining is how much longer a quorum has the name if the owner does nothing. Negative: for ever.
	Remaining time.Duration
	// Fence is the largest fencing token that any node knows in the name's fence slot. No lease of the name has a larger
	// one. The present holder's may be smaller: a refused attempt can raise it, and so can the other names of the slot,
	// of which there are 4096. So do not give it to a resource: the resource would refuse the holder. 0: none.
	Fence uint64
	// Votes is how many nodes answered and have a vote. Quorum is how many votes it takes to acquire the name. With
	// fewer votes nobody can acquire it, and a Held of false means that it is not known who holds the name.
	Votes, Quorum int
	// Sharers is who has the name on a quorum of the nodes, if it is held by readers ([RWMutex.Reader]) or by holders of
	// permits ([Client.Semaphore]). Token is then empty, and Remaining is how long the last of them has it.
	Sharers []Sharer
	// Nodes is in the order of Config.Nodes.
	Nodes []NodeState
}

// Holder says who holds the name: the first of those that share it. ok is false if it is not Held.
func (s *State) Holder() (h Holder, ok bool) {
	if len(s.Sharers) > 0 {
		return s.Sharers[0].Holder(), true
	}
	return holderIn(s.Token, s.Remaining), s.Held
}

// Holder says who has the name on this node. ok is false if it is not Held there.
func (n *NodeState) Holder() (h Holder, ok bool) {
	return holderIn(n.Token, n.Remaining), n.Held
}

// A NodeState says what one node has for a name.
type NodeState struct {
	Node string // the node's name
	// Err is why the node has no vote; nil if it has one. If it did not answer, the fields below are zero. If it is in
	// quarantine (a [*QuarantineError]) or unfit, or its clock is out of step, they say what it has now, but it may have
	// forgotten that it granted the name.
	Err       error
	Held      bool
	Reserved  bool // released, and reserved for a waiter for a short time; Held is then false
	Token     string
	Remaining time.Duration // negative: for ever
	Fence     uint64
	Sharers   []Sharer // if several share the name; Token is then "readers" or "permits"
	// NotString: the key has no string, so it is a lock that several share, or no lock and Token is empty. Another
	// program's string can be empty too, or "readers".
	NotString bool
}

// String says who holds the name. Like that of [NodeState] and [Sharer] it does not show the owner token, which is a secret.
func (s State) String() string {
	switch holder, held := s.Holder(); {
	case held && len(s.Sharers) > 1:
		return fmt.Sprintf("%q is held by %v and %d more", s.Name, holder, len(s.Sharers)-1)
	case held:
		return fmt.Sprintf("%q is held by %v", s.Name, holder)
	case s.Votes < s.Quorum:
		return fmt.Sprintf("%q: not known, %d of %d nodes vote", s.Name, s.Votes, len(s.Nodes))
	}
	on := 0
	for _, n := range s.Nodes {
		if n.Held {
			on++
		}
	}
	if on > 0 {
		return fmt.Sprintf("%q is held by nobody on a quorum; %d of %d nodes have it", s.Name, on, len(s.Nodes))
	}
	return fmt.Sprintf("%q is held by nobody", s.Name)
}

// LogValue is String, so that it shows no owner token in a log. JSON of it does.
func (s State) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String says what the node has for the name.
func (n NodeState) String() string {
	switch holder, held := n.Holder(); {
	case n.Err != nil:
		return printable(n.Node + ": " + n.Err.Error())
	case held:
		return printable(n.Node) + ": held by " + holder.String()
	case n.Reserved:
		return printable(n.Node) + ": reserved for a waiter"
	default:
		return printable(n.Node) + ": free"
	}
}

// LogValue is String, so that it shows no owner token in a log. JSON of it does.
func (n NodeState) LogValue() slog.Value { return slog.StringValue(n.String()) }

// Inspect asks all nodes whether they vote, and then who has the name. For each of the two it waits no longer than
// NodeTimeout. The first use of a client also waits for its nodes to connect. Inspect does not acquire anything. A
// moment later the name may have another owner.
//
// If too few nodes vote, it returns the State and a [*RoundError] that is [ErrNoQuorum]. Other errors come without a
// State: [ErrInvalid], [ErrClosed] and ctx.Err().
func (c *Client) Inspect(ctx context.Context, name string) (*State, error) {
	state, r, err := c.inspect(ctx, name)
	if err != nil || state.Votes >= c.need {
		return state, err
	}
	return state, c.tooFewVote(r, state)
}

// tooFewVote is the error of an inspection that answers nothing, because too few nodes vote.
func (c *Client) tooFewVote(inspected *round, state *State) *RoundError {
	refusal := inspected.error(ErrNoQuorum, []string{state.Name}, c.nodes, "")
	_, votes := inspected.snapshot()
	counted, _ := votes.counted()
	for i, n := range state.Nodes {
		if n.Err != nil && counted.has(i) { // it answered, but has no vote
			refusal.Granted--
			refusal.Unknown++
			refusal.Err = multierror.Append(refusal.Err, &NodeError{Node: n.Node, Err: n.Err})
		}
	}
	return refusal
}

// inspect is Inspect, but it is no error if too few nodes vote or answer.
func (c *Client) inspect(ctx context.Context, name string) (*State, *round, error) {
	s := c.Mutex(name).spec
	switch {
	case s.err != nil:
		return nil, nil, s.err
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case c.isClosed():
		return nil, nil, ErrClosed
	}
	if err := c.awaitAll(ctx); err != nil {
		return nil, nil, err
	}
	c.lookAround(ctx) // which of them vote
	look := plan{call: c.protocol.inspectCall(s.res), t0: c.cfg.Clock.Now()}
	r := newRound(look, len(c.nodes), c.need, toleranceOf(c.cfg.ClockBand))
	if err := c.hearAll(ctx, r, c.cfg.NodeTimeout); err != nil {
		return nil, nil, err
	}
	answers, votes := r.snapshot()
	inStep, _ := votes.counted()
	state := stateOf(name, answers, c.need)
	for i, n := range c.nodes {
		node := &state.Nodes[i]
		node.Node = n.endpoint.name
		if node.Err == nil {
			node.Err = n.status().Err
		}
		if node.Err == nil && !inStep.has(i) { // a key that it lacks may have expired by the wrong clock (C1)
			node.Err = errClock
		}
		if node.Err == nil {
			state.Votes++
		}
	}
	return state, r, nil
}

// ForceRelease deletes the name's key on every node, whoever holds it. It is for an operator who knows that the owner
// is gone for good. An owner that is alive relies on the lock until it learns of that, and another client may already
// have it. Only a resource that compares fencing tokens is safe from both. The owner learns of it by a message, about a
// round trip after ForceRelease returns, if its client has waited for a lock within the last 10s, or one of its leases
// has called [Lease.Wanted], and both users may use channels. Otherwise it learns of it at its next renewal.
//
// ForceRelease takes the lock only from the owner that it found, not from one that comes later. If nobody holds the
// lock, that is no error. [ErrNoQuorum] means that the lock may still be held: too few nodes answered; or no node has
// it, and too few of them vote, because some may have forgotten it; or a node did not delete it; or an owner that is alive
// took it back again and again, or can take it back with a node that did not answer, because too many others did not have
// it. Then call ForceRelease again when all nodes answer: sooner, it may find less, and return nil, though the owner is
// about to take the lock back. Other errors are [ErrInvalid], also if the key holds something that is no lock, [ErrClosed]
// and ctx.Err().
func (c *Client) ForceRelease(ctx context.Context, name string) error {
	state, inspected, err := c.inspect(ctx, name)
	if err != nil {
		return err
	}
	if _, t := inspected.snapshot(); t.granted < c.need {
		return inspected.error(ErrNoQuorum, []string{name}, c.nodes, "")
	}
	for _, n := range state.Nodes {
		if n.Held && n.NotString && n.Token == "" {
			return invalid("name", "on %s the key of %q holds something that is no lock; delete it by hand, or use another name", n.Node, name)
		}
	}
	found, in := state.holdings()
	if len(found) == 0 {
		if state.Votes < c.need {
			return c.tooFewVote(inspected, state)
		}
		return nil
	}
	return c.releaseFound(ctx, state, found, in)
}

// A holding is what ForceRelease takes away: the entry of one that shares the lock, or a string. A writer that becomes a reader
// may have its string on some nodes, and its entry on others (S4). What another program wrote has no entry.
type holding struct{ entry, value string }

// holdings is what the nodes have, in the order in which it was found, and where.
func (s *State) holdings() (all []holding, in map[holding]nodeSet) {
	in = map[holding]nodeSet{}
	add := func(node int, h holding) {
		nodes, known := in[h]
		if !known {
			all = append(all, h)
		}
		nodes.add(node)
		in[h] = nodes
	}
	for i, n := range s.Nodes {
		switch {
		case !n.Held || n.NotString:
		case hasTokenForm(n.Token):
			add(i, holding{readerEntry + n.Token, n.Token})
		default:
			add(i, holding{value: n.Token})
		}
		for _, sharer := range n.Sharers {
			h := holding{entry: sharer.entry}
			if strings.HasPrefix(sharer.entry, readerEntry) {
				h.value = sharer.Token
			}
			add(i, h)
		}
	}
	return all, in
}

// where is the nodes of which this is so.
func (s *State) where(so func(NodeState) bool) (nodes nodeSet) {
	for i, n := range s.Nodes {
		if so(n) {
			nodes.add(i)
		}
	}
	return nodes
}

// forceTries is how often a release by force is sent again to a holder that goes on.
const forceTries = 3

// whyItStays is the note of the error if these nodes still have what the release r was to delete.
func (r *round) whyItStays(nodes nodeSet) string {
	if _, t := r.snapshot(); nodes&(t.votedBy(granted)|t.votedBy(denied)) == 0 {
		return "it is still on nodes that did not delete it"
	}
	return "its holder goes on, and takes it back; stop its process, or release it again"
}

// releaseFound takes the lock from those that were found, and then looks. A holder that is alive may have taken it back: its
// renewal came between the releases of two nodes, to a quorum that had the keys or could take them, and planted them where they
// were gone already (R2). A writer may have become a reader (S4). What is still there is released again, a few times. in says
// where state has what was found.
func (c *Client) releaseFound(ctx context.Context, state *State, found []holding, in map[holding]nodeSet) error {
	name, keys := state.Name, c.Mutex(state.Name).spec.res.keys
	type fate struct {
		had, deleted nodeSet
		last         *round
	}
	fates := make([]fate, len(found))
	defer func() { // last, because ctx may end with a lease that was taken
		for _, h := range found {
			c.sayTaken(cmp.Or(h.entry, h.value), keys[0])
		}
	}()
	hasNoVote := func(n NodeState) bool { return n.Err != nil } // it may have forgotten what it had, or did not answer
	maybe := state.where(hasNoVote)
	for try := 0; ; try++ {
		entries := state.where(func(n NodeState) bool { return len(n.Sharers) > 0 })
		for i, h := range found {
			f := &fates[i]
			if in[h] == 0 {
				continue
			}
			f.had |= in[h]
			call := c.protocol.releaseMutexCall(keys, h.value, c.reservation(), 0) // of another program's string, which may look like an entry
			if in[h]&entries != 0 {
				call = c.protocol.releaseCall(keys, h.entry, c.reservation(), 0) // which deletes the writer's string, too
			}
			f.last = c.newRound(plan{call: call})
			if err := c.hearAll(ctx, f.last, c.cfg.NodeTimeout); err != nil {
				return err
			}
			_, t := f.last.snapshot()
			if !t.answered() {
				return f.last.error(ErrNoQuorum, []string{name}, c.nodes, "")
			}
			f.deleted |= t.votedBy(granted) | t.votedBy(denied)&f.had // gone meanwhile, or the look finds it
		}
		now, look, err := c.inspect(ctx, name)
		if err != nil {
			return err
		}
		state = now
		_, in = state.holdings()
		_, t := look.snapshot()
		unheard := c.allNodes() &^ t.votedBy(granted)
		maybe |= unheard | state.where(hasNoVote)
		if i := slices.IndexFunc(found, func(h holding) bool { return in[h] != 0 }); i >= 0 {
			if try == forceTries {
				return fates[i].last.error(ErrNoQuorum, []string{name}, c.nodes, fates[i].last.whyItStays(in[found[i]]))
			}
			continue
		}
		// A holder may be alive, and have the lock on a node of which nothing is known. If that node, and those that did not have it,
		// are a quorum together, its next renewal takes the lock there, and the lease goes on (R2).
		for i, h := range found {
			f := fates[i]
			isLease := h.entry != "" && ((maybe|f.had|f.deleted).len() >= c.need || f.had&unheard != 0)
			if unheard != 0 && isLease && len(c.nodes)-(f.deleted&^unheard).len() >= c.need {
				return f.last.error(ErrNoQuorum, []string{name}, c.nodes, "a node of which nothing is known may have it, and its holder, if it "+
					"is alive, can take those that did not have it; release it again when all nodes answer")
			}
		}
		return nil
	}
}

// stateOf makes the State from the nodes' answers.
func stateOf(name string, answers []answer, need int) *State {
	s := &State{Name: name, Quorum: need, Nodes: make([]NodeState, len(answers))}
	left := map[string][]time.Duration{}
	for i, a := range answers {
		n := &s.Nodes[i]
		f := a.found
		if f == nil {
			if n.Err = a.err; n.Err == nil {
				n.Err = errSilent
			}
			continue
		}
		n.Fence = f.highest
		s.Fence = max(s.Fence, f.highest)
		onlyReserved := f.notString && f.owner == ownedByPermits && len(f.sharers) == 0
		if n.Reserved = f.taken && (isReserved(f.owner, f.left) || onlyReserved); !f.taken || n.Reserved {
			continue
		}
		n.Held, n.Token, n.Remaining, n.Sharers, n.NotString = true, f.owner, f.left, f.sharers, f.notString
		if len(n.Sharers) > 0 {
			continue
		}
		left[f.owner] = append(left[f.owner], f.left)
	}
	for owner, left := range left {
		if len(left) < need {
			continue
		}
		slices.SortFunc(left, longest)
		s.Held, s.Token, s.Remaining = true, owner, left[need-1]
	}
	if s.Held {
		return s
	}
	if s.Sharers = sharersOf(s.Nodes, need); len(s.Sharers) > 0 {
		s.Held = true
		for _, sharer := range s.Sharers {
			s.Remaining = max(s.Remaining, sharer.Remaining)
		}
	}
	return s
}

// hearAll sends the round to every node and waits until each has answered, no longer than the timeout. It waits also
// after the verdict, because the caller wants every node's answer. It returns an error when ctx or the client has
// ended.
func (c *Client) hearAll(ctx context.Context, r *round, timeout time.Duration) error {
	c.send(r, c.allNodes(), 0)
	return r.until(ctx, &c.timers, c.ending, timeout, func(t *tally) bool { return t.open() == 0 })
}
