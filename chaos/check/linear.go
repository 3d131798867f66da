package check

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// A call is a call to a guarded register. It has lines, because times cannot order events that happen in the same
// nanosecond.
type call struct {
	from, to int // lines; to is infinity if the result is unknown
	op       int32
	at       int64 // when it returned
	in       input
	out      result
}

func (r *register) call(j *judge, from, to int, op int32, in input, out result) {
	r.calls = append(r.calls, call{from: from, to: to, op: op, at: j.at, in: in, out: out})
}

const (
	// maxFlying is how many calls may be in flight at once: one bit each.
	maxFlying = 64
	// maxUnknown is how many of these may be writes without an answer, which stay in flight until the end.
	maxUnknown = 32
	// maxStates is how many states are tried for the return of one call, and maxSteps for all calls of a register. They
	// bound the time, and unlike a time limit they give the same result on every machine.
	maxStates = 20_000
	maxSteps  = 5_000_000
)

// A walk follows every possible state of a register from call to call. A call takes effect at one moment between its
// beginning and its return, so each order that fits leads to a state. If no order fits, the call that returned is
// wrong, and the walk continues as if it had been right. The work depends on how many calls are in flight, not on the
// length of the history.
type walk struct {
	fenced bool
	calls  []call
	states []possible
	slots  [maxFlying]int32 // calls in flight, by slot
	used   uint64           // bits of the used slots
	never  uint64           // of these, writes without an answer
	loose  []uint64         // sorted fencing tokens that the register may see at any time from now on
	flying int              // number of calls in flight that have an answer

	wrong   []int32 // calls
	skipped []skip
	blind   bool   // too many calls are in flight: nothing is judged until none is
	atLeast uint64 // while blind: the largest fencing token that the register has certainly seen
	over    bool   // blind until the end
	steps   int

	line  int // of the current end
	watch watcher
}

// A watcher is notified of each beginning of a call, and of each moment at which no call is in flight.
type watcher interface {
	begins(w *walk, call int32)
	quiet(w *walk)
}

// A skip is a part of a history that was not judged.
type skip struct {
	from, to int
	why      string
}

// An end is where a call begins or returns.
type end struct {
	line, call int32
	returns    bool
}

// ends lists all ends in order. On the same line, beginnings come before returns.
func ends(calls []call) []end {
	all := make([]end, 0, 2*len(calls))
	for i, c := range calls {
		all = append(all, end{int32(c.from), int32(i), false})
		if c.to != infinity {
			all = append(all, end{int32(c.to), int32(i), true})
		}
	}
	slices.SortFunc(all, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(order(a), order(b)), cmp.Compare(a.call, b.call))
	})
	return all
}

func order(e end) int {
	if e.returns {
		return 1
	}
	return 0
}

func (w *walk) run() {
	w.states = []possible{{}}
	for _, e := range ends(w.calls) {
		w.line = int(e.line)
		if !e.returns {
			w.begin(e.call)
			w.watch.begins(w, e.call)
			continue
		}
		w.flying--
		w.finish(e.call)
		if w.flying > 0 {
			continue
		}
		if w.blind && !w.over {
			w.see()
		}
		w.watch.quiet(w)
	}
	if w.blind {
		w.skipped[len(w.skipped)-1].to = w.line
	}
}

func (w *walk) begin(i int32) {
	c := &w.calls[i]
	if c.out != unknown {
		w.flying++
	} else if c.in.kind == reads {
		w.loosen(c.in.fence) // its only possible effect is to show its token
		return
	}
	if w.blind {
		w.loosen(c.in.fence)
		if c.out != unknown || w.over {
			return
		}
	}
	free := bits.TrailingZeros64(^w.used)
	switch {
	case c.out == unknown && bits.OnesCount64(w.never) == maxUnknown:
		w.lose("more than %d writes had no answer", maxUnknown)
		w.over = true
		return
	case free == maxFlying:
		w.lose("more than %d calls were in flight at once", maxFlying)
		w.loosen(c.in.fence)
		return
	}
	w.slots[free] = i
	w.used |= 1 << free
	if c.out == unknown {
		w.never |= 1 << free
	}
}

// loosen notes a fencing token that the register may see at any time.
func (w *walk) loosen(fence uint64) {
	if !w.fenced || fence == 0 {
		return
	}
	if at, known := slices.BinarySearch(w.loose, fence); !known {
		w.loose = slices.Insert(w.loose, at, fence)
	}
}

// lose stops judging until no call is in flight.
func (w *walk) lose(format string, args ...any) {
	if w.blind {
		return
	}
	w.blind = true
	w.skipped = append(w.skipped, skip{from: w.line, why: fmt.Sprintf(format, args...)})
	w.atLeast = w.states[0].fence
	for _, s := range w.states {
		w.atLeast = min(w.atLeast, s.fence)
	}
	for left := w.used; left != 0; left &= left - 1 {
		w.loosen(w.calls[w.slots[bits.TrailingZeros64(left)]].in.fence)
	}
	w.used = w.never // the others are no longer followed
}

// see ends what lose began. Only the token that the register has certainly seen is known. This reports no wrong answer
// by mistake: tokens of the calls that were in flight may be seen, and writes without an answer may still take effect.
func (w *walk) see() {
	w.blind = false
	w.skipped[len(w.skipped)-1].to = w.line
	w.states = []possible{{content: content{fence: w.atLeast}}}
}

// finish processes the return of a call: by then it has taken effect.
func (w *walk) finish(i int32) {
	c := &w.calls[i]
	if w.blind {
		if w.fenced && c.out == known {
			w.atLeast = max(w.atLeast, c.in.fence)
		}
		return
	}
	slot := 0
	for w.used>>slot&1 == 0 || w.slots[slot] != i {
		slot++
	}
	next, enough := w.follow(slot)
	w.used &^= 1 << slot
	switch {
	case !enough:
		w.lose("the calls in flight at once allow too many orders")
		w.finish(i)
		return
	case len(next) == 0:
		w.wrong = append(w.wrong, i)
		for _, s := range w.states {
			for _, after := range s.forced(c.in, c.out, w.fenced) {
				next = append(next, possible{after, s.done &^ (1 << slot)})
			}
		}
	}
	w.states = w.fewest(next)
}

// follow finds the possible states of the register after the call in the slot. Other calls in flight take effect before
// it only if the call needs them or hides their effect; all others can take effect later.
func (w *walk) follow(slot int) (next []possible, enough bool) {
	if len(w.states) == 1 && w.used == 1<<slot && w.states[0].done == 0 { // nearly always
		s := w.states[0]
		if after, ok := w.step(s.content, &w.calls[w.slots[slot]]); ok {
			next = []possible{{after, s.done}}
		}
		return next, true
	}
	seen := make(map[possible]struct{}, 2*len(w.states))
	var open []possible
	push := func(p possible) {
		p = w.settled(p)
		if _, known := seen[p]; !known {
			seen[p] = struct{}{}
			open = append(open, p)
		}
	}
	for _, s := range w.states {
		push(s)
	}
	for len(open) > 0 {
		w.steps++
		if len(seen) > maxStates || w.steps > maxSteps {
			return nil, false
		}
		p := open[len(open)-1]
		open = open[:len(open)-1]
		if p.done>>slot&1 == 1 {
			p.done &^= 1 << slot
			next = append(next, p)
			continue
		}
		for left := w.used &^ p.done; left != 0; left &= left - 1 {
			other := bits.TrailingZeros64(left)
			c := &w.calls[w.slots[other]]
			after, ok := w.step(p.content, c)
			if !ok || after == p.content && c.out == unknown {
				continue // it changes nothing and need not take effect, so it does not
			}
			push(possible{after, p.done | 1<<other})
		}
	}
	return next, true
}
