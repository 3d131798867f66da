package check

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Who holds a lock, as porcupine gets it: a history of calls that take the lock and calls that leave it. A take has
// effect between its request and its grant. A leave has effect no earlier than the end of the belief, and no later than
// its owner no longer needed it. An op that was handed the lock takes it from the other in one step.

// A hold is such a call.
type hold struct {
	op      int32
	leaves  bool
	from    int32 // takes: the op whose place it takes; -1: none
	reader  bool
	permits int
	asked   int64
	queued  int64 // since when it has its place in the order of arrival; 0: no order is promised
	begin   int64
	end     int64 // at the latest
	effect  int64 // when it has effect at best: no other moment could make more histories legal
}

// holders is the state of a lock.
type holders struct {
	ops   string // who holds it: op numbers of four bytes each, in order
	asked int64  // when the last op was requested, of those that were granted the lock
}

func (h holders) with(op int32) holders {
	all := append(h.list(), op)
	slices.Sort(all)
	return h.of(all)
}

func (h holders) without(op int32) holders {
	return h.of(slices.DeleteFunc(h.list(), func(o int32) bool { return o == op }))
}

func (h holders) has(op int32) bool { return slices.Contains(h.list(), op) }

// after is the state after the call, whether it was legal or not.
func (h holders) after(in *hold) holders {
	switch {
	case in.leaves:
		return h.without(in.op)
	case in.from >= 0:
		return h.without(in.from).with(in.op)
	}
	h = h.with(in.op)
	h.asked = max(h.asked, in.asked)
	return h
}

func (h holders) list() (ops []int32) {
	for i := 0; i < len(h.ops); i += 4 {
		ops = append(ops, int32(binary.BigEndian.Uint32([]byte(h.ops[i:i+4]))))
	}
	return ops
}

func (h holders) of(ops []int32) holders {
	text := make([]byte, 0, 4*len(ops))
	for _, op := range ops {
		text = binary.BigEndian.AppendUint32(text, uint32(op))
	}
	h.ops = string(text)
	return h
}

// A rule says who may take a lock that these ops hold.
type rule func(j *judge, h holders, in *hold) bool

// mutexRule is that of a mutex.
func mutexRule(_ *judge, h holders, _ *hold) bool { return h.ops == "" }

// fairRule is that of a mutex in order of arrival: nobody who was requested after the op had its place was granted the
// lock before.
func fairRule(j *judge, h holders, in *hold) bool {
	return mutexRule(j, h, in) && (in.queued == 0 || h.asked <= in.queued)
}

// readWriteRule lets in a reader where all read, and a writer where nobody is.
func readWriteRule(j *judge, h holders, in *hold) bool {
	return in.reader && !slices.ContainsFunc(h.list(), func(op int32) bool { return !j.ops[op].reader }) || h.ops == ""
}

// permitsRule is that of a semaphore.
func permitsRule(j *judge, h holders, in *hold) bool {
	left := j.run.Permits - in.permits
	for _, op := range h.list() {
		left -= j.ops[op].permits
	}
	return left >= 0
}

// rule returns the rule of a lock. That of readers and writers is that of a mutex where nobody reads.
func (j *judge) rule() rule {
	switch {
	case j.run.Permits > 0:
		return permitsRule
	case j.anyQueued:
		return fairRule
	case slices.ContainsFunc(j.ops, func(o op) bool { return o.reader }):
		return readWriteRule
	}
	return mutexRule
}

// holdersModel is the model of a lock with this rule. A lock that is handed over goes from one op to the next in one
// step; nobody can take it in between.
func (j *judge) holdersModel(may rule, before holders) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return before },
		Step: func(state_, input_, _ any) (bool, any) {
			h, in := state_.(holders), input_.(*hold)
			switch {
			case in.leaves:
				return h.has(in.op), h.after(in)
			case in.from >= 0:
				return h.has(in.from) && may(j, h.without(in.from), in), h.after(in)
			}
			return may(j, h, in), h.after(in)
		},
	}
}

// holds returns the calls of a lock, in the order in which they have effect.
func (j *judge) holds(l *lock) (all []hold) {
	for _, i := range l.ops {
		o, b := &j.ops[i], j.belief(i)
		if o.neverBelieved() {
			continue
		}
		take := hold{op: i, from: -1, reader: o.reader, permits: o.permits, asked: o.asked, queued: o.queued,
			begin: o.asked, end: o.granted, effect: o.granted}
		if o.from >= 0 {
			take.from, take.begin, take.effect = o.from, b.from, b.from
		}
		all = append(all, take)
		if o.next < 0 {
			all = append(all, hold{op: i, leaves: true, begin: b.to, end: max(b.to, o.over), effect: b.to})
		}
	}
	slices.SortStableFunc(all, func(a, b hold) int { return cmp.Compare(a.effect, b.effect) })
	return all
}

// confirmHolders asks porcupine whether the lock kept to its rule. A take that has effect at its grant, and a leave at
// the end of the belief, exclude as few others as possible. So a history that is legal at all is legal with these, and
// it can be cut between any two of them: each window gets the calls that have effect in it. Who holds the lock at the
// cut is known.
func (j *judge) confirmHolders(l *lock, deadline time.Time) error {
	s := &second{j: j, what: "holders", resource: l.name, deadline: deadline}
	if len(l.ops) == 0 {
		return nil
	}
	all, may := j.holds(l), j.rule()
	answer, before := porcupine.Ok, holders{}
	for from, to := 0, 0; from < len(all) && answer == porcupine.Ok; from = to {
		to = min(from+freeCalls, len(all))
		for to < len(all) && all[to].effect == all[to-1].effect {
			to++
		}
		begin, end := all[from].effect, int64(never)
		if to < len(all) {
			end = all[to].effect
		}
		var calls []porcupine.Operation
		next := before
		for i := range all[from:to] {
			in := &all[from+i]
			calls = append(calls, porcupine.Operation{
				Call: max(min(in.begin, in.effect), begin), Return: max(in.effect, min(in.end, end)), Input: in,
			})
			next = next.after(in)
		}
		answer = s.opinion(calls, j.holdersModel(may, before))
		before = next
	}
	s.compare(answer, l.wrongHolders == 0, "")
	return s.end()
}
