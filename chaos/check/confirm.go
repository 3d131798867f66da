package check

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// confirmOps is how many calls porcupine gets at once. Its memory grows with their square.
	confirmOps = 2000
	// freeCalls is how many calls porcupine gets at once where a history can be cut between any two. While many clients
	// wait, all of their calls are in flight, and what porcupine has to try doubles with each.
	freeCalls = 12
	// confirmTime is how long porcupine may take for all histories of a run. For some it would never end.
	confirmTime = 10 * time.Second
)

// infinity is the return of a call that may take effect at any time.
const infinity = math.MaxInt32

// A result is what is known about the result of a call.
type result uint8

const (
	known   result = iota // it took effect
	denied                // it was refused
	unknown               // it may have taken effect, or may do so later
)

// An input is a call to a guarded register.
type input struct {
	kind  accessKind
	fence uint64
	value int64
}

type accessKind uint8

const (
	reads accessKind = iota
	writes
)

// growingCounter is the model of fencing tokens: each is larger than all before it. There may be gaps. 0 is none, which
// nobody gets after a token.
func growingCounter(before uint64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return before },
		Step: func(state, _, output any) (bool, any) {
			before, token := state.(uint64), output.(uint64)
			return token > before || token+before == 0, token
		},
	}
}

// A content is the state of a guarded register.
type content struct {
	fence uint64 // the largest fencing token that it has seen
	known bool   // value is known: after the first read or write
	value int64
}

// registerModel is a register that refuses writes with a smaller fencing token than it has seen; an unfenced one does
// not. A call without a known result that already took effect does not take effect again.
func registerModel(fenced bool, before possible) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return before },
		Step: func(state_, input_, output any) (bool, any) {
			state, in := state_.(possible), input_.(slotted)
			if state.done&in.bit != 0 {
				return true, state
			}
			after, ok := state.step(in.input, output.(result), fenced)
			return ok, possible{after, state.done | in.bit}
		},
	}
}

// A slotted input has the bit of its slot, if the call may outlast a window.
type slotted struct {
	input
	bit uint64
}

func (c content) step(in input, out result, fenced bool) (after content, ok bool) {
	if out == denied {
		return c, in.fence < c.fence || !fenced // an unfenced resource may refuse for any reason
	}
	compares := fenced && in.fence > 0
	if in.kind == writes && compares && in.fence < c.fence {
		return c, out == unknown
	}
	next := c
	if compares {
		next.fence = max(c.fence, in.fence)
	}
	switch {
	case in.kind == writes:
		next.known, next.value = true, in.value
	case out == known && c.known && c.value != in.value:
		return c, false
	case out == known:
		next.known, next.value = true, in.value
	}
	return next, true
}

// A second is the second opinion, by porcupine, on one history of a run. Porcupine gets it in parts, because its memory
// grows with the square of their length.
type second struct {
	j        *judge
	what     string
	resource string
	deadline time.Time

	errs             []error
	asked            bool
	tooLong, expired bool
	left             string // why a part was left out
}

// opinion returns whether one of the models allows the calls, according to porcupine.
func (s *second) opinion(calls []porcupine.Operation, models ...porcupine.Model) porcupine.CheckResult {
	answer := porcupine.Illegal
	for _, m := range models {
		left := time.Until(s.deadline)
		if left <= 0 {
			return porcupine.Unknown
		}
		if answer = porcupine.CheckOperationsTimeout(m, calls, left); answer != porcupine.Illegal {
			break
		}
	}
	return answer
}

// compare compares an opinion with the result of our own check.
func (s *second) compare(answer porcupine.CheckResult, right bool, where string) {
	s.asked = true
	switch {
	case answer == porcupine.Unknown:
		s.expired = true
		s.leave(fmt.Sprintf("all second opinions together took longer than %v", confirmTime))
	case (answer == porcupine.Ok) != right:
		s.errs = append(s.errs, fmt.Errorf("check: %s of %q%s: porcupine says %s, our own check says correct: %t",
			s.what, s.resource, where, answer, right))
	}
}

// leave records why a part has no second opinion. The first reason counts.
func (s *second) leave(why string) {
	s.asked, s.left = true, cmp.Or(s.left, why)
}

// end counts the history. It names it if it was not completely confirmed.
func (s *second) end() error {
	c := &s.j.res.Confirmed
	switch {
	case !s.asked:
	case s.tooLong:
		c.TooLong++
	case s.expired:
		c.Expired++
	default:
		c.Agreed++
	}
	if s.left != "" {
		s.j.leaveOut("second opinion on the "+s.what, s.resource, s.left)
	}
	return errors.Join(s.errs...)
}

// confirmFences asks porcupine about the fencing tokens of a lock. Tokens that grow can only be in the order of their
// size. So the calls are split into parts by the size of their token, and no call of a part may begin after a call of a
// later part has returned.
func (j *judge) confirmFences(l *lock, deadline time.Time) error {
	s := &second{j: j, what: "fencing tokens", resource: l.name, deadline: deadline}
	var ops []int32
	for _, i := range l.ops {
		if j.showsFence(&j.ops[i]) {
			ops = append(ops, i)
		}
	}
	if l.largest == 0 { // the subject has none
		return nil
	}
	slices.SortStableFunc(ops, func(a, b int32) int { return cmp.Compare(j.ops[a].fence, j.ops[b].fence) })
	returned := make([]int, len(ops)+1) // the first return of this and all following ops
	returned[len(ops)] = infinity
	for i, op := range slices.Backward(ops) {
		returned[i] = min(returned[i+1], j.ops[op].grantLine)
	}
	answer, before := porcupine.Ok, uint64(0)
	for from := 0; from < len(ops) && answer == porcupine.Ok; from += freeCalls {
		to := min(from+freeCalls, len(ops))
		var calls []porcupine.Operation
		for _, i := range ops[from:to] {
			o := &j.ops[i]
			if o.askedLine > returned[to] {
				answer = porcupine.Illegal
			}
			calls = append(calls, porcupine.Operation{Call: int64(o.askedLine), Return: int64(o.grantLine), Output: o.fence})
		}
		if answer == porcupine.Ok {
			answer = s.opinion(calls, growingCounter(before))
		}
		before = j.ops[ops[to-1]].fence
	}
	s.compare(answer, len(l.badFences) == 0, "")
	return s.end()
}
