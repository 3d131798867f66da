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
	unread  bool   // the node's user may not read the key
	owner   string // "": nobody; "?": no lock
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
	again  bool // it was asked before, on a connection that broke
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
	blind     []error  // why it may not do what top.lua does
	others    []others // keys of the node that are no locks; used by its questions, of which there is one at a time
	asked     bool     // before that, nodes may still be connecting
	up        []atomic.Bool
}

// newTopNodes connects until ctx ends. done waits for the end.
func newTopNodes(ctx context.Context, nodes access.Client) (t *topNodes, done func()) {
	t = &topNodes{nodes: nodes, cursors: make([]string, nodes.Nodes()), refused: make([]error, nodes.Nodes()),
		blind: make([]error, nodes.Nodes()), others: make([]others, nodes.Nodes()), up: make([]atomic.Bool, nodes.Nodes())}
	var wg sync.WaitGroup
	for range nodes.Nodes() {
		t.questions = append(t.questions, make(chan question))
	}
	for i := range nodes.Nodes() {
		wg.Go(func() {
			var open *question
			nodes.Keep(ctx, i, func(conn redis.Conn) (bool, error) {
				defer t.up[i].Store(false)
				return t.serve(ctx, conn, i, &open)
			})
		})
	}
	return t, wg.Wait
}

// serve answers questions on the connection until it breaks. A question that takes too long ends the connection: it
// has no read timeout of its own. Servers close idle connections, and only a question shows that. So the first one that finds
// a connection broken stays open, and is asked once more on the next connection.
func (t *topNodes) serve(ctx context.Context, conn redis.Conn, node int, open **question) (worked bool, err error) {
	if err := load(conn); err != nil {
		return false, err
	}
	t.up[node].Store(true)
	for {
		q := *open
		if *open = nil; q == nil {
			select {
			case <-ctx.Done():
				return worked, ctx.Err()
			case asked := <-t.questions[node]:
				q = &asked
			}
		}
		late := time.AfterFunc(2*t.nodes.NodeTimeout(), func() { conn.Close() })
		value, err := q.ask(conn)
		if late.Stop() && conn.Err() != nil && !q.again {
			q.again, *open = true, q
			return worked, conn.Err()
		}
		q.answer <- nodeAnswer{node, value, err}
		if conn.Err() != nil {
			return worked, conn.Err()
		}
		worked = true
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
			case questions <- question{ask: func(conn redis.Conn) (any, error) { return ask(i, conn) }, answer: got}:
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

// look returns what each node has for each key. A node that did not answer is missing, and so is one that refused the last
// question about keys.
func (t *topNodes) look(ctx context.Context, keys []string) map[int][]sighting {
	answers := t.ask(ctx, func(_ int, conn redis.Conn) (any, error) { return lookOn(conn, keys) })
	seen := map[int][]sighting{}
	for _, a := range answers {
		if refusalOf(a.err) != "" {
			t.blind[a.node] = a.err
		}
		if all, ok := a.value.([]sighting); ok && a.err == nil {
			if len(keys) > 0 {
				t.blind[a.node] = nil
			}
			if t.blind[a.node] == nil {
				seen[a.node] = all
			}
		}
	}
	return seen
}

// lookOn returns what one node has for each key.
func lookOn(conn redis.Conn, keys []string) ([]sighting, error) {
	all, err := lookSome(conn, keys, locksAtOnce)
	if strings.HasPrefix(refusalOf(err), "NOSCRIPT") { // it was flushed
		if err = load(conn); err == nil {
			all, err = lookSome(conn, keys, locksAtOnce)
		}
	}
	return all, err
}

// refusalOf is what the server said; "": the error is none of a server.
func refusalOf(err error) string {
	var refusal redis.Error
	errors.As(err, &refusal)
	return string(refusal)
}

// mayNotRead reports whether a server refused a command because of a key, and not because of the command. Redis 6 and 7 word
// it differently.
func mayNotRead(err error) bool {
	refusal := refusalOf(err)
	return strings.HasPrefix(refusal, "NOPERM") && strings.Contains(refusal, "access") && strings.Contains(refusal, "key")
}

// lookSome is lookOn, with so many keys in one command. If the user may not read one of these, the
// server says only that, and each of them is asked for alone.
func lookSome(conn redis.Conn, keys []string, atOnce int) (all []sighting, failed error) {
	for some := range slices.Chunk(keys, atOnce) {
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
	var alone []int                                // indexes
	for some := range slices.Chunk(keys, atOnce) { // every reply is received, also after a refusal
		reply, err := redis.Values(conn.Receive())
		seen := make([]sighting, len(some))
		switch {
		case conn.Err() != nil:
			return nil, conn.Err()
		case mayNotRead(err) && atOnce == 1:
			seen[0].unread = true
		case mayNotRead(err):
			for i := range some {
				alone = append(alone, len(all)+i)
			}
		case err != nil:
			failed = err
		default:
			if seen, err = readSightings(reply, len(some)); err != nil {
				failed = err
			}
		}
		all = append(all, seen...)
	}
	if len(alone) == 0 || failed != nil {
		return all, failed
	}
	each := make([]string, len(alone))
	for i, at := range alone {
		each[i] = keys[at]
	}
	seen, err := lookSome(conn, each, 1)
	for i, at := range alone[:len(seen)] {
		all[at] = seen[i]
	}
	return all, err
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
			s.unread = s.kind == "unread"
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
