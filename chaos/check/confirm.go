package check

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// confirmOps is how many calls a history may have for porcupine. Its memory grows with their square.
	confirmOps = 2000
	// confirmTime is how long porcupine may take for all histories of a run. It takes for ever on some.
	confirmTime = 10 * time.Second
)

// infinity is when a call returns that may take effect at any time.
const infinity = math.MaxInt32

// What is known of a call's result.
type result uint8

const (
	known   result = iota // it took place: this was read, that was written
	denied                // it was refused
	unknown               // it may have taken place, or may do so later
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

// call records a call by the lines at which it began and returned. Lines tell a call that began when another
// returned from one that began before, which times might not.
func (r *register) call(from, to int, in input, out result) {
	r.all++
	if r.calls == nil || len(r.calls) == confirmOps {
		r.calls = nil
		return
	}
	r.calls = append(r.calls, porcupine.Operation{Call: int64(from), Return: int64(to), Input: in, Output: out})
}

// growingCounter is the model of fences: each is larger than all before it. Numbers may be left out.
var growingCounter = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, _, output any) (bool, any) { return output.(uint64) > state.(uint64), output },
}

// A content is the state of a guarded register.
type content struct {
	fence uint64 // the largest it has seen
	known bool   // value is; it is not before the first read or write
	value int64
}

// registerModel is a register that refuses writes with a smaller fence than it has seen. Without fences it is
// any register.
func registerModel(fenced bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return content{} },
		Step: func(state, input_, output any) (bool, any) {
			return state.(content).step(input_.(input), output.(result), fenced)
		},
	}
}

func (c content) step(in input, out result, fenced bool) (bool, any) {
	if out == denied {
		return in.fence < c.fence || !fenced, c // what has no fences may refuse for reasons of its own
	}
	compares := fenced && in.fence > 0
	if in.kind == writes && compares && in.fence < c.fence {
		return out == unknown, c
	}
	next := c
	if compares {
		next.fence = max(c.fence, in.fence)
	}
	switch {
	case in.kind == writes:
		next.known, next.value = true, in.value
	case out == known && c.known && c.value != in.value:
		return false, c
	case out == known:
		next.known, next.value = true, in.value
	}
	return true, next
}

// confirm asks porcupine about the fences and the guarded registers.
func (j *judge) confirm() error {
	deadline := time.Now().Add(confirmTime)
	var errs []error
	for _, l := range j.locks.all {
		calls, n := j.fenceCalls(l)
		if n == 0 {
			continue
		}
		got := j.porcupine(growingCounter, calls, deadline)
		if got != porcupine.Unknown && (got == porcupine.Ok) != (len(l.badFences) == 0) {
			errs = append(errs, fmt.Errorf("check: fences of %q: porcupine says %s, but %d bad ones were found", l.name, got, len(l.badFences)))
		}
	}
	for _, r := range j.regs.all {
		if r.all == 0 {
			continue
		}
		got := j.porcupine(registerModel(r.fenced), r.calls, deadline)
		switch found := len(r.accepted) + r.unjustified; {
		case got == porcupine.Ok && found > 0:
			errs = append(errs, fmt.Errorf("check: resource %q: porcupine says %s, but %d wrong answers were found", r.name, got, found))
		case got == porcupine.Illegal && found == 0:
			j.violate(Register, r.lock, nil, 0, 0, func() string {
				return fmt.Sprintf("the answers of the resource %q (fenced: %t) are not those of a register behind a fence in any order", r.name, r.fenced)
			})
		}
	}
	return errors.Join(errs...)
}

// fenceCalls returns the calls that got a fence, nil if they are too many, and how many there are. A call
// without a known result may have taken a number, which nobody saw: since numbers may be left out, so can it.
func (j *judge) fenceCalls(l *lock) (calls []porcupine.Operation, n int) {
	for _, i := range l.ops {
		o := &j.ops[i]
		if o.fence == 0 {
			continue
		}
		if n++; n > confirmOps {
			return nil, n
		}
		calls = append(calls, porcupine.Operation{Call: int64(o.askedLine), Return: int64(o.grantLine), Output: o.fence})
	}
	return calls, n
}

// porcupine judges calls, unless there are too many or no time is left.
func (j *judge) porcupine(m porcupine.Model, calls []porcupine.Operation, deadline time.Time) porcupine.CheckResult {
	if calls == nil {
		j.res.Confirmed.TooLong++
		return porcupine.Unknown
	}
	left := time.Until(deadline)
	if left <= 0 {
		j.res.Confirmed.Expired++
		return porcupine.Unknown
	}
	got := porcupine.CheckOperationsTimeout(m, calls, left)
	if got == porcupine.Unknown {
		j.res.Confirmed.Expired++
	} else {
		j.res.Confirmed.Agreed++
	}
	return got
}
