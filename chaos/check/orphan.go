package check

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

const (
	// OrphanGrace is how long a key may outlive its owner without being counted: releases and observers take time.
	OrphanGrace = 100 * time.Millisecond
	// OrphanMargin is how much longer than the TTL a key may outlive its owner before it is a violation. It covers the
	// delay of the observer, a request that was still in flight, and a server that expires keys late.
	OrphanMargin = time.Second
)

// A stretch is a time in which a key had no owner.
type stretch struct {
	from, to int64
	after    int32 // the op that the key belonged to; -1: unknown
}

func (j *judge) checkOrphans(l *lock) {
	strangers := j.strangers(l)
	for _, k := range l.nodes.all {
		// Observers usually bypass faults between clients and a node. Such times are reported, but the verdict does not
		// depend on them.
		blind := j.windows(func(f *fault) bool { return f.on(k.node) && !f.ofNetwork() })
		hurt := j.windows(func(f *fault) bool { return f.on(k.node) })
		for _, s := range k.spans {
			parts := j.orphaned(l, s, strangers)
			if s := longest(parts, blind); s.length() > OrphanGrace {
				j.res.Orphans++
				j.res.OrphanLongest = max(j.res.OrphanLongest, millis(int64(s.length())))
			}
			if part := longest(parts, hurt); part.length() > j.orphanBound() && !j.clockSet(k.node, s) {
				j.res.OrphansPast++
				j.violateOrphan(l, k.node, s, part)
			}
		}
	}
}

// clockSet reports whether the node's clock may have been set while the token was there. A key ends by that clock: if it
// is set back by a minute, the key of a dead owner lasts a minute longer.
func (j *judge) clockSet(node string, s span) bool {
	return slices.ContainsFunc(j.faults, func(f *fault) bool {
		set := func(from, to int64) bool { return s.before <= to && from <= s.seen }
		return f.ofClock() && f.on(node) && (set(f.from, f.begin) || set(f.heal, f.heal))
	})
}

// orphanBound is how long a key may outlive its owner. A scenario in which every owner can clean up sets a stricter
// bound than the TTL.
func (j *judge) orphanBound() time.Duration {
	if j.run.Orphan > 0 {
		return time.Duration(j.run.Orphan)
	}
	return time.Duration(j.run.TTL) + OrphanMargin
}

func (s stretch) length() time.Duration { return time.Duration(s.to - s.from) }

// longest returns the longest stretch of the parts that contains no window.
func longest(parts []stretch, shut []window) (best stretch) {
	for _, p := range parts {
		from, to := longestOpen(p.from, p.to, shut)
		if open := (stretch{from, to, p.after}); open.length() > best.length() {
			best = open
		}
	}
	return best
}

func (j *judge) violateOrphan(l *lock, node string, seen span, s stretch) {
	var ops []int32
	whose := "a token of an unknown owner"
	if s.after >= 0 {
		ops = append(ops, s.after)
		whose = "the token of " + j.name(s.after)
	}
	v := j.violate(Orphan, l, ops, s.from, int64(s.length()), func() string {
		return fmt.Sprintf("the key of %q on %s had %s for %s after its owner no longer needed it, from %s to %s; the TTL is %s, the limit %s",
			l.name, node, whose, s.length(), clock(s.from), clock(s.to), time.Duration(j.run.TTL), j.orphanBound())
	})
	if v != nil {
		v.Nodes = []string{node}
		if cause, found := j.returned(node, seen, s); found {
			v.Cause = cause
		}
	}
}

// orphaned returns the parts of a span in which no op with its token was active. There may be several parts, because a
// client may reuse a token. What the observer noticed late, because the machine was busy, is not held against the lock:
// a span counts until the token was seen for the last time.
func (j *judge) orphaned(l *lock, s span, strangers []overUntil) (parts []stretch) {
	ops := l.tokens[s.token]
	if len(ops) == 0 {
		// Ops that were requested after the key was there cannot own it.
		n := sort.Search(len(strangers), func(i int) bool { return strangers[i].asked > s.from })
		from := s.from
		if n > 0 {
			from = max(from, strangers[n-1].over)
		}
		return append(parts, stretch{from, s.seen, -1})
	}
	later := sort.Search(len(ops), func(i int) bool { return j.ops[ops[i]].asked > s.from })
	from, after := s.from, int32(-1)
	for _, i := range ops[max(later-1, 0):] {
		o := &j.ops[i]
		if o.asked >= s.seen {
			break
		}
		if o.asked > from {
			parts = append(parts, stretch{from, o.asked, after})
		}
		from, after = max(from, o.over), i
	}
	return append(parts, stretch{from, s.seen, after})
}

// An overUntil is when the last op was over, of all ops that were requested no later than asked.
type overUntil struct{ asked, over int64 }

// strangers are the ops that a token of an unknown owner may belong to.
func (j *judge) strangers(l *lock) (all []overUntil) {
	seen := map[string]bool{}
	for _, k := range l.nodes.all {
		for _, s := range k.spans {
			if len(l.tokens[s.token]) > 0 {
				seen[s.token] = true
			}
		}
	}
	var last int64
	for _, i := range l.asked {
		o := &j.ops[i]
		if o.token != "" && seen[o.token] {
			continue
		}
		last = max(last, o.over)
		all = append(all, overUntil{o.asked, last})
	}
	return all
}
