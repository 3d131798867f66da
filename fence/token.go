package fence

import (
	"errors"
	"fmt"
)

var (
	// ErrStale means that the resource has seen a larger fencing token: another holder acquired the lock later. Stop.
	// It comes in a [*StaleError].
	ErrStale = errors.New("fence: stale")
	// ErrInvalid means a wrong argument. Most often it is the token 0, which a lock with Config.NoFence has. Nothing was
	// done.
	ErrInvalid = errors.New("fence: invalid")
)

// A StaleError is why a fencing token was refused. errors.Is matches it with [ErrStale].
type StaleError struct {
	Resource string
	Token    uint64 // the token that was refused
	Highest  uint64 // the largest token that the resource has seen
}

// Error returns one line.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: %q has seen the fencing token %d, and %d is smaller: another holder came later", ErrStale,
		e.Resource, e.Highest, e.Token)
}

// Unwrap returns [ErrStale].
func (e *StaleError) Unwrap() error { return ErrStale }

// tokenLimit is above all fencing tokens. Below it a double has every integer exactly. Lua's numbers are doubles.
const tokenLimit = 1 << 53

// checkToken refuses numbers that no lease has as its fencing token.
func checkToken(token uint64) error {
	switch {
	case token == 0:
		return fmt.Errorf("%w: 0 is not a fencing token: the lock has Config.NoFence, or the token was not sent", ErrInvalid)
	case token >= tokenLimit:
		return fmt.Errorf("%w: %d is not a fencing token: these are below 2^53", ErrInvalid, token)
	}
	return nil
}
