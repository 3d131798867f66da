package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
)

// A registerKey names a guarded resource. Each has a counter that compares fencing tokens and one that does not.
type registerKey struct {
	name   string
	fenced bool
}

// A register is everything known about a guarded counter.
type register struct {
	registerKey
	lock *lock

	pending map[int32]write // writes without an answer so far, by op
	touched map[int32]int   // the line of the last access, by op
	writers map[int64]write // the last accepted write of each value
	tail    []write         // accepted writes, each of which may be the last to take effect
	newest  int             // the grant line of the newest lease whose write was accepted

	surely   uint64 // the largest fencing token that the resource has certainly seen
	surelyOp int32
	seen     []sighting // all fencing tokens that it may have seen
	refused  []write
	stale    []write // accepted from a holder that may no longer have believed
	accepted []stalePair
	lost     []lostPair

	wrong    map[int]bool // lines of answers that these checks found wrong
	calls    []call
	unclear  []write // writes without an answer
	late     []write // accepted, and answered after another op was granted the lock; sorted by line of the answer
	lateFrom []int   // for each of late, the smallest line of it and all after it
}

// A write is a write that was sent.
type write struct {
	op         int32
	line       int
	answerLine int
	at         int64
	value      int64
	fence      uint64
	surely     uint64 // register.surely when it was sent, and its op
	surelyOp   int32
	followed   bool // another op was granted the lock before it was sent
	overtaken  bool // and such an op had already written
}

// A sighting is a fencing token that reached the resource no earlier than a line.
type sighting struct {
	line  int
	fence uint64
}

// A stalePair is a stale write that was accepted, and the op that made it stale.
type stalePair struct {
	w     write
	newer int32
}

// A lostPair is an update that was lost, and the op that destroyed it. Usually both wrote the same value.
type lostPair struct {
	first, second int32
	value, wrote  int64
	at            int64
	fenced        bool
	from, to      int // lines: of the first write, and of the answer to the second
}

func (j *judge) register(e *history.Event, l *lock) *register {
	key := registerKey{e.Resource, e.Fenced}
	return j.regs.get(key, func() *register {
		return &register{
			registerKey: key, lock: l, pending: map[int32]write{}, touched: map[int32]int{},
			writers: map[int64]write{}, wrong: map[int]bool{},
		}
	})
}

func (j *judge) access(e *history.Event) {
	i := j.byID[e.Op]
	o := &j.ops[i]
	r := j.register(e, o.lock)
	fence := cmp.Or(e.Fence, o.fence)
	if o.shared {
		fence = 0
	}
	if e.Kind != history.Written {
		o.touched = e.At
	}
	o.accessed = true
	switch e.Kind {
	case history.Read:
		j.read(r, i, e.Value, fence)
	case history.Write:
		newest := o.lock.ops[len(o.lock.ops)-1]
		r.pending[i] = write{
			op: i, line: j.line, at: e.At, value: e.Value, fence: fence, surely: r.surely, surelyOp: r.surelyOp,
			followed: newest != i, overtaken: r.newest > o.grantLine,
		}
		r.see(j.line, fence)
	default:
		w := r.pending[i]
		delete(r.pending, i)
		w.answerLine = j.line
		j.written(r, w, e)
	}
	r.touched[i] = j.line
}

// read processes a read. It happened at some time after the op's last access or its grant.
func (j *judge) read(r *register, i int32, value int64, fence uint64) {
	since, again := r.touched[i]
	if !again {
		since = j.ops[i].grantLine
	}
	r.see(since, fence)
	r.surelySeen(fence, i)
	r.call(j, since, j.line, i, input{kind: reads, fence: fence, value: value}, known)
}

func (r *register) see(line int, fence uint64) {
	if r.fenced && fence > 0 {
		r.seen = append(r.seen, sighting{line, fence})
	}
}

func (r *register) surelySeen(fence uint64, i int32) {
	if fence > r.surely {
		r.surely, r.surelyOp = fence, i
	}
}

// written judges an answer as far as possible without the rest of the history.
func (j *judge) written(r *register, w write, e *history.Event) {
	in := input{kind: writes, fence: w.fence, value: w.value}
	switch {
	case e.Error != "":
		r.call(j, w.line, infinity, w.op, in, unknown)
		r.unclear = append(r.unclear, w)
		return
	case !e.OK:
		r.call(j, w.line, j.line, w.op, in, denied)
		if r.fenced {
			r.refused = append(r.refused, w)
		}
		return
	}
	r.call(j, w.line, j.line, w.op, in, known)
	if r.fenced && w.fence > 0 {
		if w.fence < w.surely {
			r.accepted = append(r.accepted, stalePair{w, w.surelyOp})
		}
	} else if w.followed {
		r.stale = append(r.stale, w)
	}
	if first, taken := r.writers[w.value]; taken {
		r.lose(j, first, w, w.value, e.At)
	}
	r.writers[w.value] = w
	if o := &j.ops[w.op]; o.lock.ops[len(o.lock.ops)-1] != w.op {
		r.late = append(r.late, w)
	}
	r.tail = append(slices.DeleteFunc(r.tail, func(t write) bool { return t.answerLine < w.line }), w)
	r.newest = max(r.newest, j.ops[w.op].grantLine)
	r.surelySeen(w.fence, w.op)
}

// checkRegister judges what needs the whole history. An error means that two checks contradict each other.
func (j *judge) checkRegister(r *register, deadline time.Time) error {
	j.phantoms(r)
	for _, w := range r.pending {
		r.call(j, w.line, infinity, w.op, input{kind: writes, fence: w.fence, value: w.value}, unknown)
		r.unclear = append(r.unclear, w)
	}
	j.checkRefused(r)
	for _, s := range r.accepted {
		r.wrong[s.w.answerLine] = true
		j.res.StaleWritesAccepted++
		j.res.FencedStaleAccepted++
		j.violate(StaleWriteAccepted, r.lock, []int32{s.w.op, s.newer}, s.w.at, 0, func() string {
			return fmt.Sprintf("the fenced resource %q accepted a write of %s with the fencing token %d at %s, after it had seen the token %d of %s",
				r.name, j.name(s.w.op), s.w.fence, clock(s.w.at), s.w.surely, j.name(s.newer))
		})
	}
	for _, w := range r.stale {
		if w.overtaken || w.at > j.ops[w.op].believes {
			j.res.StaleWritesAccepted++
		}
	}
	j.checkLost(r)
	return j.checkOrder(r, deadline)
}

// checkOrder finds the answers that no order of the calls allows. They include what checkRefused and the fencing tokens
// have already reported.
func (j *judge) checkOrder(r *register, deadline time.Time) error {
	w, err := j.confirmed(r, deadline)
	found := map[int]bool{}
	for _, i := range w.wrong {
		c := &w.calls[i]
		found[c.to] = true
		if r.wrong[c.to] {
			continue
		}
		j.violate(Register, r.lock, []int32{c.op}, c.at, 0, func() string {
			did := "read %d from"
			if c.in.kind == writes {
				did = "wrote %d to"
			}
			return fmt.Sprintf("%s "+did+" the %s resource %q at %s, which fits no order of the reads and writes",
				j.name(c.op), c.in.value, fencedOrNot(r.fenced), r.name, clock(c.at))
		})
	}
	for line := range r.wrong {
		if !found[line] && !slices.ContainsFunc(w.skipped, func(s skip) bool { return s.from <= line && line <= s.to }) {
			err = errors.Join(err, fmt.Errorf("check: %s resource %q: the answer in line %d is wrong, and yet fits an order",
				fencedOrNot(r.fenced), r.name, line))
		}
	}
	return err
}

// phantoms adds possible reads of holders about which nothing else is known: they may have been stopped after a read
// and before it was recorded.
func (j *judge) phantoms(r *register) {
	if !r.fenced {
		return
	}
	for _, i := range r.lock.ops {
		if o := &j.ops[i]; !o.accessed && !o.ended && o.fence > 0 && !o.shared {
			r.see(o.grantLine, o.fence)
			r.call(j, o.grantLine, infinity, i, input{kind: reads, fence: o.fence}, unknown)
		}
	}
}

// checkRefused separates refused writes that were stale from those that were refused without a reason.
func (j *judge) checkRefused(r *register) {
	slices.SortFunc(r.seen, func(a, b sighting) int { return cmp.Compare(a.line, b.line) })
	for i := 1; i < len(r.seen); i++ {
		r.seen[i].fence = max(r.seen[i].fence, r.seen[i-1].fence)
	}
	for _, w := range r.refused {
		n := sort.Search(len(r.seen), func(i int) bool { return r.seen[i].line >= w.answerLine })
		largest := uint64(0)
		if n > 0 {
			largest = r.seen[n-1].fence
		}
		if w.fence < largest {
			j.res.StaleWritesRefused++
			continue
		}
		r.wrong[w.answerLine] = true
		j.res.ValidWritesRefused++
		j.violate(ValidWriteRefused, r.lock, []int32{w.op}, w.at, 0, func() string {
			return fmt.Sprintf("the fenced resource %q refused a write of %s with the fencing token %d at %s, although it cannot have seen a larger one than %d",
				r.name, j.name(w.op), w.fence, clock(w.at), largest)
		})
	}
}
