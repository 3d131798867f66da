package redlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// What a caller may have to do about an error. Every error of this package that is not the caller's own
// (a context's, a function's) is one of these by [errors.Is].
var (
	// ErrHeld means wait: enough nodes answered, and somebody else has the lock or is taking it.
	ErrHeld = errors.New("redlock: held by another")
	// ErrNoQuorum means page someone: too few nodes could vote, or they were too slow to be of use.
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

// A RoundError is a round that did not succeed. It is [ErrHeld], [ErrNoQuorum] or [ErrLost] by
// [errors.Is], and so is every error of its nodes.
type RoundError struct {
	Op                             string            // acquire, extend, release, inspect, or ready (Enroll)
	Names                          []string          // the lock's names
	Need, Granted, Denied, Unknown int               // votes: how many it takes, and what they were
	Err                            *multierror.Error // a [*NodeError] for each node that did not grant

	kind error
	note string
}

func (e *RoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s %s: %d granted, %d denied, %d unknown, need %d",
		e.kind, e.Op, quoted(e.Names), e.Granted, e.Denied, e.Unknown, e.Need)
	if e.note != "" {
		fmt.Fprintf(&b, " (%s)", e.note)
	}
	if e.Err != nil {
		for i, err := range e.Err.Errors {
			sep := "; "
			if i == 0 {
				sep = ": "
			}
			b.WriteString(sep + err.Error())
		}
	}
	return b.String()
}

// Unwrap gives [errors.Is] and [errors.As] the kind of the failure and the errors of the nodes.
func (e *RoundError) Unwrap() []error {
	errs := make([]error, 0, 2)
	if e.kind != nil {
		errs = append(errs, e.kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// A NodeError is one node's reason for not granting.
type NodeError struct {
	Node string
	Err  error
}

func (e *NodeError) Error() string { return e.Node + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *NodeError) Unwrap() error { return e.Err }

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
