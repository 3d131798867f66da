package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
	var found otherData
	for _, node := range refused {
		var denial *redlock.Denial
		if errors.As(node, &denial) && staysForEver(denial) {
			holder, isString := denial.Holder()
			found.add(holder, isString)
			found.unsure = true // of an empty string, a refusal says the same
		}
	}
	return found.refusal(round.Names, all, round.Need)
}

// lookPatience bounds how long a wait that is over takes longer, to learn what was in the way.
const lookPatience = time.Second

// noLockAmong asks the nodes for the same. After a longer wait, a refusal is no answer to that: it may be of one node,
// because a client that waits does not ask all of them each time.
func noLockAmong(ctx context.Context, client *redlock.Client, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	for _, key := range keys {
		if state, _ := client.Inspect(ctx, key); state != nil {
			if never := noLockIn(state); never != nil {
				return never
			}
		}
	}
	return nil
}

// noLockIn says whether such keys leave no quorum. On a minority, they are in the way while other nodes are away. But if a key
// expires, somebody may hold the lock with nodes that do not answer here: then all nodes count.
func noLockIn(state *redlock.State) error {
	var found otherData
	expires := false
	for _, n := range state.Nodes {
		switch {
		case !n.Held:
		case n.Remaining >= 0 || n.NotString && n.Token != "":
			expires = true
		case n.Err == nil:
			holder, _ := n.Holder()
			found.add(holder, !n.NotString)
		}
	}
	count := state.Votes
	if expires || count < state.Quorum { // an outage
		count = len(state.Nodes)
	}
	return found.refusal([]string{state.Name}, count, state.Quorum)
}

// meetsOtherData reports whether a node refused by what never expires.
func meetsOtherData(refusal error) bool {
	refused, _ := nodeErrors(refusal)
	return slices.ContainsFunc(refused, func(node *redlock.NodeError) bool {
		var denial *redlock.Denial
		return errors.As(node, &denial) && staysForEver(denial)
	})
}

// otherData is what is under the name of a lock for ever.
type otherData struct {
	on       int // nodes
	isString bool
	text     string // what it is, if it is a string
	unsure   bool   // whether it is a string, if it is not known to be one
}

func (d *otherData) add(holder redlock.Holder, isString bool) {
	d.on++
	if isString {
		d.isString, d.text = true, printable(holder.String())
	}
	if isString && (holder.Token == "readers" || holder.Token == "permits") {
		d.text = strconv.Quote(holder.Token) // no readers of this library, but a string of that text
	}
}

// refusal is the error; nil if the other nodes are a quorum.
func (d *otherData) refusal(names []string, all, need int) error {
	if d.on == 0 || all-d.on >= need {
		return nil
	}
	what := d.text
	switch {
	case d.isString:
	case d.unsure:
		what = "an empty string, or something that is not a string"
	default:
		what = "something that is not a string"
	}
	return notALock("%s not a lock: on %s it is %s, which never expires; %s",
		areNames(names), plural(d.on, "node"), what, howToClear(names, d.isString))
}

// staysForEver reports whether what is in the way never expires. Locks that several share do, so "readers" that never
// expire are the string of another program.
func staysForEver(d *redlock.Denial) bool { return d.Reason == redlock.ReasonHeld && d.Left < 0 }

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
