package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Judge compares all leases in the journals of all processes that share the locks.
func Judge(o Options, journals ...*Journal) Result {
	if o.ClockError <= 0 {
		o.ClockError = DefaultClockError
	}
	j := &judge{clockError: int64(o.ClockError), jumped: map[*process]bool{}, result: Result{ClockErrorSeconds: o.ClockError.Seconds(), Counts: map[ViolationKind]int{},
		Violations: []Violation{}, LeftOut: []string{}}}
	byName := map[string][]*hold{}
	for _, journal := range journals {
		if journal.cut > 0 {
			j.leaveOut("%s: lines that are not whole, as where a process crashes: %d", journal.name, journal.cut)
		}
	}
	for _, p := range merged(journals) {
		j.take(p, byName)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		j.name = name
		j.judge(byName[name])
	}
	return j.end(len(byName))
}

// A judge judges one name after the other.
type judge struct {
	clockError int64 // nanoseconds
	result     Result
	name       string
	jumped     map[*process]bool // whose wall clock was set
}

// take takes the leases of a process, by name.
func (j *judge) take(p *process, byName map[string][]*hold) {
	r := &j.result
	r.Processes++
	unknown, missed := 0, uint64(0)
	for _, id := range slices.Sorted(maps.Keys(p.leases)) {
		l := p.leases[id]
		if l.names == nil {
			unknown++
			continue
		}
		r.Leases++
		for _, h := range l.holds(p) {
			for _, name := range l.names {
				byName[name] = append(byName[name], h)
			}
			if from := time.Unix(0, h.from.wall).UTC(); r.From.IsZero() || from.Before(r.From) {
				r.From = from
			}
			if to := time.Unix(0, h.to.wall).UTC(); to.After(r.To) {
				r.To = to
			}
		}
	}
	for _, n := range p.missed {
		missed += n
	}
	if missed > 0 {
		j.leaveOut("%s: events that were not recorded, so that leases may be missing: %d", p.name, missed)
	}
	if unknown > 0 {
		j.leaveOut("%s: nobody knows when these leases began, as where a journal lacks its first part: %d", p.name, unknown)
	}
	if p.jump-p.drift > max(2*time.Duration(j.clockError), smallJump) {
		j.jumped[p] = true
		j.leaveOut("%s: its wall clock was set by %v, or the machine was suspended, so its leases were compared with those of other processes by fencing tokens only", p.name, p.jump.Round(time.Millisecond))
	}
}

// smallJump is less than what tells that a clock was set: between two readings a process may stand still.
const smallJump = 10 * time.Millisecond

func (j *judge) leaveOut(format string, args ...any) {
	j.result.LeftOut = append(j.result.LeftOut, fmt.Sprintf(format, args...))
}

func (j *judge) end(names int) Result {
	r := &j.result
	r.Names = names
	if r.Leases == 0 {
		j.leaveOut("there are no leases in the journals")
	}
	switch {
	case len(r.Violations) > 0:
		r.Verdict = Violated
	case len(r.LeftOut) > 0:
		r.Verdict = Unsure
	default:
		r.Verdict = Consistent
	}
	return *r
}

// judge judges the leases of one name.
func (j *judge) judge(leases []*hold) {
	byProcess := map[*process][]*hold{}
	var processes []*process
	var steady []*hold // of processes whose wall clocks were not set
	for _, l := range leases {
		if byProcess[l.of] == nil {
			processes = append(processes, l.of)
		}
		byProcess[l.of] = append(byProcess[l.of], l)
		if !j.jumped[l.of] {
			steady = append(steady, l)
		}
	}
	inverted := j.result.Counts[FenceInversion]
	j.duplicates(leases)
	for _, p := range processes {
		j.overlaps(byProcess[p], ByProcess)
		j.inversions(byProcess[p], ByProcess)
	}
	if len(processes) > 1 {
		j.inversions(steady, ByClocks)
		j.overlaps(steady, ByClocks)
	}
	if j.result.Counts[FenceInversion] == inverted { // else their order says nothing
		j.order(leases)
	}
}

// duplicates finds leases with the same fencing token.
func (j *judge) duplicates(leases []*hold) {
	first := map[uint64]*hold{}
	for _, l := range leases {
		switch had := first[l.fence]; {
		case l.fence == 0:
		case had == nil:
			first[l.fence] = l
		case had.id != l.id:
			j.add(Violation{Kind: FenceDuplicate, Basis: ByFence,
				Text: fmt.Sprintf("%s and %s have the same fencing token %d", had.of.name, l.of.name, l.fence)}, had, l)
		}
	}
}

// A span is when a lease was valid by one clock, and when it was asked for. Of a clock that may be wrong, it is what the lease
// had for certain, whatever the error was.
type span struct {
	*hold
	asked, from, to int64
}

// spans are in the order of from.
func (j *judge) spans(leases []*hold, by Basis) []span {
	spans := make([]span, 0, len(leases))
	for _, l := range leases {
		if by == ByProcess {
			spans = append(spans, span{l, l.asked.at, l.from.at, l.to.at})
			continue
		}
		spans = append(spans, span{l, l.asked.wall - j.clockError, l.from.wall + j.clockError, l.to.wall - j.clockError})
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.fence, b.fence)) })
	return spans
}

// excludes reports whether the two must not be at the same time. Permits are counted instead.
func (l *hold) excludes(m *hold) bool {
	return !(l.reader && m.reader) && !(l.permits > 0 && m.permits > 0)
}

// overlaps finds leases that were valid at the same time and must not have been.
func (j *judge) overlaps(leases []*hold, by Basis) {
	spans := j.spans(leases, by)
	if by == ByClocks {
		j.result.Close += j.closeOnes(spans)
	}
	var active []span
	for _, s := range spans {
		if s.to <= s.from {
			continue
		}
		active = slices.DeleteFunc(active, func(a span) bool { return a.to <= s.from })
		for _, a := range active {
			if a.excludes(s.hold) && (by == ByProcess || a.of != s.of) { // of one process they were compared exactly
				j.overlap(a, s, by)
			}
		}
		active = append(active, s)
		if s.permits > 0 {
			j.permits(active, by)
		}
	}
}

// permits finds more permits than there are among the leases that are valid at the same time, since the last one of them.
func (j *judge) permits(active []span, by Basis) {
	last := active[len(active)-1]
	taken, all, until := 0, 0, last.to
	var holders []*hold
	processes := map[*process]bool{}
	for _, a := range active {
		if a.permits > 0 {
			taken, all, until = taken+a.permits, max(all, a.all), min(until, a.to)
			holders = append(holders, a.hold)
			processes[a.of] = true
		}
	}
	if taken > all && (by == ByProcess || len(processes) > 1) {
		j.add(Violation{Kind: Overlap, Basis: by, Millis: millis(until - last.from),
			Text: fmt.Sprintf("%d permits of %d were held at the same time", taken, all)}, holders...)
	}
}

func (j *judge) overlap(a, s span, by Basis) {
	both := min(a.to, s.to) - s.from
	j.add(Violation{Kind: Overlap, Basis: by, Millis: millis(both), Text: fmt.Sprintf("%s and %s held it at the same time, for %v at least",
		a.who(), s.who(), time.Duration(both).Round(10*time.Microsecond))}, a.hold, s.hold)
}

// closeOnes counts the leases that seem to overlap with one of another process, if the clocks are taken as right.
func (j *judge) closeOnes(spans []span) (n int) {
	var active []span
	for _, s := range spans {
		s.from, s.to = s.from-j.clockError, s.to+j.clockError
		active = slices.DeleteFunc(active, func(a span) bool { return a.to <= s.from })
		if slices.ContainsFunc(active, func(a span) bool {
			return a.of != s.of && a.excludes(s.hold) && min(a.to, s.to)-s.from <= 2*j.clockError
		}) {
			n++
		}
		active = append(active, s)
	}
	return n
}

// inversions finds leases with smaller fencing tokens than others that had been granted when they were asked for.
func (j *judge) inversions(leases []*hold, by Basis) {
	granted := j.spans(leases, by)
	asked := slices.Clone(granted)
	slices.SortStableFunc(asked, func(a, b span) int { return cmp.Compare(a.asked, b.asked) })
	var highest span
	i := 0
	for _, s := range asked {
		for ; i < len(granted) && granted[i].from < s.asked; i++ {
			if highest.hold == nil || granted[i].fence > highest.fence {
				highest = granted[i]
			}
		}
		if s.fence > 0 && highest.hold != nil && s.fence < highest.fence && (by == ByProcess || highest.of != s.of) {
			j.add(Violation{Kind: FenceInversion, Basis: by, Text: fmt.Sprintf("%s was asked for after %s was granted, and has the smaller fencing token",
				s.who(), highest.who())}, s.hold, highest.hold)
		}
	}
}

func (l *hold) who() string {
	if l.fence == 0 {
		return l.of.name
	}
	return fmt.Sprintf("%s with fencing token %d", l.of.name, l.fence)
}

func millis(nanos int64) float64 { return float64(nanos) / 1e6 }

func (j *judge) add(v Violation, leases ...*hold) {
	r := &j.result
	v.Name = j.name
	for _, l := range leases {
		v.Leases = append(v.Leases, Lease{Process: l.of.name, Lease: l.id, Fence: l.fence, End: l.end,
			From: time.Unix(0, l.from.wall).UTC(), To: time.Unix(0, l.to.wall).UTC()})
	}
	slices.SortStableFunc(v.Leases, func(a, b Lease) int { return cmp.Compare(a.Fence, b.Fence) })
	r.Counts[v.Kind]++
	if r.Counts[v.Kind] <= MaxListed {
		r.Violations = append(r.Violations, v)
	}
}
