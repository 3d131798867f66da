package main

import (
	"cmp"
	"context"
	"errors"
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
)

// A scanned is what one node has found.
type scanned struct {
	keys   []string // of names that a lock may have
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
			var found []string
			if _, err := redis.Scan(reply, &p.cursor, &found); err != nil {
				return p, err
			}
			p.keys = append(p.keys, found...)
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
		t.refused[a.node] = nil
		if refusal := redis.Error(""); errors.As(a.err, &refusal) {
			t.refused[a.node] = a.err
		}
		p, ok := a.value.(page)
		if !ok {
			continue
		}
		t.cursors[a.node] = p.cursor
		s := scanned{failed: a.err != nil, end: a.err == nil && p.cursor == "0"}
		for _, key := range p.keys {
			if _, _, err := t.nodes.Keys(strings.TrimPrefix(key, prefix)); err == nil {
				s.keys = append(s.keys, key)
			}
		}
		all[a.node] = s
	}
	return all
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

// findAll goes on with SCAN on every node to the last key, or until ctx ends, and hands out some keys at a time of those that
// begin with the prefix and may be locks; some more than once. It returns of which nodes it has seen the last key.
func (t *topNodes) findAll(ctx context.Context, prefix string, found func(keys []string)) (ended []bool) {
	ended = make([]bool, len(t.questions))
	missed := make([]int, len(t.questions))
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
