package check

import (
	"cmp"
	"fmt"
	"slices"
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
	q.had = ops[:max(1, len(ops)-1)]
	switch kind {
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

// last returns the one of these faults that began last.
func (j *judge) last(of func(*fault) bool) (last *fault) {
	for _, f := range j.faults {
		if of(f) && (last == nil || f.begin >= last.begin) {
			last = f
		}
	}
	return last
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
		is := f.covers(q.at) && takesPart(f) && f.name != "lag" || j.whileAcquiring(f, q) // a replica that lags hurts nobody yet
		if is {
			active = append(active, f)
		}
		return is
	})
	if newest != nil {
		c := j.because(Active, newest, q.at, "")
		c.Text = fmt.Sprintf("active then, or while the lock was acquired: %s; the last of these began %s before%s",
			list(active), short(newest.before(q.at)), gone)
		if f := j.last(func(f *fault) bool { return f.forgets() && !f.ofClock() && f.tookPlace(since, q.at) }); f != nil {
			c.Text += fmt.Sprintf("; the last fault that makes a node forget was %s", j.told(f, q.at))
		}
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
