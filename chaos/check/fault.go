package check

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/quorumlock/redlock/chaos/history"
)

// A fault is one fault of a node or a client.
type fault struct {
	name, node  string
	client      int
	begin, heal int64 // heal may be never
	from        int64 // when it began to take place: before begin, if it is known by its end
	// The time until the next grant; never, if there was none.
	first, firstAfterHeal int64
	holder                int32 // the newest lease when the fault began; -1: it was over
}

func (f *fault) covers(t int64) bool { return f.from <= t && t <= f.heal }

func (f *fault) String() string {
	s := f.name
	if f.client != 0 {
		s += fmt.Sprintf(" client %d", f.client)
	}
	if f.node != "" {
		s += " " + f.node
	}
	return s
}

func (j *judge) fault(e *history.Event) {
	if !e.Begin {
		healed := false
		for _, f := range j.faults {
			if f.heal == never && f.name == e.Fault && f.node == e.Node && f.client == e.Client {
				f.heal, healed = e.At, true
				j.healed = append(j.healed, f)
			}
		}
		if healed {
			return
		}
	}
	f := &fault{
		name: e.Fault, node: e.Node, client: e.Client, begin: e.At, from: cmp.Or(e.Since, e.At),
		heal: never, first: never, firstAfterHeal: never, holder: j.newest(),
	}
	if !e.Begin { // an instant fault
		f.heal = e.At
		j.healed = append(j.healed, f)
	}
	j.faults = append(j.faults, f)
	j.waiting = append(j.waiting, f)
}

// newest returns the last granted lease that has not ended.
func (j *judge) newest() int32 {
	newest := int32(-1)
	for _, l := range j.locks.all {
		if len(l.ops) == 0 {
			continue
		}
		i := l.ops[len(l.ops)-1]
		if !j.ops[i].ended && (newest < 0 || j.ops[i].grantLine > j.ops[newest].grantLine) {
			newest = i
		}
	}
	return newest
}

// firstAcquire is called for each grant.
func (j *judge) firstAcquire(at int64) {
	for _, f := range j.waiting {
		f.first = at - f.begin
	}
	for _, f := range j.healed {
		f.firstAfterHeal = at - f.heal
	}
	j.waiting, j.healed = j.waiting[:0], j.healed[:0]
}

// deadClients returns the clients that never came back from a fault, and when it began.
func (j *judge) deadClients() map[int]int64 {
	dead := map[int]int64{}
	for _, f := range j.faults {
		if f.client != 0 && f.node == "" && f.heal == never {
			if _, known := dead[f.client]; !known {
				dead[f.client] = f.begin
			}
		}
	}
	return dead
}

// on reports whether the fault affects the node, alone or with all others.
func (f *fault) on(node string) bool { return f.node == node || f.node == "" && f.client == 0 }

// ofNetwork reports whether the fault is between a node and its clients. Its name tells, or that it affects only one
// client.
func (f *fault) ofNetwork() bool {
	return f.client != 0 || strings.HasPrefix(f.name, "cut") || strings.HasPrefix(f.name, "delay")
}

// ofClock reports whether the fault sets a node's clock.
func (f *fault) ofClock() bool { return strings.HasPrefix(f.name, "clock") }

// A window is a time in which a node was under a fault.
type window struct{ from, to int64 }

// windows returns when there was such a fault: in order and disjoint.
func (j *judge) windows(of func(*fault) bool) []window {
	var all []window
	for _, f := range j.faults {
		if of(f) {
			all = append(all, window{f.from, f.heal})
		}
	}
	return merged(all)
}

// merged returns the windows in order, and joins those that meet. It sorts all.
func merged(all []window) (windows []window) {
	slices.SortFunc(all, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	for _, w := range all {
		if last := len(windows) - 1; last >= 0 && w.from <= windows[last].to {
			windows[last].to = max(windows[last].to, w.to)
			continue
		}
		windows = append(windows, w)
	}
	return windows
}

// longestOpen returns the longest part of the time that contains no window.
func longestOpen(from, to int64, shut []window) (int64, int64) {
	best, bestTo := from, from
	i := sort.Search(len(shut), func(i int) bool { return shut[i].to >= from })
	for ; i < len(shut) && shut[i].from < to; i++ {
		if shut[i].from-from > bestTo-best {
			best, bestTo = from, shut[i].from
		}
		from = max(from, shut[i].to)
	}
	if to-from > bestTo-best {
		best, bestTo = from, to
	}
	return best, bestTo
}

// phases counts the ops before, during and after the faults, and adds the result of each fault.
func (j *judge) phases() {
	begin, heal := int64(never), int64(-1)
	for _, f := range j.faults {
		begin, heal = min(begin, f.begin), max(heal, f.heal)
	}
	var took ByPhase[[]int64]
	for i := range j.ops {
		o := &j.ops[i]
		counts, latencies := &j.res.Phases.During, &took.During
		switch {
		case o.asked < begin:
			counts, latencies = &j.res.Phases.Before, &took.Before
		case o.asked >= heal:
			counts, latencies = &j.res.Phases.After, &took.After
		}
		counts.add(o.outcome)
		j.res.Counts.add(o.outcome)
		if o.outcome == granted {
			*latencies = append(*latencies, o.granted-o.asked)
		}
	}
	j.res.Latency = ByPhase[Latency]{latency(took.Before), latency(took.During), latency(took.After)}
	j.faultResults()
}

func (c *Counts) add(o outcome) {
	switch o {
	case granted:
		c.Acquired++
	case refused:
		c.Refused++
	case failed:
		c.Errors++
	default:
		c.Unanswered++
	}
}

func (j *judge) faultResults() {
	longest, always := int64(0), len(j.faults) > 0
	for _, f := range j.faults {
		r := FaultResult{Fault: f.name, Node: f.node, Client: f.client, Begin: millis(f.begin), Holder: "none"}
		if f.heal != never {
			r.Heal = toMillis(f.heal)
		}
		if f.first != never {
			r.FirstAcquire = toMillis(f.first)
			longest = max(longest, f.first)
		} else {
			always = false
		}
		if f.firstAfterHeal != never {
			r.FirstAfterHeal = toMillis(f.firstAfterHeal)
		}
		if f.holder >= 0 {
			r.Holder = "dead"
			if j.ops[f.holder].ended {
				r.Holder = "alive"
			}
		}
		r.Acquired, r.Refused, r.Errors = j.within(granted, f), j.within(refused, f), j.within(failed, f)
		j.res.Faults = append(j.res.Faults, r)
	}
	if always {
		j.res.FirstAcquireAfterFault = toMillis(longest)
	}
}

// within counts the acquires with this outcome during a fault.
func (j *judge) within(how outcome, f *fault) int {
	at := j.answers[how] // in order, as lines are
	from, _ := slices.BinarySearch(at, f.begin)
	to := sort.Search(len(at), func(i int) bool { return at[i] >= f.heal })
	return max(0, to-from)
}

// latency uses the nearest rank, so each result is the time of an actual acquire. It sorts took.
func latency(took []int64) Latency {
	if len(took) == 0 {
		return Latency{}
	}
	slices.SortFunc(took, cmp.Compare[int64])
	rank := func(perMille int) int64 {
		return took[max(0, (len(took)*perMille+999)/1000-1)] / 1000
	}
	return Latency{Count: len(took), P50: rank(500), P99: rank(990), P999: rank(999), Max: took[len(took)-1] / 1000}
}
