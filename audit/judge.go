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
	o.ClockError = min(o.ClockError, 30*365*24*time.Hour)
	j := &judge{clockError: int64(o.ClockError), result: Result{ClockErrorSeconds: o.ClockError.Seconds(),
		Counts: map[ViolationKind]int{}, Violations: []Violation{}, LeftOut: []string{}}}
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
		if !l.end.ok {
			r.NoEnd++
		}
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
	if j.jumped(p) {
		j.leaveOut("%s: its wall clock was set by %v, or the machine was suspended, so its leases were compared with those of other processes by fencing tokens only", p.name, p.jump.Round(time.Millisecond))
	}
}

// jumped reports whether the wall clock of the process was set.
func (j *judge) jumped(p *process) bool {
	return p.jump > max(2*time.Duration(j.clockError), smallJump)
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
		if !j.jumped(l.of) {
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
			j.add(Violation{Kind: FenceDuplicate, Basis: ByFence}, []*hold{had, l}, func() string {
				return fmt.Sprintf("%s and %s have the same fencing token %d", had.of.name, l.of.name, l.fence)
			})
		}
	}
}

// A span is when a lease was valid by one clock, and when it was asked for. If two spans overlap with the end of each made sooner
// by certain, the two leases did: whatever the error of the clock was, each began before the other ended.
type span struct {
	*hold
	asked, from, to int64
}

// spans are in the order of from. By wall clocks, each reading may be wrong by the clock error.
func (j *judge) spans(leases []*hold, by Basis) (spans []span, certain int64) {
	spans = make([]span, 0, len(leases))
	for _, l := range leases {
		if by == ByProcess {
			spans = append(spans, span{l, l.asked.at, l.from.at, l.to.at})
		} else {
			spans = append(spans, span{l, l.asked.wall, l.from.wall, l.to.wall})
		}
	}
	if by == ByClocks {
		certain = 2 * j.clockError
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.fence, b.fence)) })
	return spans, certain
}

// A mode is how a lease shares the lock.
type mode int

const (
	alone mode = iota
	reading
	permitted
)

func (l *hold) mode() mode {
	switch {
	case l.reader:
		return reading
	case l.permits > 0:
		return permitted
	}
	return alone
}

// An active is the spans of one mode that may not have ended.
type active struct {
	spans []span
	most  int // when it has so many, those that have ended are dropped
}

func (a *active) add(s span) {
	if a.spans = append(a.spans, s); len(a.spans) > a.most {
		a.spans = slices.DeleteFunc(a.spans, func(b span) bool { return b.to < s.from })
		a.most = 2*len(a.spans) + 16
	}
}

// overlaps finds leases that were valid at the same time and must not have been. Readers may be, and holders of permits are
// counted.
func (j *judge) overlaps(leases []*hold, by Basis) {
	spans, certain := j.spans(leases, by)
	var of [3]active
	for _, s := range spans {
		if s.never {
			continue
		}
		near := false
		for m := range of {
			if mode(m) == s.mode() && mode(m) != alone {
				continue
			}
			of[m].spans = slices.DeleteFunc(of[m].spans, func(a span) bool { return a.to <= s.from })
			for _, a := range of[m].spans {
				switch {
				case a.id == s.id || by == ByClocks && a.of == s.of: // one process's were compared exactly
				case a.to-certain > s.from && s.to-certain > a.from:
					j.overlap(a, s, by)
				case by == ByClocks:
					near = true
				}
			}
		}
		if near {
			j.result.Close++
		}
		of[s.mode()].add(s)
		if s.mode() == permitted {
			j.permits(of[permitted].spans, certain, by)
		}
	}
}

// permits finds more permits than there are among the leases that were certainly valid at the same time as the last one. Each of
// them was at the same time as each other, and so all were at some moment.
func (j *judge) permits(spans []span, certain int64, by Basis) {
	last := spans[len(spans)-1]
	with := func(a span) bool {
		return a.id == last.id || a.to-certain > last.from && last.to-certain > a.from
	}
	taken, all, others := 0, 0, false
	for _, a := range spans {
		if with(a) {
			taken, all, others = taken+a.permits, max(all, a.all), others || a.of != last.of
		}
	}
	if taken <= all || by == ByClocks && !others {
		return
	}
	var holders []*hold
	until := last.to
	for _, a := range spans {
		if with(a) {
			until = min(until, a.to)
			holders = append(holders, a.hold)
		}
	}
	j.add(Violation{Kind: Overlap, Basis: by, Millis: millis(max(0, until-last.from-certain))}, holders, func() string {
		return fmt.Sprintf("%d permits of %d were held at the same time", taken, all)
	})
}

func (j *judge) overlap(a, s span, by Basis) {
	both := min(a.to, s.to) - s.from
	if by == ByClocks {
		both = max(0, both-2*j.clockError)
	}
	j.add(Violation{Kind: Overlap, Basis: by, Millis: millis(both)}, []*hold{a.hold, s.hold}, func() string {
		text := fmt.Sprintf("%s and %s held it at the same time", a.who(), s.who())
		if both > 0 {
			text += fmt.Sprintf(", for %v at least", time.Duration(both).Round(10*time.Microsecond))
		}
		return text
	})
}

// inversions finds leases with smaller fencing tokens than others that had been granted when they were asked for.
func (j *judge) inversions(leases []*hold, by Basis) {
	granted, certain := j.spans(leases, by)
	asked := slices.Clone(granted)
	slices.SortStableFunc(asked, func(a, b span) int { return cmp.Compare(a.asked, b.asked) })
	var highest span
	i := 0
	for _, s := range asked {
		for ; i < len(granted) && granted[i].from+certain < s.asked; i++ {
			if highest.hold == nil || granted[i].fence > highest.fence {
				highest = granted[i]
			}
		}
		if s.fence > 0 && highest.hold != nil && s.fence < highest.fence && (by == ByProcess || highest.of != s.of) {
			j.add(Violation{Kind: FenceInversion, Basis: by}, []*hold{s.hold, highest.hold}, func() string {
				return fmt.Sprintf("%s was asked for after %s was granted, and has the smaller fencing token", s.who(), highest.who())
			})
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

// add counts a violation, and lists it if there is room.
func (j *judge) add(v Violation, leases []*hold, text func() string) {
	r := &j.result
	if r.Counts[v.Kind]++; r.Counts[v.Kind] > MaxListed {
		return
	}
	v.Name, v.Text = j.name, text()
	for _, l := range leases {
		v.Leases = append(v.Leases, Lease{Process: l.of.name, Lease: l.id, Fence: l.fence, End: l.end,
			From: time.Unix(0, l.from.wall).UTC(), To: time.Unix(0, l.to.wall).UTC()})
	}
	slices.SortStableFunc(v.Leases, func(a, b Lease) int { return cmp.Compare(a.Fence, b.Fence) })
	r.Violations = append(r.Violations, v)
}
