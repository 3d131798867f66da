package check

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// A call is one to a guarded register. Its lines tell a call that began when another returned from one that
// began before, which times might not.
type call struct {
	from, to int // lines; to is infinity where the result is unknown
	op       int32
	at       int64 // when it returned
	in       input
	out      result
}

func (r *register) call(j *judge, from, to int, op int32, in input, out result) {
	r.calls = append(r.calls, call{from: from, to: to, op: op, at: j.at, in: in, out: out})
}

const (
	// maxFlying is how many calls in flight at once are judged: one bit each.
	maxFlying = 64
	// maxUnknown is how many of these may be writes without an answer, which stay in flight to the end.
	maxUnknown = 32
	// maxStates is how many states are looked at for one call to return, and maxSteps for all of a register. They
	// bound the time; a number of steps, unlike a time, is the same on every machine.
	maxStates = 20_000
	maxSteps  = 5_000_000
)

// A walk follows a register through its calls, with every state that it may be in. A call takes effect at one
// moment between its begin and its return; a state is followed for each order that fits. Where none fits, the
// call that returned is wrong, and the walk goes on as if it had been right. What is in flight bounds the
// work, so the length of a history does not matter.
type walk struct {
	fenced bool
	calls  []call
	states []possible
	slots  [maxFlying]int32 // calls in flight, by slot
	used   uint64           // slots
	never  uint64           // of these, writes without an answer
	ghosts []uint64         // fences, in order, that the register may see at any time from now on
	flying int              // calls in flight that have an answer

	wrong   []int32 // calls
	skipped []skip
	blind   bool   // too much is in flight: nothing is judged until nothing is
	atLeast uint64 // the fence that the register has surely seen, while blind
	over    bool   // blind to the end
	steps   int

	line  int // of the end at hand
	watch watcher
}

// A watcher is told of each call that is not judged blindly, and of each moment in which none is in flight.
type watcher interface {
	begins(w *walk, call int32)
	quiet(w *walk)
}

// A skip is a part of a history, in lines, that was not judged.
type skip struct {
	from, to int
	why      string
}

// An end is where a call begins or returns.
type end struct {
	line, call int32
	returns    bool
}

// ends lists them in order. A call that begins where another returns may come before it.
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
		w.haunt(c.in.fence) // all that it can do is show its fence, and that as often as one likes
		return
	}
	if w.blind {
		w.haunt(c.in.fence)
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
		w.haunt(c.in.fence)
		return
	}
	w.slots[free] = i
	w.used |= 1 << free
	if c.out == unknown {
		w.never |= 1 << free
	}
}

// haunt notes a fence that may be seen at any time.
func (w *walk) haunt(fence uint64) {
	if !w.fenced || fence == 0 {
		return
	}
	if at, known := slices.BinarySearch(w.ghosts, fence); !known {
		w.ghosts = slices.Insert(w.ghosts, at, fence)
	}
}

// lose gives up until nothing is in flight.
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
		w.haunt(w.calls[w.slots[bits.TrailingZeros64(left)]].in.fence)
	}
	w.used = w.never // the others are not followed any more
}

// see goes on after lose. Nothing is known but what the register has surely seen, and no wrong thing is said:
// a fence of what was in flight is one that it may have seen, and a write without an answer may still come.
func (w *walk) see() {
	w.blind = false
	w.skipped[len(w.skipped)-1].to = w.line
	w.states = []possible{{content: content{fence: w.atLeast}}}
}

// finish is for a call that returns: it has taken effect.
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
		w.lose("the calls in flight at once allow for too many orders")
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

// follow finds the states that the register may be in after the call in the slot. Of the other calls in
// flight only those have to take effect that it could not do without, or that it hides; the others can as well
// come later.
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
				continue // what need not take effect does not, if it changes nothing
			}
			push(possible{after, p.done | 1<<other})
		}
	}
	return next, true
}
