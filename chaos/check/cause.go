package check

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// A CauseKind is how a cause is known.
type CauseKind string

// The kinds of causes, from the surest to the least sure.
const (
	KeyLost     CauseKind = "key_lost"     // in the time of the fault, its node lost the key of a holder: that was observed
	KeyReturned CauseKind = "key_returned" // in the time of the fault, its node got a key back that nobody needed: that was observed
	Forgot      CauseKind = "forgot"       // its node had granted the lock, or may have, and the fault makes a node forget
	OfClient    CauseKind = "of_client"    // a client of the violation was stopped or killed, or its clock was set
	Active      CauseKind = "active"       // nothing of this is known; the fault was active
	LastBefore  CauseKind = "last_before"  // none was active: the last fault before
	NoCause     CauseKind = "none"         // no fault explains it
)

// A Cause is the fault that explains a violation, as far as the history tells.
type Cause struct {
	Why    CauseKind `json:"why"`
	Fault  string    `json:"fault,omitempty"` // empty if Why is NoCause
	Node   string    `json:"node,omitempty"`
	Client int       `json:"client,omitempty"`
	Before float64   `json:"before_millis,omitempty"` // from its beginning to the violation
	Text   string    `json:"text"`                    // a sentence for people
}

// forgets reports whether the fault can make its node lose keys, or bring old ones back. Faults of other programs, whose
// names are not known here, can.
func (f *fault) forgets() bool {
	if f.ofNetwork() {
		return false
	}
	switch f.name {
	case "pause", "save", "follow", "lag", "detach", "unsubscribe": // package fault says what they do
		return false
	}
	return true
}

// tookPlace reports whether the fault changed its node between these times. A clock does so when it is set, at both ends
// of its fault; other faults do so from their beginning to their end.
func (f *fault) tookPlace(from, to int64) bool {
	if f.ofClock() {
		return f.from <= to && from <= f.begin || from <= f.heal && f.heal <= to
	}
	return f.from <= to && from <= f.heal
}

// A question is a violation whose cause is looked for.
type question struct {
	l    *lock
	ops  []int32
	at   int64   // of the violation
	had  []int32 // those who had the lock
	then int64   // when another got it
}

// asks returns what is to be explained: who had the lock, and when another got it.
func (j *judge) asks(kind ViolationKind, l *lock, ops []int32, at int64) question {
	q := question{l: l, ops: ops, at: at, then: at}
	if len(ops) == 0 {
		return q
	}
	q.had = ops[:len(ops)-1]
	switch kind {
	case Orphan:
		q.had = ops
	case LostUpdate, StaleWriteAccepted:
		sorted := slices.SortedFunc(slices.Values(ops), func(a, b int32) int { return cmp.Compare(j.ops[a].grantLine, j.ops[b].grantLine) })
		q.had, q.then = sorted[:1], j.ops[sorted[len(sorted)-1]].granted
	case Overlap, LateLoss:
		if j.run.Permits > 0 {
			q.had = ops[1:]
		}
	}
	return q
}

// cause looks for the fault that explains a violation: first in what the observers saw, then in what was active.
func (j *judge) cause(kind ViolationKind, l *lock, ops []int32, at int64) Cause {
	q := j.asks(kind, l, ops, at)
	switch kind {
	case Overlap, LateLoss, LostUpdate:
		if c, found := j.keyLost(q); found {
			return c
		}
		if c, found := j.unseenLoss(q); found {
			return c
		}
	case FenceDuplicate, FenceInversion:
		if c, found := j.forgot(q); found {
			return c
		}
	}
	gone := ""
	if kind == Overlap || kind == LateLoss || kind == LostUpdate {
		gone = j.gone(q)
	}
	return j.byTime(q, gone)
}

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

// last returns the one of these faults that began last.
func (j *judge) last(of func(*fault) bool) (last *fault) {
	for _, f := range j.faults {
		if of(f) && (last == nil || f.begin >= last.begin) {
			last = f
		}
	}
	return last
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

// byTime names a fault of a client that takes part, else what was active, else the last fault before.
func (j *judge) byTime(q question, gone string) Cause {
	since := q.then
	for _, i := range q.had {
		since = min(since, j.ops[i].asked)
	}
	takesPart := func(f *fault) bool {
		return f.client == 0 || len(q.ops) == 0 || slices.ContainsFunc(q.ops, func(i int32) bool { return j.ops[i].client == f.client })
	}
	if f := j.last(func(f *fault) bool {
		return f.client != 0 && f.node == "" && takesPart(f) && f.from <= q.at && f.heal >= since
	}); f != nil {
		return j.because(OfClient, f, q.at, "client %d takes part in this%s", f.client, gone)
	}
	var active []*fault
	newest := j.last(func(f *fault) bool {
		is := f.covers(q.at) && takesPart(f) || j.whileAcquiring(f, q)
		if is {
			active = append(active, f)
		}
		return is
	})
	if newest != nil {
		c := j.because(Active, newest, q.at, "")
		c.Text = fmt.Sprintf("active then, or while the lock was acquired: %s; the last of these began %s before%s",
			list(active), short(newest.before(q.at)), gone)
		return c
	}
	before := j.last(func(f *fault) bool { return f.from <= q.at && takesPart(f) })
	switch {
	case before == nil:
		return Cause{Why: NoCause, Text: "no fault explains it" + gone}
	case before.heal < since-int64(OrphanMargin):
		return Cause{Why: NoCause, Text: fmt.Sprintf("no fault explains it; the last one before was %s%s", j.told(before, q.at), gone)}
	}
	return j.because(LastBefore, before, q.at, "the last fault before; it is not known how it explains this%s", gone)
}

// list names faults. Those that differ in their node only are named once.
func list(faults []*fault) string {
	var names []string
	nodes := map[string][]string{}
	for _, f := range faults {
		of := fault{name: f.name, client: f.client}
		name := of.String()
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if f.node != "" && !slices.Contains(nodes[name], f.node) {
			nodes[name] = append(nodes[name], f.node)
		}
	}
	for i, name := range names {
		if len(nodes[name]) > 0 {
			names[i] += " (" + strings.Join(nodes[name], ", ") + ")"
		}
	}
	return strings.Join(names, ", ")
}

// whileAcquiring reports whether it was a fault between the nodes and a client that had the lock, while it acquired it.
func (j *judge) whileAcquiring(f *fault, q question) bool {
	return f.ofNetwork() && slices.ContainsFunc(q.had, func(i int32) bool {
		o := &j.ops[i]
		return (f.client == 0 || f.client == o.client) && f.from <= o.granted && f.heal >= o.asked
	})
}

func (j *judge) because(why CauseKind, f *fault, at int64, format string, args ...any) Cause {
	return Cause{
		Why: why, Fault: f.name, Node: f.node, Client: f.client, Before: millis(f.before(at)),
		Text: j.told(f, at) + ": " + fmt.Sprintf(format, args...),
	}
}

// before is how long before that time the fault began. One that was recorded when it was over may have begun earlier.
func (f *fault) before(at int64) int64 {
	if f.begin > at {
		return max(0, at-f.from)
	}
	return at - f.begin
}

// told names a fault, and how long before it was.
func (j *judge) told(f *fault, at int64) string {
	text := fmt.Sprintf("%s, %s before", f, short(f.before(at)))
	if f.heal != f.begin && f.heal < at {
		text += fmt.Sprintf(" and until %s before", short(at-f.heal))
	}
	return text
}

// short prints a length of time for people.
func short(nanos int64) string {
	d := time.Duration(nanos)
	if d < time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
