package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-multierror"

	"github.com/quorumlock/redlock/internal/conn"
)

// Each of these asks the caller to do something different. [errors.Is] matches every error that a call returns with one
// of them, except errors that come from the caller: of a context, or of a function.
var (
	// ErrHeld: wait. A quorum of nodes answered, and somebody else has the lock or is about to get it.
	ErrHeld = errors.New("redlock: held by another")
	// ErrNoQuorum: look at the nodes. Too few of them could vote, or they were too slow. For a release it means that it
	// is not known whether a quorum released the lock.
	ErrNoQuorum = errors.New("redlock: no quorum of nodes")
	// ErrLost: stop the work. Another client may have the lock.
	ErrLost = errors.New("redlock: lease lost")
	// ErrReleased: the lease was released or detached. It is the cause with which the lease's context ends.
	ErrReleased = errors.New("redlock: lease released")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("redlock: client closed")
	// ErrInvalid: the call or the configuration is wrong. The text names the field and the remedy.
	ErrInvalid = errors.New("redlock: invalid")
)

// A RoundError says why a round did not succeed. [errors.Is] matches it with exactly one of [ErrHeld], [ErrNoQuorum]
// and [ErrLost]. [errors.As] finds what the nodes said: a [*NodeError], a [*Denial], a [*QuarantineError], a
// [*ConfigError].
//
// Error returns one line. The verb %+v adds a line for each node that did not grant.
type RoundError struct {
	Op                             string            // acquire, extend, release, detach, adopt, inspect, enroll or "read the configuration"
	Names                          []string          // the lock's names
	Need, Granted, Denied, Unknown int               // votes: how many grants it takes, and how many of each came
	Err                            *multierror.Error // a [*NodeError] for each node that did not grant; nil: none

	kind     error
	note     string
	enrolled []string // of an enrolment, the nodes that did grant: an operator must know them
}

func (e *RoundError) Error() string { return e.head() + e.causes() }

// head says what happened, without the nodes' reasons.
func (e *RoundError) head() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s", e.kind, e.Op)
	if len(e.Names) > 0 {
		b.WriteString(" " + listed(e.Names))
	}
	if e.note != "" {
		b.WriteString(": " + e.note)
	}
	switch {
	case e.Op == opEnroll:
		b.WriteString(": enrolled: " + cmp.Or(strings.Join(e.enrolled, ", "), "none") + "; not enrolled")
	case e.Granted+e.Denied+e.Unknown > 0:
		fmt.Fprintf(&b, " (%d granted, %d denied, %d unknown, need %d)", e.Granted, e.Denied, e.Unknown, e.Need)
	}
	return b.String()
}

// causes says each reason once, with the nodes that gave it.
func (e *RoundError) causes() string {
	if e.Err == nil {
		return ""
	}
	var all causes
	for _, err := range e.Err.Errors {
		c := all.of(err)
		var n *NodeError
		if errors.As(err, &n) {
			c.nodes = append(c.nodes, printable(n.Node))
		}
	}
	// What a node said comes before what is only about the round: that nobody asked the node, or waited for it.
	slices.SortStableFunc(all, func(a, b *cause) int { return cmp.Compare(a.rank, b.rank) })
	var b strings.Builder
	for i, c := range all {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		switch {
		case e.Op == opEnroll:
			b.WriteString(sep + c.byNodes())
		case len(c.nodes) > 0:
			fmt.Fprintf(&b, "%s%s [%s]", sep, c.text, strings.Join(c.nodes, " "))
		default:
			b.WriteString(sep + c.text)
		}
	}
	return b.String()
}

// A cause is a reason that several nodes may have. causeOf has its key and its text.
type cause struct {
	key, text string
	nodes     []string
	rank      int // 1: it says nothing about the node
}

// byNodes is the cause behind the names of its nodes.
func (c *cause) byNodes() string { return strings.Join(c.nodes, ", ") + ": " + c.text }

// causes has each reason once.
type causes []*cause

// of is the cause of this error. It is added if it is not there.
func (all *causes) of(err error) *cause {
	key, text := causeOf(err)
	for _, c := range *all {
		if c.key == key {
			return c
		}
	}
	c := &cause{key: key, text: text}
	if saysNothing(err) {
		c.rank = 1
	}
	*all = append(*all, c)
	return c
}

// saysNothing reports whether the error tells about the round alone, and nothing about the node.
func saysNothing(err error) bool {
	for _, only := range []error{errCutShort, errNotAwaited, errNotNeeded, errNeverHad, errDistrusted, errNotAsked} {
		if errors.Is(err, only) {
			return true
		}
	}
	return false
}

// causeOf returns the text of a node's reason, and a key that is equal for nodes with the same reason. Neither has the
// node's own address or name, which would make every reason different.
func causeOf(err error) (key, text string) {
	var denial *Denial
	var quarantine *QuarantineError
	var network *net.OpError
	var credentials *conn.CredentialsError
	var secure *tlsError
	switch {
	case errors.As(err, &denial): // the key has no time left, which is a little different on every node
		return fmt.Sprint(denial.Reason, denial.Owner, denial.Left < 0), printable(denial.Error())
	case errors.As(err, &quarantine):
		return "quarantine", printable(quarantine.Error())
	case errors.As(err, &credentials): // before network: what its function cannot reach is not the node
		text = credentials.Error()
	case errors.As(err, &secure): // likewise, because it has the remedy
		text = secure.Error()
	case errors.As(err, &network): // without the address: the node's name is shown
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

// inShort is causeOf for one node: a quarantine without how it ends.
func inShort(err error) string {
	if q := (*QuarantineError)(nil); errors.As(err, &q) {
		return fmt.Sprintf("in quarantine for %v more", inBrief(q.Left))
	}
	_, text := causeOf(err)
	return text
}

// Format writes the error. With the verb %+v it adds a line for each node that did not grant.
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

// LogValue is Error, because [slog.TextHandler] would write an error with %+v.
func (e *RoundError) LogValue() slog.Value { return slog.StringValue(e.Error()) }

// Is searches the nodes' errors, except for [ErrHeld], [ErrNoQuorum] and [ErrLost], which describe the whole round: one
// node that says held does not turn an outage into [ErrHeld]. Nor does it search them for [context.Canceled] and
// [context.DeadlineExceeded]. These say that the caller's context ended, and not that a node was slow to connect.
func (e *RoundError) Is(target error) bool {
	switch target {
	case ErrHeld, ErrNoQuorum, ErrLost, context.Canceled, context.DeadlineExceeded:
		return errors.Is(e.kind, target)
	}
	return e.Err != nil && errors.Is(e.Err, target)
}

// As searches the nodes' errors.
func (e *RoundError) As(target any) bool { return e.Err != nil && errors.As(e.Err, target) }

// Unwrap returns [ErrHeld], [ErrNoQuorum] or [ErrLost], or an error that matches one of them and says more.
func (e *RoundError) Unwrap() []error {
	if e.kind == nil {
		return nil
	}
	return []error{e.kind}
}

// A NodeError is why one node did not grant. [errors.Is] matches it with [ErrHeld] if the node said that another has
// the lock.
type NodeError struct {
	Node string // the node's name
	Err  error  // a [*Denial] if it said no, a [*QuarantineError], or why it gave no answer that counts
}

func (e *NodeError) Error() string {
	if e.Err == nil { // a user made it, as for a test
		return printable(e.Node)
	}
	return printable(e.Node + ": " + e.Err.Error())
}

// Unwrap returns the reason.
func (e *NodeError) Unwrap() error { return e.Err }

// A Denial is what a node said when it did not grant.
type Denial struct {
	Reason Reason
	// Owner is the value of the key in the way: a [Lease.Token], or the first 2048 bytes of what another program wrote. It
	// is empty if Reason is not ReasonHeld, or if the key is no string.
	// For a key that several share it is "readers" or "permits"; see [Client.RWMutex] and [Client.Semaphore].
	Owner string
	// Left is how much longer that key, or the quarantine, lasts if nothing else happens. It is in whole milliseconds,
	// as of the answer. Negative: for ever. It has no meaning if Reason is ReasonBehind.
	Left time.Duration
	// Highest is the largest fencing token that the node knows in the fence slots of the lock's names. It may be above
	// that of whoever holds the lock; see [State.Fence]. 0: none, or the node did not say.
	Highest uint64
	// Free is which slots of a semaphore were free on the node, if these were enough: the permit that was asked for was
	// taken, and the client asks for another. Permits is the largest number of permits that a holder on the node knows,
	// which may be more than this client does. 0: it is no semaphore, or the node did not say.
	Free    []int
	Permits int
}

// A Reason says why a node did not grant.
type Reason uint8

const (
	ReasonHeld       Reason = iota // another owner has a key
	ReasonReserved                 // a key was released and is reserved for a waiter
	ReasonStale                    // it granted a fencing token that is not smaller; the client tries again
	ReasonMissing                  // a key of the lease is gone
	ReasonNotOurs                  // not all keys of the lease were there to delete
	ReasonQuarantine               // it may have forgotten leases, and does not grant before these are over
	ReasonBehind                   // the lock is fair and free there, and waiters are ahead
)

func (r Reason) String() string {
	names := [...]string{"held", "reserved", "stale", "missing", "not ours", "quarantine", "behind"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

func (d *Denial) Error() string {
	until := fmt.Sprintf(" for %v more", inBrief(d.Left))
	if d.Left < 0 {
		until = ", without expiry"
	}
	switch d.Reason {
	case ReasonHeld:
		if d.Owner == "" && d.Left == 0 {
			return "held"
		}
		who := "something that is not a lock" // the key is no string
		if d.Owner != "" {
			who = holderIn(d.Owner, d.Left).String()
			if isForeign(d.Owner) {
				who += " (not a lock of this library)"
			}
		}
		return "held by " + who + until
	case ReasonReserved:
		return "released, and reserved for a waiter" + until
	case ReasonStale:
		return fmt.Sprintf("granted the fencing token %d before, not below ours", d.Highest)
	case ReasonMissing:
		return "the key is gone"
	case ReasonQuarantine:
		return "in quarantine" + until
	case ReasonBehind:
		return "free, but waiters of the fair lock are ahead"
	default:
		return "the key was not ours"
	}
}

// Is matches [ErrHeld] if another has the lock on this node, or if it is reserved there, or waiters are ahead.
func (d *Denial) Is(target error) bool {
	return target == ErrHeld && (d.Reason == ReasonHeld || d.Reason == ReasonReserved || d.Reason == ReasonBehind)
}

// A joined error is two errors on one line: what ended a call, and what was known at that moment.
type joined struct{ first, second error }

// join joins two errors. If one is nil, it returns the other.
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

// Format passes %+v on to both errors.
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

// LogValue is Error; see [RoundError.LogValue].
func (j *joined) LogValue() slog.Value { return slog.StringValue(j.Error()) }

// printable replaces what is not printable with spaces: what servers and other programs wrote must not add lines or
// control a terminal.
func printable(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// invalid makes an ErrInvalid. The format says what is wrong with the field, and the remedy.
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

// maxListed is how many names of a lock a text for people has. A thousand names of a kilobyte would be a megabyte, in each
// error and in each line of a log that has it.
const maxListed = 10

// listed is quoted for people: of many names the first ones, and how many more there are.
func listed(names []string) string {
	if len(names) <= maxListed {
		return quoted(names)
	}
	return fmt.Sprintf("%s and %d more", quoted(names[:maxListed]), len(names)-maxListed)
}

// A QuarantineError is why a node that is connected does not vote: it may have forgotten leases that it
// granted, because it restarted, was flushed, replaced, rolled back or promoted, or because it is new. It
// does not grant until the last of these leases must have expired. [Client.Enroll] with [OnlyNew] ends the quarantine of
// servers that nobody has used yet.
type QuarantineError struct {
	Left time.Duration // how much of the quarantine is left, as the server last said
}

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("%s (%s)", e.withoutRemedy(), howQuarantineEnds)
}

func (e *QuarantineError) withoutRemedy() string {
	return fmt.Sprintf("in quarantine for %v more: it is new, or it restarted or was flushed and may have forgotten leases",
		e.Left.Round(time.Millisecond))
}

// howQuarantineEnds is read after a crash too, when to enroll may let two clients have one lock. So waiting comes first.
const howQuarantineEnds = "it votes again by itself; only for nodes that nobody has used yet, " +
	"Client.Enroll with OnlyNew or `redlock enroll --only-new` ends this now"
