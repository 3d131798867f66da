package check

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// windowCalls is the minimum number of calls in a window, unless the history ends. A hundred windows of this size
	// take porcupine less time than one window of a hundred times the size.
	windowCalls = 200
	// windowStates is in how many states a register may be at the beginning of a window.
	windowStates = 16
	// windowUnanswered is how many calls without a result porcupine gets in addition to those of the window.
	windowUnanswered = 100
)

// A confirmer cuts the calls of a register into windows where no call is in flight, and asks porcupine about each. The
// possible states of the register at a cut are the initial states of the next window.
type confirmer struct {
	second
	walk *walk

	before     []possible // the states at the beginning of the window
	line       int        // of that beginning
	calls      []int32    // of the window
	unanswered []int32    // calls without a result, so far
	wrong      int        // how many wrong calls the walk had found before the window
	skips      int        // how many parts the walk had skipped before the window
}

func (j *judge) newConfirmer(r *register, w *walk, deadline time.Time) *confirmer {
	return &confirmer{
		second: second{j: j, what: fmt.Sprintf("%s register", fencedOrNot(r.fenced)), resource: r.name, deadline: deadline},
		walk:   w, before: []possible{{}},
	}
}

func fencedOrNot(fenced bool) string {
	if fenced {
		return "fenced"
	}
	return "unfenced"
}

func (c *confirmer) begins(w *walk, call int32) {
	if w.calls[call].out == unknown {
		c.unanswered = append(c.unanswered, call)
	} else {
		c.calls = append(c.calls, call)
	}
}

func (c *confirmer) quiet(w *walk) {
	if len(c.calls) >= windowCalls {
		c.cut(w)
	}
}

// cut asks porcupine about the window, and begins the next one.
func (c *confirmer) cut(w *walk) {
	where := fmt.Sprintf(", lines %d to %d", c.line, w.line)
	switch {
	case len(w.skipped) > c.skips:
		// Our own check has no answer to compare with. It is itself named as left out.
		c.tooLong = true
	case len(c.calls) > confirmOps:
		c.tooLong = true
		c.leave(fmt.Sprintf("from line %d to %d there are %d calls, and some call was always in flight; porcupine takes %d calls",
			c.line, w.line, len(c.calls), confirmOps))
	case len(c.before) > windowStates || len(c.unanswered) > windowUnanswered:
		c.tooLong = true
		c.leave(fmt.Sprintf("from line %d on, too many writes had no answer", c.line))
	case len(c.calls)+len(c.unanswered) > 0:
		var models []porcupine.Model
		for _, p := range c.before {
			models = append(models, registerModel(w.fenced, p))
		}
		c.compare(c.opinion(c.operations(w), models...), len(w.wrong) == c.wrong, where)
	}
	c.before, c.line, c.calls, c.wrong, c.skips = slices.Clone(w.states), w.line, c.calls[:0], len(w.wrong), len(w.skipped)
	if w.blind {
		c.skips-- // the part that begins here is skipped too
	}
}

func (c *confirmer) operations(w *walk) []porcupine.Operation {
	var all []porcupine.Operation
	for _, list := range [][]int32{c.calls, c.unanswered} {
		for _, i := range list {
			one := &w.calls[i]
			all = append(all, porcupine.Operation{
				Call: int64(max(one.from, c.line)), Return: int64(one.to), Input: slotted{one.in, c.bit(w, i)}, Output: one.out,
			})
		}
	}
	return all
}

// bit returns the bit of the call's slot, if it is a write without an answer.
func (c *confirmer) bit(w *walk, call int32) uint64 {
	for left := w.never; left != 0; left &= left - 1 {
		if slot := bits.TrailingZeros64(left); w.slots[slot] == call {
			return 1 << slot
		}
	}
	return 0
}

// confirmed walks through the calls of the register, and lets porcupine check the same calls.
func (j *judge) confirmed(r *register, deadline time.Time) (*walk, error) {
	w := &walk{fenced: r.fenced, calls: r.calls}
	c := j.newConfirmer(r, w, deadline)
	w.watch = c
	w.run()
	c.cut(w)
	for _, s := range w.skipped {
		j.leaveOut(fencedOrNot(r.fenced)+" register", r.name, fmt.Sprintf("lines %d to %d were not judged: %s", s.from, s.to, s.why))
		j.unsure = true
	}
	return w, c.end()
}
