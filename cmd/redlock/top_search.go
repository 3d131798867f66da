package main

import (
	"context"
	"slices"
	"strings"
	"time"
)

// How redlock top finds locks whose names were not given.

// onlySearch is how long top looks for locks if it looks only once.
const onlySearch = 30 * time.Second

// search looks for locks that are not on the board, and goes on where the last search stopped. The first searches take a part
// of the interval, until every key was looked at, and that of a single look takes longer. Those after them look at so many
// keys of each node as one question can ask for: all of them, of most.
func (w *watch) search(ctx context.Context) error {
	if w.board.full() {
		return nil
	}
	w.board.more = false
	until := time.Now().Add(w.interval / 2)
	if w.count == 1 {
		until = time.Now().Add(onlySearch)
	}
	fresh := w.nodes.atFirstKey()
	searching, stop := context.WithCancel(ctx)
	defer stop()
	ended := w.nodes.findAll(searching, w.before, func(keys []string) {
		for i, key := range keys {
			keys[i] = strings.TrimPrefix(key, w.before)
		}
		slices.Sort(keys)
		w.board.found(keys, !w.whole)
		if w.searched || w.board.full() || !time.Now().Before(until) {
			stop()
		}
	})
	lasts := 0
	for node, end := range ended {
		w.ended[node] = w.ended[node] || end
		if w.ended[node] {
			lasts++
		}
	}
	w.searched = lasts >= w.quorum // a lock that is held is on one of them
	w.whole = fresh && w.nodes.atFirstKey()
	return w.nodes.mayNotScan()
}
