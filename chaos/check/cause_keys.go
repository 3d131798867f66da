package check

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// What the observers saw of the keys tells which node lost which key, and when.

// spansOf returns what was seen of the op's key on a node until then. If its token is not known, keys of unknown owners
// may be its.
func (j *judge) spansOf(k *keyOnNode, i int32, then int64) (spans []span) {
	o := &j.ops[i]
	from := o.asked
	if o.token == "" {
		from = o.granted // what was gone by then was that of another
	}
	first := sort.Search(len(k.spans), func(n int) bool { return k.spans[n].to > from })
	for _, s := range k.spans[first:] {
		if s.from > then { // the observer looked at the node then, so the rest was there later
			break
		}
		if s.token == o.token || o.token == "" && len(o.lock.tokens[s.token]) == 0 {
			spans = append(spans, s)
		}
	}
	return spans
}

// A loss is a key that a node no longer had: it was gone between two times.
type loss struct {
	of       int32
	node     string
	from, to int64
}

// losses returns the keys of those who had the lock that were gone, or may have been, when another got it. A key that was
// put back was not lost.
func (j *judge) losses(q question) (all []loss) {
	for _, i := range q.had {
		if j.ops[i].believes < q.then {
			continue // it knew
		}
		for _, k := range q.l.nodes.all {
			spans := j.spansOf(k, i, q.then)
			for n, s := range spans {
				back := slices.ContainsFunc(spans[n+1:], func(later span) bool { return later.token == s.token })
				from := s.seen
				if s.seen >= s.to { // the history does not tell when it was seen
					from = s.from
				}
				if !back && from <= q.then {
					all = append(all, loss{i, k.node, from, s.to})
				}
			}
		}
	}
	return all
}

// keyLost finds the last fault in whose time a node lost the key of a client that had the lock. A clock that was set
// while its server was down explains less than that the server forgot.
func (j *judge) keyLost(q question) (Cause, bool) {
	var last *fault
	var lost loss
	for _, l := range j.losses(q) {
		for _, f := range j.faults {
			if !f.on(l.node) || !f.forgets() || !f.tookPlace(l.from, min(l.to, q.then)) {
				continue
			}
			if last == nil || last.ofClock() && !f.ofClock() || last.ofClock() == f.ofClock() && f.begin >= last.begin {
				last, lost = f, l
			}
		}
	}
	if last == nil {
		return Cause{}, false
	}
	whose := "the key of " + j.name(lost.of)
	if j.ops[lost.of].token == "" {
		whose = fmt.Sprintf("the key of %q", q.l.name)
	}
	return j.because(KeyLost, last, q.at, "%s was on %s before it, and not after it", whose, lost.node), true
}

// unseenLoss is keyLost where nobody saw the keys of those who had the lock.
func (j *judge) unseenLoss(q question) (Cause, bool) {
	for _, i := range q.had {
		if j.ops[i].believes < q.then || j.wasSeen(q, i) {
			continue
		}
		if f := j.last(func(f *fault) bool { return f.forgets() && f.tookPlace(j.ops[i].asked, q.then) }); f != nil {
			return j.because(Forgot, f, q.at, "the last fault since %s asked for the lock that makes a node forget; its key was seen on no node",
				j.name(i)), true
		}
	}
	return Cause{}, false
}

// returned is the cause of an orphan that a fault brought back: its node got a key that nobody needed any more.
func (j *judge) returned(node string, s span, part stretch) (Cause, bool) {
	f := j.last(func(f *fault) bool { return f.on(node) && f.forgets() && f.tookPlace(s.before, s.from) })
	if f == nil || part.from > s.from { // its owner needed it when it came
		return Cause{}, false
	}
	return j.because(KeyReturned, f, part.from, "the key was not on %s before it, and after it", node), true
}

// forgot finds the last fault by which a node forgot that it had granted the lock to the one who had it.
func (j *judge) forgot(q question) (Cause, bool) {
	i := q.had[0]
	granted := map[string]bool{}
	for _, k := range q.l.nodes.all {
		if len(j.spansOf(k, i, q.then)) > 0 {
			granted[k.node] = true
		}
	}
	f := j.last(func(f *fault) bool {
		return f.forgets() && f.tookPlace(j.ops[i].asked, q.then) && (len(granted) == 0 || f.node == "" || granted[f.node])
	})
	switch {
	case f == nil:
		return Cause{}, false
	case len(granted) == 0:
		return j.because(Forgot, f, q.at, "it makes a node forget; the key of %s was seen on no node", j.name(i)), true
	}
	return j.because(Forgot, f, q.at, "it makes a node forget, and the node had granted %s", j.name(i)), true
}

// gone says where keys of those who had the lock were gone though no fault explains it.
func (j *judge) gone(q question) string {
	var nodes []string
	var last loss
	for _, l := range j.losses(q) {
		if by := j.releasing(l); by >= 0 {
			return fmt.Sprintf("; the key of %s was gone from %s while %s released", j.name(l.of), l.node, j.name(by))
		}
		if l.to <= q.then && (last.node == "" || l.of == last.of) {
			nodes, last = append(nodes, l.node), loss{l.of, l.node, 0, max(last.to, l.to)}
		}
	}
	if len(nodes) == 0 {
		return j.releasedMeanwhile(q)
	}
	slices.Sort(nodes)
	return fmt.Sprintf("; the key of %s was gone from %s %s before, %s after it was asked for: it ended by its TTL, or somebody deleted it",
		j.name(last.of), strings.Join(slices.Compact(nodes), ", "), short(q.at-last.to), short(last.to-j.ops[last.of].asked))
}

// releasing returns an op whose release was under way when another lost its key; -1: there is none.
func (j *judge) releasing(l loss) int32 {
	for _, i := range j.ops[l.of].lock.ops {
		if o := &j.ops[i]; i != l.of && o.released <= l.to && (o.freed == 0 || o.freed >= l.from) {
			return i
		}
	}
	return -1
}

// releasedMeanwhile names an op that was being released while another had the lock whose key nobody saw.
func (j *judge) releasedMeanwhile(q question) string {
	for _, i := range q.had {
		if by := j.releasing(loss{of: i, from: j.ops[i].granted, to: q.then}); by >= 0 && !j.wasSeen(q, i) {
			return fmt.Sprintf("; %s was releasing then, and the key of %s was seen on no node", j.name(by), j.name(i))
		}
	}
	return ""
}

// wasSeen reports whether the op's key was on a node until then.
func (j *judge) wasSeen(q question, i int32) bool {
	return slices.ContainsFunc(q.l.nodes.all, func(k *keyOnNode) bool { return len(j.spansOf(k, i, q.then)) > 0 })
}
