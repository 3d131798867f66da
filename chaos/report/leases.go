package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quorumlock/redlock/chaos/history"
)

// A lease is one acquire and its result. Times are like those of events; -1: never.
type lease struct {
	client   int
	op       uint64
	resource int // index in record.resources
	fence    uint64
	asked    int64
	answered int64
	granted  bool
	until    int64 // granted: the end of belief
	how      string
	token    string
	role     string
	broken   []int // numbers of the violations that it is part of
	used     int64 // the last read or write
}

// end is the end of everything that is drawn of the lease.
func (l *lease) end(runEnd int64) int64 {
	switch {
	case l.granted:
		return max(l.until, l.answered)
	case l.answered >= 0:
		return l.answered
	}
	return runEnd
}

// An owned is a time in which a key was seen to belong to an op.
type owned struct {
	node     string
	resource int
	token    string
	from, to int64
}

// A record is the part of a history that is drawn.
type record struct {
	nodes     []string
	clients   map[int][]*lease // in the order of their requests
	resources []string
	owned     []owned
	end       int64
	whole     bool // there was a history
}

// A recorder reads a history. It accepts any history, even an invalid one, and ignores what it does not understand.
type recorder struct {
	record
	ops    map[uint64]*lease
	places map[string]int
	keys   map[[3]string]int // node, resource and token to index in owned
	broken map[uint64][]int
}

// read makes the record of a run.
func read(r *Run) *record {
	rec := &recorder{
		record: record{clients: map[int][]*lease{}, whole: len(r.Events) > 0},
		ops:    map[uint64]*lease{}, places: map[string]int{}, keys: map[[3]string]int{}, broken: map[uint64][]int{},
	}
	for i, v := range r.Result.Violations {
		for _, op := range v.Ops {
			rec.broken[op] = append(rec.broken[op], i+1)
		}
		rec.end = max(rec.end, int64(v.At+v.For))
		rec.addNodes(v.Nodes...)
	}
	for c := 1; c <= r.Result.Clients; c++ {
		rec.clients[c] = nil
	}
	for i := range r.Events {
		rec.event(&r.Events[i])
	}
	for _, f := range r.Result.Faults {
		rec.end = max(rec.end, nanos(f.Begin))
		if f.Heal != nil {
			rec.end = max(rec.end, nanos(*f.Heal))
		}
		if f.Node != "" {
			rec.addNodes(f.Node)
		}
		if _, known := rec.clients[f.Client]; !known && f.Client > 0 {
			rec.clients[f.Client] = nil
		}
	}
	if !rec.whole {
		rec.end = max(rec.end, int64(r.Result.Seconds*1e9))
	}
	rec.end = max(rec.end, 1e6)
	rec.finish()
	return &rec.record
}

func (r *recorder) addNodes(names ...string) {
	for _, n := range names {
		if !slices.Contains(r.nodes, n) {
			r.nodes = append(r.nodes, n)
		}
	}
}

func (r *recorder) place(resource string) int {
	place, known := r.places[resource]
	if !known {
		place = len(r.resources)
		r.places[resource] = place
		r.resources = append(r.resources, resource)
	}
	return place
}

func (r *recorder) event(e *history.Event) {
	r.end = max(r.end, e.At)
	switch e.Kind {
	case history.Start:
		if e.Run != nil {
			r.nodes = append(slices.Clone(e.Run.Nodes), slices.DeleteFunc(r.nodes, func(n string) bool {
				return slices.Contains(e.Run.Nodes, n)
			})...)
		}
	case history.Acquire:
		l := &lease{
			client: e.Client, op: e.Op, resource: r.place(e.Resource), asked: e.At, answered: -1, until: -1,
			used: -1, broken: r.broken[e.Op], role: role(e),
		}
		r.ops[e.Op] = l
		r.clients[e.Client] = append(r.clients[e.Client], l)
	case history.Owner:
		r.owner(e)
	default:
		if l := r.ops[e.Op]; l != nil && e.Op != 0 {
			l.event(e)
		}
	}
}

// role describes what an acquire wants, if it is no mutex.
func role(e *history.Event) string {
	what := ""
	switch {
	case e.Role != history.Alone:
		what = ", " + plain(string(e.Role))
	case e.Permits > 0:
		what = ", " + count(e.Permits, "permit")
	}
	if e.From != 0 {
		what += fmt.Sprintf(", from op %d", e.From)
	}
	return what
}

func (l *lease) event(e *history.Event) {
	switch e.Kind {
	case history.Granted:
		l.granted, l.answered, l.fence, l.token = true, e.At, e.Fence, e.Token
	case history.Refused:
		l.answered, l.how = e.At, "refused"
	case history.Failed:
		l.answered, l.how = e.At, "failed: "+plain(e.Error)
	case history.Read, history.Write:
		l.used = e.At
	case history.Lost, history.Release:
		if l.how == "" {
			l.how = "released"
			if e.Kind == history.Lost {
				l.how = "lost, noticed at " + seconds(e.At)
			}
			l.until = e.At
			if e.Until > 0 {
				l.until = min(e.At, e.Until)
			}
		}
	case history.Freed:
		if e.Error != "" && !strings.Contains(l.how, "release said") {
			l.how += ", release said: " + plain(e.Error)
		}
	}
}

// owner records the owners of a key. finish drops those that are not part of a violation.
func (r *recorder) owner(e *history.Event) {
	tokens := e.Tokens()
	for key, i := range r.keys {
		if key[0] == e.Node && key[1] == e.Resource && !slices.Contains(tokens, key[2]) {
			r.owned[i].to = e.At
			delete(r.keys, key)
		}
	}
	for _, token := range tokens {
		key := [3]string{e.Node, e.Resource, token}
		if _, open := r.keys[key]; !open {
			r.keys[key] = len(r.owned)
			r.owned = append(r.owned, owned{e.Node, r.place(e.Resource), token, e.At, -1})
		}
	}
}

func (r *recorder) finish() {
	broken := map[string]bool{}
	for _, leases := range r.clients {
		for _, l := range leases {
			if l.granted && l.until < 0 {
				l.until, l.how = max(l.used, l.answered), "neither released nor noticed as lost"
			}
			if len(l.broken) > 0 && l.token != "" {
				broken[l.token] = true
			}
		}
		slices.SortStableFunc(leases, func(a, b *lease) int { return cmp.Compare(a.asked, b.asked) })
	}
	for i := range r.owned {
		if r.owned[i].to < 0 {
			r.owned[i].to = r.end
		}
	}
	r.owned = slices.DeleteFunc(r.owned, func(o owned) bool { return !broken[o.token] })
}

// title is the tooltip of a lease.
func (l *lease) title(resources []string, runEnd int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "op %d, client %d%s", l.op, l.client, l.role)
	if len(resources) > 1 {
		fmt.Fprintf(&b, ", %s", plain(resources[l.resource]))
	}
	if l.fence != 0 {
		fmt.Fprintf(&b, ", fencing token %d", l.fence)
	}
	fmt.Fprintf(&b, "\nrequested %s", seconds(l.asked))
	switch {
	case l.granted:
		fmt.Fprintf(&b, "\nheld %s to %s (%s)", seconds(l.answered), seconds(l.until), lasting(max(0, l.until-l.answered)))
	case l.answered < 0:
		fmt.Fprintf(&b, "\nnever answered, the run ended at %s", seconds(runEnd))
	}
	if l.how != "" {
		fmt.Fprintf(&b, "\n%s", l.how)
		if !l.granted {
			fmt.Fprintf(&b, " at %s", seconds(l.answered))
		}
	}
	if len(l.broken) > 0 {
		fmt.Fprintf(&b, "\nviolations %s", clientList(l.broken))
	}
	return b.String()
}
