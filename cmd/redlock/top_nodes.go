package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/access"
)

// How redlock top and redlock inspect --all ask the nodes. They have a connection of their own to each of them, and ask
// them all at once.

const (
	locksAtOnce = 100 // for one command, so that no server is busy with it for long
	queuePrefix = "redlock:wait:"
)

//go:embed top.lua
var topSource string

var topScript = access.NewScript(topSource)

// A sighting is what one node has for one lock.
type sighting struct {
	owner   string // "": nobody; "?": no string, and not shared
	kind    string // of those that share it: readers or permits
	sharers []string
	left    time.Duration
	waiters []string
	waits   time.Duration // of the waiter that has waited for longest
}

// A question is answered by one node, on its connection.
type question struct {
	ask    func(redis.Conn) (any, error)
	answer chan<- nodeAnswer
}

type nodeAnswer struct {
	node  int
	value any
	err   error
}

// topNodes has one connection to each node.
type topNodes struct {
	nodes     access.Client
	questions []chan question
	cursors   []string // of SCAN, by node; the asker's
	refused   []error  // why a node's user may not SCAN
	asked     bool     // before that, nodes may still be connecting
	up        []atomic.Bool
}

// newTopNodes connects until ctx ends. done waits for the end.
func newTopNodes(ctx context.Context, nodes access.Client) (t *topNodes, done func()) {
	t = &topNodes{nodes: nodes, cursors: make([]string, nodes.Nodes()), refused: make([]error, nodes.Nodes()),
		up: make([]atomic.Bool, nodes.Nodes())}
	var wg sync.WaitGroup
	for range nodes.Nodes() {
		t.questions = append(t.questions, make(chan question))
	}
	for i := range nodes.Nodes() {
		wg.Go(func() {
			nodes.Keep(ctx, i, func(conn redis.Conn) (bool, error) {
				defer t.up[i].Store(false)
				return t.serve(ctx, conn, i)
			})
		})
	}
	return t, wg.Wait
}

// serve answers questions on the connection until it breaks. A question that takes too long ends the connection: it
// has no read timeout of its own.
func (t *topNodes) serve(ctx context.Context, conn redis.Conn, node int) (worked bool, err error) {
	if err := load(conn); err != nil {
		return false, err
	}
	t.up[node].Store(true)
	for {
		select {
		case <-ctx.Done():
			return worked, ctx.Err()
		case q := <-t.questions[node]:
			late := time.AfterFunc(2*t.nodes.NodeTimeout(), func() { conn.Close() })
			value, err := q.ask(conn)
			late.Stop()
			q.answer <- nodeAnswer{node, value, err}
			if conn.Err() != nil {
				return worked, conn.Err()
			}
			worked = true
		}
	}
}

func load(conn redis.Conn) error {
	_, err := conn.Do("SCRIPT", "LOAD", topScript.Source)
	return err
}

// ask asks every node and waits for the answers, no longer than NodeTimeout, the first time four times as long. A node
// that is away gives none.
func (t *topNodes) ask(ctx context.Context, ask func(node int, conn redis.Conn) (any, error)) (answers []nodeAnswer) {
	patience, first := t.nodes.NodeTimeout(), !t.asked
	if first {
		t.asked, patience = true, 4*patience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got := make(chan nodeAnswer, len(t.questions)) // a late answer blocks nobody
	var asked sync.WaitGroup
	for i, questions := range t.questions {
		if !first && !t.up[i].Load() {
			got <- nodeAnswer{node: i}
			continue
		}
		asked.Go(func() {
			select {
			case questions <- question{func(conn redis.Conn) (any, error) { return ask(i, conn) }, got}:
			case <-ctx.Done():
				got <- nodeAnswer{i, nil, ctx.Err()}
			}
		})
	}
	for range t.questions {
		select {
		case a := <-got:
			answers = append(answers, a)
		case <-ctx.Done():
			asked.Wait()
			return answers
		}
	}
	return answers
}

// look returns what each node has for each key. A node that did not answer is missing.
func (t *topNodes) look(ctx context.Context, keys []string) map[int][]sighting {
	answers := t.ask(ctx, func(_ int, conn redis.Conn) (any, error) {
		all, err := lookOn(conn, keys)
		if refusal := redis.Error(""); errors.As(err, &refusal) && strings.HasPrefix(string(refusal), "NOSCRIPT") { // it was flushed
			if err = load(conn); err == nil {
				all, err = lookOn(conn, keys)
			}
		}
		return all, err
	})
	seen := map[int][]sighting{}
	for _, a := range answers {
		if all, ok := a.value.([]sighting); ok && a.err == nil {
			seen[a.node] = all
		}
	}
	return seen
}

// lookOn returns what one node has for each key.
func lookOn(conn redis.Conn, keys []string) ([]sighting, error) {
	for some := range slices.Chunk(keys, locksAtOnce) {
		args := []any{topScript.Hash, 2 * len(some)}
		for _, key := range some {
			args = append(args, key, queuePrefix+key)
		}
		if err := conn.Send("EVALSHA", args...); err != nil {
			return nil, err
		}
	}
	if err := conn.Flush(); err != nil {
		return nil, err
	}
	var all []sighting
	var failed error
	for some := range slices.Chunk(keys, locksAtOnce) { // every reply is received, also after a refusal
		reply, err := redis.Values(conn.Receive())
		if conn.Err() != nil {
			return nil, conn.Err()
		}
		if err != nil {
			failed = err
			continue
		}
		seen, err := readSightings(reply, len(some))
		if err != nil {
			return nil, err
		}
		all = append(all, seen...)
	}
	return all, failed
}

// readSightings reads the reply of top.lua.
func readSightings(reply []any, count int) ([]sighting, error) {
	if len(reply) != 1+4*count {
		return nil, fmt.Errorf("top.lua replied %d values for %d locks", len(reply), count)
	}
	now, err := redis.Int64(reply[0], nil)
	if err != nil {
		return nil, err
	}
	seen := make([]sighting, count)
	for i := range seen {
		var left int64
		var since float64
		s, one := &seen[i], reply[1+4*i:5+4*i]
		if list, ok := one[0].([]any); ok { // several share it
			if s.sharers, err = redis.Strings(list, nil); err != nil || len(list) == 0 {
				return nil, fmt.Errorf("top.lua replied %v for those that share a lock", list)
			}
			s.kind, s.sharers = s.sharers[0], s.sharers[1:]
		} else if s.owner, err = redis.String(one[0], nil); err != nil {
			return nil, err
		}
		if _, err := redis.Scan(one[1:], &left, &s.waiters, &since); err != nil {
			return nil, err
		}
		s.left = time.Duration(left) * time.Millisecond
		if len(s.waiters) > 0 && since > 0 {
			s.waits = max(0, time.Duration(now-int64(since))*time.Microsecond)
		}
	}
	return seen, nil
}
