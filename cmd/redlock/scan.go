package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// How redlock top and redlock inspect --all find the locks: with SCAN on every node.

const (
	scanCalls = 20  // SCAN commands for each node and question
	scanCount = 500 // keys that one SCAN looks at
	scanTries = 3   // questions in a row to which a node does not answer, until it is given up

	// Keys that are no locks are remembered, so that not every look asks for them: so many of a node, and for so long.
	// They may become locks.
	maxOthers = 100_000
	othersFor = time.Minute
)

// A scanned is what one node has found.
type scanned struct {
	keys   []string // of locks that somebody has there, or waits for
	failed bool     // there may be more
	end    bool     // its last key was looked at
}

// scan goes on with SCAN on every node that is wanted. A node that gave no answer is missing. The caller must not change
// wanted after that: a question can be late.
func (t *topNodes) scan(ctx context.Context, prefix string, wanted []bool) map[int]scanned {
	pattern := globEscape.Replace(prefix) + "*"
	type page struct {
		keys   []string
		cursor string
		blind  bool // the error is about what the keys have
	}
	answers := t.ask(ctx, func(node int, conn redis.Conn) (any, error) {
		if !wanted[node] {
			return nil, nil
		}
		p := page{cursor: t.cursors[node]}
		began := time.Now()
		for calls := 0; calls < scanCalls && time.Since(began) < t.nodes.NodeTimeout()/2; calls++ { // one at least
			reply, err := redis.Values(conn.Do("SCAN", cmp.Or(p.cursor, "0"), "MATCH", pattern, "COUNT", scanCount))
			if err != nil {
				return p, err
			}
			var next string
			var found []string
			if _, err := redis.Scan(reply, &next, &found); err != nil {
				return p, err
			}
			locks, err := t.locksAmong(conn, node, prefix, found)
			if err != nil {
				p.blind = true
				return p, err
			}
			p.keys, p.cursor = append(p.keys, locks...), next
			if p.cursor == "0" {
				break
			}
		}
		return p, nil
	})
	all := map[int]scanned{}
	for _, a := range answers {
		if !wanted[a.node] {
			continue
		}
		p, ok := a.value.(page)
		t.refused[a.node] = nil
		if ok {
			t.blind[a.node] = nil
		}
		switch {
		case refusalOf(a.err) == "":
		case p.blind:
			t.blind[a.node] = a.err
		default:
			t.refused[a.node] = a.err
		}
		if ok {
			t.cursors[a.node] = p.cursor
			all[a.node] = scanned{keys: p.keys, failed: a.err != nil, end: a.err == nil && p.cursor == "0"}
		}
	}
	return all
}

// locksAmong are those of a node's keys that somebody has there as a lock, or waits for. The node is asked only for keys of
// its own: there may be millions, and other nodes list theirs in another order.
func (t *topNodes) locksAmong(conn redis.Conn, node int, prefix string, keys []string) (locks []string, err error) {
	others := &t.others[node]
	others.forget(time.Now())
	keys = slices.DeleteFunc(keys, func(key string) bool {
		_, _, err := t.nodes.Keys(strings.TrimPrefix(key, prefix))
		return err != nil || others.have(key)
	})
	seen, err := lookOn(conn, keys)
	if err != nil {
		return nil, err
	}
	for i, s := range seen {
		switch {
		case s.isLock():
			locks = append(locks, keys[i])
		case s.owner != "" || s.unread:
			others.add(keys[i])
		}
	}
	return locks, nil
}

// others are keys that are no locks.
type others struct {
	keys  map[string]struct{}
	since time.Time
}

func (o *others) have(key string) bool {
	_, have := o.keys[key]
	return have
}

func (o *others) add(key string) {
	if o.keys == nil || len(o.keys) >= maxOthers {
		o.keys = map[string]struct{}{}
	}
	o.keys[key] = struct{}{}
}

// forget forgets all of them from time to time.
func (o *others) forget(now time.Time) {
	if now.Sub(o.since) >= othersFor {
		o.keys, o.since = nil, now
	}
}

// atFirstKey reports whether the next SCAN begins anew on every node.
func (t *topNodes) atFirstKey() bool {
	return !slices.ContainsFunc(t.cursors, func(cursor string) bool { return cursor != "" && cursor != "0" })
}

// mayNotScan is why a node's user may not SCAN, if that is so on every node.
func (t *topNodes) mayNotScan() (err error) {
	for _, refused := range t.refused {
		if refused == nil {
			return nil
		}
		err = refused
	}
	return err
}

// findAll goes on with SCAN on every node to the last key, or until ctx ends, and hands out some keys at a time of
// locks that begin with the prefix; some more than once. It returns of which nodes it has seen the last key.
func (t *topNodes) findAll(ctx context.Context, prefix string, found func(keys []string)) (ended []bool) {
	ended = make([]bool, len(t.questions))
	missed := make([]int, len(t.questions))
	clear(t.refused) // a right that was missing at the last search may be there now
	for ctx.Err() == nil {
		wanted := make([]bool, len(t.questions))
		for node := range wanted {
			wanted[node] = !ended[node] && t.refused[node] == nil && missed[node] < scanTries
		}
		if !slices.Contains(wanted, true) {
			break
		}
		pages := t.scan(ctx, prefix, wanted)
		var keys []string
		for node := range wanted {
			s, answered := pages[node]
			keys = append(keys, s.keys...)
			ended[node] = ended[node] || s.end
			if missed[node]++; answered && !s.failed {
				missed[node] = 0
			}
		}
		found(keys)
	}
	return ended
}

var globEscape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "^", `\^`)
