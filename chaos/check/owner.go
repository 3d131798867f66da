package check

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
)

// A span is a time in which a token was seen in a lock's key on a node.
type span struct {
	token    string
	from, to int64
	before   int64 // when it was certainly not there yet
	seen     int64 // when it was certainly there for the last time; 0: it is not known yet
}

// A keyOnNode is what was seen in a lock's key on one node.
type keyOnNode struct {
	node  string
	open  []span // the current tokens; their ends are not known yet
	spans []span // the former ones, ordered by their ends
}

// A taking is the moment at which a token reached a quorum of nodes, and so owned the lock.
type taking struct {
	at    int64
	since int64 // when it was certainly not there yet on the last of these nodes
	token string
}

func (j *judge) quorum() int {
	if j.run.Quorum > 0 {
		return j.run.Quorum
	}
	return len(j.run.Nodes)/2 + 1
}

func (j *judge) owner(e *history.Event) {
	j.res.OwnerEvents++
	l := j.lock(e.Resource)
	k := l.nodes.get(e.Node, func() *keyOnNode { return &keyOnNode{node: e.Node} })
	tokens := e.Tokens()
	for _, gone := range k.end(e.At, e.Since, tokens) {
		if l.count[gone]--; l.count[gone] == 0 {
			delete(l.count, gone)
		}
	}
	for _, token := range tokens {
		if slices.ContainsFunc(k.open, func(s span) bool { return s.token == token }) {
			continue
		}
		k.open = append(k.open, span{token: token, from: e.At, before: cmp.Or(e.Since, e.At)})
		if l.count[token]++; l.count[token] == j.quorum() {
			l.took = append(l.took, taking{at: e.At, since: cmp.Or(e.Since, e.At), token: token})
		}
	}
}

// end ends the spans of all tokens but these, and returns which it ended. All of them were certainly there at seen; 0:
// the observer does not say when it last saw them.
func (k *keyOnNode) end(at, seen int64, but []string) (gone []string) {
	kept := k.open[:0]
	for _, s := range k.open {
		if seen > 0 {
			s.seen = max(seen, s.from)
		}
		if slices.Contains(but, s.token) {
			kept = append(kept, s)
			continue
		}
		s.to = at
		if s.seen == 0 {
			s.seen = at
		}
		k.spans, gone = append(k.spans, s), append(gone, s.token)
	}
	clear(k.open[len(kept):])
	k.open = kept
	return gone
}

// endSpans ends the spans that last until the end of the run.
func (l *lock) endSpans(at int64) {
	for _, k := range l.nodes.all {
		k.end(at, 0, nil)
	}
}

// has reports whether the token was seen at that time.
func (k *keyOnNode) has(token string, t int64) bool {
	i := sort.Search(len(k.spans), func(i int) bool { return k.spans[i].to > t })
	return slices.ContainsFunc(k.spans[i:], func(s span) bool { return s.token == token && s.from <= t })
}

// holding returns the nodes on which the token of the op was seen.
func (j *judge) holding(i int32, t int64) (nodes []string) {
	o := &j.ops[i]
	if o.token == "" {
		return nil
	}
	for _, k := range o.lock.nodes.all {
		if k.has(o.token, t) {
			nodes = append(nodes, k.node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// where describes for people on which nodes the tokens of the ops were seen at that time. It names the time: at that of
// another violation, it may be other nodes.
func (j *judge) where(ops []int32, t int64) string {
	if len(j.ops[ops[0]].lock.nodes.all) == 0 {
		return "nobody observed the nodes"
	}
	var parts []string
	for _, i := range ops {
		if j.ops[i].token == "" {
			parts = append(parts, fmt.Sprintf("the token of op %d is not known", j.ops[i].id))
			continue
		}
		seen := "no node"
		if nodes := j.holding(i, t); len(nodes) > 0 {
			seen = strings.Join(nodes, ", ")
		}
		parts = append(parts, fmt.Sprintf("op %d was seen on %s", j.ops[i].id, seen))
	}
	return "at " + clock(t) + " " + strings.Join(parts, " and ")
}

// involved returns the nodes that are involved in a violation.
func (j *judge) involved(ops []int32, cause Cause, t int64) (nodes []string) {
	if cause.Node != "" && cause.Why != Active { // it may be one of many
		nodes = append(nodes, cause.Node)
	}
	for _, i := range ops {
		nodes = append(nodes, j.holding(i, t)...)
	}
	for _, f := range j.faults {
		if f.node != "" && f.covers(t) {
			nodes = append(nodes, f.node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// byToken returns the op that the token belonged to at that time: the last requested one of the ops with this token.
func (j *judge) byToken(l *lock, token string, t int64) (int32, bool) {
	ops := l.tokens[token]
	n := sort.Search(len(ops), func(i int) bool { return j.ops[ops[i]].asked > t })
	if n == 0 {
		return 0, false
	}
	return ops[n-1], true
}

// checkLateLoss finds holders that still believed after another token took the lock.
//
// Observers are late: an earlier owner may still be seen when the holder's lease is granted. To exclude it, the other
// op must have been granted after the holder, or must have had no answer by then. An op that was refused did not own
// the lock.
//
// Readers do not exclude each other.
func (j *judge) checkLateLoss(l *lock) {
	if j.run.Permits > 0 {
		j.checkLatePermits(l)
		return
	}
	for _, i := range l.ops {
		o := &j.ops[i]
		if o.token == "" {
			continue // its keys are unknown
		}
		from := sort.Search(len(l.took), func(k int) bool { return l.took[k].at > o.granted })
		for k := from; k < len(l.took) && l.took[k].at < o.believes; k++ {
			took := l.took[k]
			other, known := j.byToken(l, took.token, took.at)
			if !known && took.since >= o.granted {
				l.takenBy(k, o.reader)
			}
			if took.token == o.token || !known || !j.couldFollow(other, o) || o.reader && j.ops[other].reader {
				continue
			}
			late := o.believes - took.at
			j.res.LateLosses++
			j.res.LateLossLongest = max(j.res.LateLossLongest, millis(late))
			j.violate(LateLoss, l, []int32{i, other}, took.at, late, func() string {
				return fmt.Sprintf("%s still believed that it held %q for %s after %s took it at %s; %s",
					j.name(i), l.name, time.Duration(late), j.name(other), clock(took.at),
					j.where([]int32{i, other}, took.at))
			})
			break // one per lease
		}
	}
}

// checkLatePermits is checkLateLoss for a semaphore: it finds tokens that got their permits on a quorum while others
// still believed that they had so many that too few were left.
func (j *judge) checkLatePermits(l *lock) {
	all := make([]belief, 0, len(l.ops))
	for _, i := range l.ops {
		all = append(all, j.belief(i))
	}
	sortBeliefs(all)
	var open beliefs
	for k, took := range l.took {
		for len(all) > 0 && all[0].from <= took.at {
			heap.Push(&open, all[0])
			all = all[1:]
		}
		open.drop(took.at)
		other, known := j.byToken(l, took.token, took.at)
		if !known {
			least := 1 // permits
			for _, b := range open {
				if j.ops[b.op].granted <= took.since {
					least += b.permits
				}
			}
			if least > j.run.Permits {
				l.takenBy(k, false)
			}
			continue
		}
		taken, ops, until := j.ops[other].permits, []int32{other}, int64(never)
		for _, b := range open {
			if b.op != other && j.couldFollow(other, &j.ops[b.op]) {
				taken, ops, until = taken+b.permits, append(ops, b.op), min(until, b.to)
			}
		}
		if taken <= j.run.Permits {
			continue
		}
		late := until - took.at
		j.res.LateLosses++
		j.res.LateLossLongest = max(j.res.LateLossLongest, millis(late))
		j.violate(LateLoss, l, ops, took.at, late, func() string {
			return fmt.Sprintf("%s took its permits of %q at %s, and others still believed for %s that they had theirs: "+
				"%d permits of %d; %s", j.name(other), l.name, clock(took.at), time.Duration(late), taken, j.run.Permits,
				j.where(ops, took.at))
		})
	}
}

func (j *judge) couldFollow(other int32, holder *op) bool {
	o := &j.ops[other]
	switch o.outcome {
	case granted:
		return o.grantLine > holder.grantLine
	case refused:
		return false
	}
	return o.over > holder.granted
}
