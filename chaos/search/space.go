package search

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlock/redlock/chaos/fault"
)

// A Space says which schedules there are.
type Space struct {
	Nodes   []string
	Clients int // so many contend for the lock. A fault of the network may affect one of them only
	// Verbs are the faults. Promote stands for a whole failover: a replica follows, lags, and is promoted.
	Verbs       []fault.Verb
	From, Until time.Duration // every fault begins and ends between them
	Scale       time.Duration // of the length of faults: the TTL
}

// maxFaults is how many faults a random schedule has at most. Few are easier to vary, and to understand.
const maxFaults = 6

// Random makes a schedule.
func (s Space) Random(r *rand.Rand) fault.Schedule {
	var all fault.Schedule
	for range 1 + r.IntN(maxFaults) {
		all = s.add(r, all)
	}
	return s.fit(all)
}

// add adds a random fault, or a failover.
func (s Space) add(r *rand.Rand, to fault.Schedule) fault.Schedule {
	t := fault.Timed{At: s.at(r)}
	verb := s.Verbs[r.IntN(len(s.Verbs))]
	if verb == fault.ClientClock {
		t.Fault = fault.Fault{Verb: verb, Client: 1 + r.IntN(s.Clients)}
	} else {
		t.Fault = fault.On(verb, s.Nodes[r.IntN(len(s.Nodes))])
	}
	if classOf(verb) == network && r.IntN(2) == 0 {
		t.Fault.Client = 1 + r.IntN(s.Clients)
	}
	t.Fault.By = s.by(r, verb)
	if t.Fault.Lasts() {
		t.Lasts = s.length(r)
	}
	if verb == fault.Promote {
		for _, before := range []fault.Verb{fault.Follow, fault.Lag} {
			to = append(to, fault.Timed{At: t.At, Fault: fault.On(before, t.Fault.Node)})
			t.At += s.upTo(r, s.Scale)
		}
	}
	return append(to, t)
}

// at draws a moment.
func (s Space) at(r *rand.Rand) time.Duration { return s.From + s.upTo(r, s.Until-s.From) }

// length draws how long a fault lasts.
func (s Space) length(r *rand.Rand) time.Duration { return s.Scale/10 + s.upTo(r, s.Scale*3/2) }

// by draws how much a fault delays, or by how much a clock steps.
func (s Space) by(r *rand.Rand, verb fault.Verb) time.Duration {
	switch verb {
	case fault.Delay:
		return s.Scale/50 + s.upTo(r, s.Scale/5)
	case fault.Clock, fault.ClientClock:
		by := s.Scale/10 + s.upTo(r, 2*s.Scale)
		if r.IntN(2) == 0 {
			by = -by
		}
		return by
	}
	return 0
}

// upTo draws a time in whole milliseconds, so that people can read it.
func (s Space) upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most))).Round(time.Millisecond)
}

// Vary makes a schedule that is like one, or partly like one and partly like another.
func (s Space) Vary(r *rand.Rand, one, other fault.Schedule) fault.Schedule {
	varied := slices.Clone(one)
	for first := true; first || r.IntN(2) == 0; first = false {
		varied = s.step(r, varied, other)
	}
	return s.fit(varied)
}

// step makes one change.
func (s Space) step(r *rand.Rand, all, other fault.Schedule) fault.Schedule {
	if len(all) == 0 {
		return s.add(r, all)
	}
	i := r.IntN(len(all))
	t := &all[i]
	switch r.IntN(7) {
	case 0, 1: // a little, or a lot
		t.At += time.Duration(r.NormFloat64() * float64(s.Scale) / float64(int64(1)<<r.IntN(6))).Round(time.Millisecond)
	case 2:
		if t.Fault.Lasts() {
			t.Lasts = time.Duration(float64(t.Lasts) * (0.5 + 1.5*r.Float64())).Round(time.Millisecond)
		}
		if t.Fault.By != 0 {
			t.Fault.By = s.by(r, t.Fault.Verb)
		}
	case 3: // another place
		switch {
		case t.Fault.Node == "":
			t.Fault.Client = 1 + r.IntN(s.Clients)
		case classOf(t.Fault.Verb) == network && r.IntN(2) == 0:
			t.Fault.Client = r.IntN(s.Clients + 1)
		default:
			t.Fault.Node = s.Nodes[r.IntN(len(s.Nodes))]
		}
	case 4:
		return s.add(r, all)
	case 5:
		if len(all) > 1 {
			return slices.Delete(all, i, i+1)
		}
	case 6: // the beginning of one and the end of the other
		cut := s.at(r)
		all = slices.DeleteFunc(all, func(t fault.Timed) bool { return t.At >= cut })
		for _, t := range other {
			if t.At >= cut {
				all = append(all, t)
			}
		}
	}
	return all
}

// A class has the faults that cannot be at one place at the same time.
type class int

const (
	server class = iota
	network
	clock
)

func classOf(verb fault.Verb) class {
	switch verb {
	case fault.Cut, fault.CutReplies, fault.Delay:
		return network
	case fault.Clock, fault.ClientClock:
		return clock
	}
	return server
}

// fit puts faults in order and between the two times, and leaves out what cannot be: two faults of one class at one place at the
// same time, and a step of a failover without the one before it.
func (s Space) fit(all fault.Schedule) fault.Schedule {
	least := max(time.Millisecond, s.Scale/50)
	for i := range all {
		t := &all[i]
		t.At = min(max(s.From, t.At), s.Until-least)
		if t.Fault.Lasts() {
			t.Lasts = min(max(least, t.Lasts), s.Until-t.At)
		}
	}
	slices.SortStableFunc(all, func(a, b fault.Timed) int { return cmp.Compare(a.At, b.At) })
	fit := fault.Schedule{}
	for _, t := range all {
		clash := func(u fault.Timed) bool {
			return classOf(u.Fault.Verb) == classOf(t.Fault.Verb) && u.Fault.Node == t.Fault.Node && u.Fault.Client == t.Fault.Client &&
				t.At <= u.Ends()+least
		}
		if !slices.ContainsFunc(fit, clash) {
			fit = append(fit, t)
		}
	}
	return whole(fit)
}

// whole leaves out the steps of a failover that have not the one before them. A node has one failover.
func whole(all fault.Schedule) fault.Schedule {
	before := map[fault.Verb]fault.Verb{fault.Follow: "", fault.Lag: fault.Follow, fault.Promote: fault.Lag}
	last := map[string]fault.Verb{} // by node
	return slices.DeleteFunc(all, func(t fault.Timed) bool {
		needs, isStep := before[t.Fault.Verb]
		switch {
		case !isStep:
			return false
		case last[t.Fault.Node] != needs:
			return true
		}
		last[t.Fault.Node] = t.Fault.Verb
		return false
	})
}
