package redlock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/go-multierror"
)

// What a caller may have to do about an error. Every error of this package that is not the caller's own
// (a context's, a function's) is one of these by [errors.Is].
var (
	// ErrHeld means wait: a quorum of nodes answered, and somebody else has the lock or is about to.
	ErrHeld = errors.New("redlock: held by another")
	// ErrNoQuorum means page someone: too few nodes could vote, or they were too slow to be of use. For a release it
	// means that it is not known whether a quorum released the lock.
	ErrNoQuorum = errors.New("redlock: no quorum of nodes")
	// ErrLost means stop: the lease is no longer ours, or may no longer be.
	ErrLost = errors.New("redlock: lease lost")
	// ErrReleased is why the context of a released lease ended.
	ErrReleased = errors.New("redlock: lease released")
	// ErrClosed means the client was closed.
	ErrClosed = errors.New("redlock: client closed")
	// ErrInvalid means the call or the configuration is wrong; the text names the field and the remedy.
	ErrInvalid = errors.New("redlock: invalid")
)

// A RoundError is a round that did not succeed. It is one of [ErrHeld], [ErrNoQuorum] and [ErrLost] by
// [errors.Is], never two of them. [errors.As] finds what the nodes said: a [*NodeError], a [*Denial], a
// [*QuarantineError].
//
// Error is one line. The verb %+v adds a line for each node that did not grant.
type RoundError struct {
	Op                             string            // acquire, extend, release, inspect or enroll
	Names                          []string          // the lock's names
	Need, Granted, Denied, Unknown int               // votes: how many it takes, and what they were
	Err                            *multierror.Error // a [*NodeError] for each node that did not grant

	kind error
	note string
}

func (e *RoundError) Error() string { return e.head() + e.causes() }

// head is what happened, without what each node said.
func (e *RoundError) head() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s", e.kind, e.Op)
	if len(e.Names) > 0 {
		b.WriteString(" " + quoted(e.Names))
	}
	if e.note != "" {
		b.WriteString(": " + e.note)
	}
	if e.Granted+e.Denied+e.Unknown > 0 {
		fmt.Fprintf(&b, " (%d granted, %d denied, %d unknown, need %d)", e.Granted, e.Denied, e.Unknown, e.Need)
	}
	return b.String()
}

// causes says each cause once, with the nodes that share it.
func (e *RoundError) causes() string {
	if e.Err == nil {
		return ""
	}
	type cause struct {
		text  string
		nodes []string
	}
	var causes []*cause
	byKey := map[string]*cause{}
	for _, err := range e.Err.Errors {
		key, text := causeOf(err)
		c := byKey[key]
		if c == nil {
			c = &cause{text: text}
			byKey[key] = c
			causes = append(causes, c)
		}
		var n *NodeError
		if errors.As(err, &n) {
			c.nodes = append(c.nodes, printable(n.Node))
		}
	}
	var b strings.Builder
	for i, c := range causes {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + c.text)
		if len(c.nodes) > 0 {
			fmt.Fprintf(&b, " [%s]", strings.Join(c.nodes, " "))
		}
	}
	return b.String()
}

// causeOf is what a node said without what differs from node to node, and as it is told once for all of them.
func causeOf(err error) (key, text string) {
	var denial *Denial
	var quarantine *QuarantineError
	var network *net.OpError
	switch {
	case errors.As(err, &denial): // the time left differs by the moment of the answer
		return fmt.Sprint(denial.Reason, denial.Owner, denial.Left < 0), printable(denial.Error())
	case errors.As(err, &quarantine):
		return "quarantine", printable(quarantine.Error())
	case errors.As(err, &network): // it names the node's address, which the node's name does
		text = network.Op + ": " + network.Err.Error()
	case errors.Is(err, io.EOF):
		text = "it closed the connection"
	default:
		if n := (*NodeError)(nil); errors.As(err, &n) {
			err = n.Err
		}
		text = err.Error()
	}
	text = printable(text)
	return text, text
}

// Format adds a line for each node to the error where the verb is %+v.
func (e *RoundError) Format(s fmt.State, verb rune) {
	switch {
	case verb == 'v' && s.Flag('+'):
		_, _ = io.WriteString(s, e.head())
		if e.Err != nil {
			for _, err := range e.Err.Errors {
				_, _ = io.WriteString(s, "\n\t"+err.Error())
			}
		}
	case verb == 'v' || verb == 's':
		_, _ = io.WriteString(s, e.Error())
	default:
		fmt.Fprintf(s, fmt.FormatString(s, verb), e.Error())
	}
}

// Is looks among the nodes' errors for all but the sentinels that say what became of the whole round: a single
// node that says held does not make an outage [ErrHeld].
func (e *RoundError) Is(target error) bool {
	switch target {
	case ErrHeld, ErrNoQuorum, ErrLost:
		return target == e.kind
	}
	return e.Err != nil && errors.Is(e.Err, target)
}

// As finds the nodes' errors.
func (e *RoundError) As(target any) bool { return e.Err != nil && errors.As(e.Err, target) }

// Unwrap gives [errors.Is] and [errors.As] the kind of the failure.
func (e *RoundError) Unwrap() []error {
	if e.kind == nil {
		return nil
	}
	return []error{e.kind}
}

// A NodeError is one node's reason for not granting: a [*Denial] if it said no, a [*QuarantineError], or why no
// answer that counts came. It is [ErrHeld] by [errors.Is] if the node said that another has the lock.
type NodeError struct {
	Node string // its name
	Err  error
}

func (e *NodeError) Error() string { return printable(e.Node + ": " + e.Err.Error()) }

// Unwrap returns the reason.
func (e *NodeError) Unwrap() error { return e.Err }

// A Denial is a node's no.
type Denial struct {
	Reason Reason
	// Owner is what the key in the way holds: a [Lease.Token], or whatever another program wrote. Empty where the
	// reason is not ReasonHeld, and where the key is no string.
	Owner string
	// Left is how long that key, or the quarantine, goes on if nothing else happens, as of the answer, in steps of
	// a millisecond; negative: for ever.
	Left time.Duration
	// Highest is the largest fencing token that the node granted in the slots of the lock's names; 0: none, or
	// not told.
	Highest uint64
}

// A Reason is why a node said no.
type Reason uint8

const (
	ReasonHeld       Reason = iota // another owner has a key
	ReasonReserved                 // a key was released, and is reserved for a waiter
	ReasonStale                    // it granted a larger fencing token before; the client tries again above it
	ReasonMissing                  // a key of the lease is gone
	ReasonNotOurs                  // there was nothing of the lease to delete, or not all of it
	ReasonQuarantine               // it may have forgotten leases, and does not grant yet
)

func (r Reason) String() string {
	names := [...]string{"held", "reserved", "stale", "missing", "not ours", "quarantine"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// shownOwner is how many bytes of an owner an error shows. Half a token is enough to tell it, and too little to
// release its lock.
const shownOwner = 16

func (d *Denial) Error() string {
	until := fmt.Sprintf("for %v more", d.Left)
	if d.Left < 0 {
		until = "without expiry"
	}
	switch d.Reason {
	case ReasonHeld:
		owner, more := d.Owner, ""
		if len(owner) > shownOwner {
			owner, more = owner[:shownOwner], "…"
		}
		return fmt.Sprintf("held by %q%s %s", owner, more, until)
	case ReasonReserved:
		return "released, and reserved for a waiter " + until
	case ReasonStale:
		return fmt.Sprintf("granted the fencing token %d before, not below ours", d.Highest)
	case ReasonMissing:
		return "the key is gone"
	case ReasonQuarantine:
		return "in quarantine " + until
	default:
		return "the key was not ours"
	}
}

// Is reports whether the target is [ErrHeld] and another has the lock there.
func (d *Denial) Is(target error) bool {
	return target == ErrHeld && (d.Reason == ReasonHeld || d.Reason == ReasonReserved)
}

// A joined error is two, on one line: what ended a call, and what was known then.
type joined struct{ first, second error }

// join is first and second, or the one that is not nil.
func join(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return &joined{first, second}
}

func (j *joined) Error() string   { return j.first.Error() + ": " + j.second.Error() }
func (j *joined) Unwrap() []error { return []error{j.first, j.second} }

// Format passes %+v on.
func (j *joined) Format(s fmt.State, verb rune) {
	switch {
	case verb == 'v' && s.Flag('+'):
		fmt.Fprintf(s, "%+v: %+v", j.first, j.second)
	case verb == 'v' || verb == 's':
		_, _ = io.WriteString(s, j.Error())
	default:
		fmt.Fprintf(s, fmt.FormatString(s, verb), j.Error())
	}
}

// printable keeps what servers and other programs wrote from adding lines or controlling a terminal.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// invalid names the field at fault and the remedy.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrInvalid, field, fmt.Sprintf(format, args...))
}

func quoted(names []string) string {
	q := make([]string, len(names))
	for i, name := range names {
		q[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(q, ", ")
}
