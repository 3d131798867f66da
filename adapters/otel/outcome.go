package redlockotel

import (
	"context"
	"errors"

	"github.com/quorumlock/redlock"
)

// outcomeOf is a word out of a few. A context that ended comes first: the error then also says what was in the way.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded"
	case errors.Is(err, redlock.ErrLost):
		return "lost"
	case errors.Is(err, redlock.ErrClosed):
		return "closed"
	case errors.Is(err, redlock.ErrHeld):
		return "held"
	case errors.Is(err, redlock.ErrNoQuorum):
		return "no_quorum"
	case errors.Is(err, redlock.ErrInvalid):
		return "invalid"
	default:
		return "other"
	}
}

// failed reports whether somebody should look at it. Contention, and a caller who gives up, are usual.
func failed(outcome string) bool {
	switch outcome {
	case "ok", "held", "canceled":
		return false
	}
	return true
}
