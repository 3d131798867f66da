package main

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/access"
)

// Which locks redlock inspect --all and --owner list.

// looksAtOnce is how many keys are looked at in one question, so that the answer is not late.
const looksAtOnce = 1000

// find returns the names of the locks that nodes have. missing: too few nodes that vote have answered, so there may be more.
// It asks Redis for little of each key: what [redlock.Client.Inspect] asks of every node would take long for many.
func (o *inspector) find(ctx context.Context, client *redlock.Client) (names []string, missing bool, err error) {
	to := access.Of(client)
	asking, stop := context.WithCancel(ctx)
	nodes, done := newTopNodes(asking, to)
	defer func() { stop(); done() }()
	status := client.Status(ctx)
	found := map[string]struct{}{}
	ended := nodes.findAll(ctx, o.before, func(keys []string) {
		slices.Sort(keys)
		for some := range slices.Chunk(slices.Compact(keys), looksAtOnce) {
			var seen map[int][]sighting
			for tries := 0; tries < scanTries && ctx.Err() == nil; tries++ {
				seen = nodes.look(ctx, some)
				maps.DeleteFunc(seen, func(node int, _ []sighting) bool { return status[node].Err != nil })
				if len(seen) >= o.quorum {
					break
				}
			}
			missing = missing || len(seen) < o.quorum
			for i, key := range some {
				name := strings.TrimPrefix(key, o.before)
				if _, _, err := to.Keys(name); err == nil && o.mayShow(seen, i) {
					found[name] = struct{}{}
				}
			}
		}
	})
	if ctx.Err() != nil {
		return nil, false, failure(ctx.Err())
	}
	voted, refusal := 0, error(nil)
	for node := range status {
		switch {
		case nodes.refused[node] != nil:
			refusal = nodes.refused[node]
		case ended[node] && status[node].Err == nil:
			voted++
		}
	}
	if voted < o.quorum && refusal != nil {
		return nil, false, &exitError{exitFailed, fmt.Errorf("without a KEY, inspect looks for locks with SCAN: %w; allow +scan, or give each KEY", refusal)}
	}
	return slices.Sorted(maps.Keys(found)), missing || voted < o.quorum, nil
}

// mayShow reports whether a node has a lock there, whose owner may match. Of those that share a lock, no node told the owner.
func (o *inspector) mayShow(seen map[int][]sighting, i int) bool {
	for _, all := range seen {
		s := all[i]
		if len(s.sharers) > 0 || isToken(s.owner) && s.left >= 0 && o.matches(holderOf(s.owner)) {
			return true
		}
	}
	return false
}

// leavesOut reports whether a lock is not listed.
func (o *inspector) leavesOut(s *redlock.State, report lockReport, scanned bool) bool {
	switch {
	case !scanned && o.owner == "":
		return false
	case report.State == "free" || scanned && report.Foreign:
		return true
	}
	var holders []redlock.Holder
	add := func(h redlock.Holder, sharers []redlock.Sharer) {
		holders = append(holders, h)
		for _, sharer := range sharers {
			holders = append(holders, sharer.Holder())
		}
	}
	if h, ok := s.Holder(); ok {
		add(h, s.Sharers)
	} else {
		for _, n := range s.Nodes {
			if h, ok := n.Holder(); ok {
				add(h, n.Sharers)
			}
		}
	}
	return !slices.ContainsFunc(holders, o.matches)
}

// matches reports whether the owner is one that --owner asks for.
func (o *inspector) matches(h redlock.Holder) bool {
	if o.owner == "" {
		return true
	}
	return slices.ContainsFunc([]string{h.Owner, h.Label, h.String()}, func(text string) bool {
		match, _ := path.Match(o.owner, text) // the pattern was checked
		return match && h.Owner != ""
	})
}
