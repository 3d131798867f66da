package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// A KindsError is a result of [Client.Trial] for a node on which a mutex works, and other kinds of lock do not, or
// waiters wait longer, because the node's user lacks rights.
type KindsError struct {
	Kinds  []string // the kinds of lock that fail: "fair locks", "readers and permits"; none: only waiters wait longer
	Rights []string // what the user lacks, as ACL SETUSER takes it: "+zrank"

	text string
	err  error
}

func (e *KindsError) Error() string { return e.text }

// Unwrap returns the server's first refusal.
func (e *KindsError) Unwrap() error { return e.err }

// The kinds of lock that need rights which a mutex does not need.
const (
	kindFair   = "fair locks"
	kindShared = "readers and permits"
)

var (
	everyKind   []string // a mutex too
	onlyFair    = []string{kindFair}
	onlyShared  = []string{kindShared}
	allButMutex = []string{kindFair, kindShared}
	noKind      = []string{}
)

// A trialCommand is one command of the scripts, as a trial gives it to a node. It changes nothing that lasts.
type trialCommand struct {
	kinds  []string // the kinds of lock that need it; nil: every kind
	slower bool     // without it, waiters of the kinds that do not need it wait longer
	name   string
	args   []any
}

// trialCommands are commands that the rounds of a trial may not show. The scripts go on without some of them where they
// are forbidden (redis.pcall), a mutex never runs the script that has them, or a node that does not vote refuses before it
// comes to them. A test tries every kind of lock on servers without each right.
func trialCommands(lockKey string, me any) []trialCommand {
	queue, tickets, lives := waitPrefix+lockKey, fairTicketPrefix+lockKey, fairUntilPrefix+lockKey
	return []trialCommand{
		{everyKind, false, "SET", []any{lockKey, "", "XX", "PX", 1}}, // there is no such key
		{everyKind, false, "ZADD", []any{queue, 1, me}},
		{everyKind, false, "PEXPIRE", []any{queue, 60_000}}, // for a user who may do nothing of what removes it again
		{allButMutex, true, "ZRANGE", []any{queue, 0, 0}},   // fair locks fail once a waiter is ahead
		{allButMutex, true, "ZREM", []any{queue, me}},       // fair locks fail once a waiter's place has ended
		{noKind, true, "ZPOPMIN", []any{queue}},
		{everyKind, false, "DEL", []any{queue}}, // a release that reserves the key does not show it
		{onlyFair, false, "ZRANK", []any{tickets, me}},
		{onlyFair, false, "ZCARD", []any{tickets}},
		{onlyFair, false, "ZREVRANGE", []any{tickets, 0, 0}},
		{onlyFair, false, "ZRANGEBYSCORE", []any{lives, 0, 0}},
		{onlyShared, false, "EXISTS", []any{lockKey}},
		{onlyShared, false, "PEXPIREAT", []any{lockKey, 1}},
		{onlyShared, false, "ZREMRANGEBYSCORE", []any{lockKey, 0, 0}},
	}
}

// A refusedCommand is what a server answered to a command of a trial.
type refusedCommand struct {
	trialCommand
	err error
}

// refusals makes one error of the commands that failed: that of a mutex, or of the connection, if there is one.
func refusals(failed []refusedCommand) error {
	if len(failed) == 0 {
		return nil
	}
	e := &KindsError{err: failed[0].err}
	need := map[string][]string{}
	var slower []string
	for _, f := range failed {
		if refused := redis.Error(""); f.kinds == nil || !errors.As(f.err, &refused) {
			return fmt.Errorf("%s: %w", f.name, f.err)
		}
		right := "+" + strings.ToLower(f.name)
		e.Rights = append(e.Rights, right)
		if f.slower {
			slower = append(slower, right)
		}
		for _, kind := range f.kinds {
			need[kind] = append(need[kind], right)
		}
	}
	e.Kinds = slices.Sorted(maps.Keys(need))
	var costs []string
	for _, kind := range e.Kinds {
		costs = append(costs, kind+" need "+strings.Join(need[kind], " "))
	}
	if len(slower) > 0 {
		costs = append(costs, "without "+strings.Join(slower, " ")+" waiters wait longer for any lock")
	}
	e.text = fmt.Sprintf("its user lacks rights without which a mutex works: %s: %v", strings.Join(costs, ", and "), e.err)
	return e
}

// forbids reports whether it is an error of a mutex, because the node's user lacks a right.
func forbids(why error) bool {
	return isRefusal(why) && !errors.As(why, new(*KindsError))
}

// tryCommands adds to each node's problems what the commands show.
func (c *Client) tryCommands(ctx context.Context, l *spec, nodes []error) error {
	type answer struct {
		node    int
		refused []refusedCommand
	}
	answers := make(chan answer, len(c.nodes))
	var asked nodeSet
	for i, n := range c.nodes {
		commands := trialCommands(l.res.keys[0].(string), c.waiters.me)
		why := n.tryCommands(commands, func(refused []refusedCommand) { answers <- answer{i, refused} })
		switch {
		case why == nil:
			asked.add(i)
		case nodes[i] == nil:
			nodes[i] = why
		}
	}
	err := gather(ctx, c, c.stallTimeout(), asked.len(), answers, func(a answer) {
		asked &^= 1 << a.node
		// That a node does not vote hides what its user may not do once it does.
		if why := refusals(a.refused); nodes[a.node] == nil || forbids(why) && !isRefusal(nodes[a.node]) {
			nodes[a.node] = why
		}
	})
	if err != nil {
		return err
	}
	for i := range nodes {
		if asked.has(i) && nodes[i] == nil {
			nodes[i] = errSilent
		}
	}
	return nil
}

// tryCommands gives these commands to the node, and calls done once all are answered. It returns why the node is away.
func (n *node) tryCommands(commands []trialCommand, done func(refused []refusedCommand)) error {
	var refused []refusedCommand
	requests := make([]request, 0, len(commands))
	for i, t := range commands {
		requests = append(requests, request{command: &command{name: t.name, args: t.args,
			done: func(_ *node, _ request, _ any, err error) { // all of them are called by the node's one reader
				if err != nil {
					refused = append(refused, refusedCommand{t, err})
				}
				if i == len(commands)-1 {
					done(refused)
				}
			}}})
	}
	n.mu.Lock()
	up, why := n.up, n.why
	if up {
		n.queue = append(n.queue, requests...)
	}
	n.mu.Unlock()
	if !up {
		return why
	}
	n.wakeUp()
	return nil
}
