package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quorumlock/redlock"
)

// A noLockError says that a key is no lock, and what to do about that.
type noLockError struct{ text string }

func (e *noLockError) Error() string { return e.text }

func notALock(format string, args ...any) error {
	return &exitError{exitUsage, &noLockError{fmt.Sprintf(format, args...)}}
}

// noLock returns an error for a refusal by keys that are no locks, on so many nodes that no quorum is left. Every lock of
// this library expires, and those of other libraries do: what stays for ever is other data of that name, and a wait for
// it, or another try, is in vain. It returns nil for any other refusal.
func noLock(refusal error) error {
	var round *redlock.RoundError
	if !errors.As(refusal, &round) || !errors.Is(round, redlock.ErrHeld) {
		return nil
	}
	refused, all := nodeErrors(refusal)
	on, isString, holds := 0, false, "something that is not a string"
	for _, node := range refused {
		var denial *redlock.Denial
		if !errors.As(node, &denial) || !staysForEver(denial) {
			continue
		}
		on++
		if holder, ok := denial.Holder(); ok {
			isString, holds = true, printable(holder.String())
		}
	}
	if on == 0 || all-on >= round.Need {
		return nil
	}
	return notALock("%s not a lock: on %s it is %s, which never expires; %s",
		areNames(round.Names), plural(on, "node"), holds, howToClear(round.Names, isString))
}

// staysForEver reports whether what is in the way never expires.
func staysForEver(d *redlock.Denial) bool {
	return d.Reason == redlock.ReasonHeld && d.Left < 0 && d.Owner != "readers" && d.Owner != "permits"
}

// areNames names the locks, with a verb: a refusal does not say which of several is in the way.
func areNames(names []string) string {
	if len(names) == 1 {
		return printable(names[0]) + " is"
	}
	return "one of " + strings.Join(allPrintable(names), ", ") + " is"
}

// howToClear says how to get rid of other data under the name of a lock.
func howToClear(names []string, isString bool) string {
	const otherwise = ", or use another name or --prefix"
	if !isString || len(names) > 1 {
		return "delete the key by hand" + otherwise
	}
	return "delete it (redlock release --force --foreign " + printable(names[0]) + ")" + otherwise
}
