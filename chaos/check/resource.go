package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/anishathalye/porcupine"
	"github.com/quorumlock/redlock/chaos/history"
)

// A registerKey names a guarded resource: each has a counter that compares fences and one that does not.
type registerKey struct {
	name   string
	fenced bool
}

// A register is what there is to know of a guarded counter.
type register struct {
	registerKey
	lock *lock

	pending map[int32]write // that await their answer, by op
	touched map[int32]int   // the line of an op's last access
	writers map[int64]int32 // by value, the op whose write of it was taken last
	tail    []write         // taken, and maybe the last to take effect
	newest  int             // the grant line of the newest lease whose write was taken

	surely   uint64 // the largest fence that the resource has seen without a doubt
	surelyOp int32
	seen     []sighting // all fences that it may have seen
	refused  []write
	stale    []write // taken from a holder which may have believed no more
	accepted []stalePair
	lost     []lostPair

	unjustified int                   // refusals
	calls       []porcupine.Operation // nil once there are too many
	all         int                   // how many there were
}

// A write is one that was sent.
type write struct {
	op         int32
	line       int
	answerLine int
	at         int64
	value      int64
	fence      uint64
	surely     uint64 // register.surely, and whose that was, when it was sent
	surelyOp   int32
	followed   bool // another was granted the lock before it was sent
	overtaken  bool // one of these had written, too
}

// A sighting is a fence that came to the resource no earlier than a line.
type sighting struct {
	line  int
	fence uint64
}

// A stalePair is a stale write that was taken, and the op that made it one.
type stalePair struct {
	w     write
	newer int32
}

// A lostPair is an update that was lost, and the op to which it was: as a rule both wrote the same.
type lostPair struct {
	first, second int32
	value, wrote  int64
	at            int64
	fenced        bool
}

func (j *judge) register(e *history.Event, l *lock) *register {
	key := registerKey{e.Resource, e.Fenced}
	return j.regs.get(key, func() *register {
		return &register{
			registerKey: key, lock: l, pending: map[int32]write{}, touched: map[int32]int{},
			writers: map[int64]int32{}, calls: []porcupine.Operation{},
		}
	})
}

func (j *judge) access(e *history.Event) {
	i := j.byID[e.Op]
	o := &j.ops[i]
	r := j.register(e, o.lock)
	fence := cmp.Or(e.Fence, o.fence)
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

// read happened at some time since the op's last access, or its grant.
func (j *judge) read(r *register, i int32, value int64, fence uint64) {
	since, again := r.touched[i]
	if !again {
		since = j.ops[i].grantLine
	}
	r.see(since, fence)
	r.surelySeen(fence, i)
	r.call(since, j.line, input{kind: reads, fence: fence, value: value}, known)
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

// written judges an answer as far as that can be done at once.
func (j *judge) written(r *register, w write, e *history.Event) {
	in := input{kind: writes, fence: w.fence, value: w.value}
	switch {
	case e.Error != "":
		r.call(w.line, infinity, in, unknown)
		return
	case !e.OK:
		r.call(w.line, j.line, in, denied)
		if r.fenced {
			r.refused = append(r.refused, w)
		}
		return
	}
	r.call(w.line, j.line, in, known)
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
	r.writers[w.value] = w.op
	r.tail = append(slices.DeleteFunc(r.tail, func(t write) bool { return t.answerLine < w.line }), w)
	r.newest = max(r.newest, j.ops[w.op].grantLine)
	r.surelySeen(w.fence, w.op)
}

// checkRegister judges what had to wait until all was known.
func (j *judge) checkRegister(r *register) {
	j.phantoms(r)
	for _, w := range r.pending {
		r.call(w.line, infinity, input{kind: writes, fence: w.fence, value: w.value}, unknown)
	}
	j.checkRefused(r)
	for _, s := range r.accepted {
		j.res.StaleWritesAccepted++
		j.res.FencedStaleAccepted++
		j.violate(StaleWriteAccepted, r.lock, []int32{s.w.op, s.newer}, s.w.at, 0, func() string {
			return fmt.Sprintf("the fenced resource %q took a write of %s with fence %d at %s, after it had seen fence %d of %s",
				r.name, j.name(s.w.op), s.w.fence, clock(s.w.at), s.w.surely, j.name(s.newer))
		})
	}
	for _, w := range r.stale {
		if w.overtaken || w.at > j.ops[w.op].believes {
			j.res.StaleWritesAccepted++
		}
	}
	j.checkLost(r)
}

// phantoms are reads of holders that nothing more is known of: they may have been stopped after a read, and
// before they told of it.
func (j *judge) phantoms(r *register) {
	if !r.fenced {
		return
	}
	for _, i := range r.lock.ops {
		if o := &j.ops[i]; !o.accessed && !o.ended && o.fence > 0 {
			r.see(o.grantLine, o.fence)
			r.call(o.grantLine, infinity, input{kind: reads, fence: o.fence}, unknown)
		}
	}
}

// checkRefused tells the refused writes that were stale from those for which there was no reason.
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
		r.unjustified++
		j.res.ValidWritesRefused++
		j.violate(ValidWriteRefused, r.lock, []int32{w.op}, w.at, 0, func() string {
			return fmt.Sprintf("the fenced resource %q refused a write of %s with fence %d at %s, though it can have seen no larger one than %d",
				r.name, j.name(w.op), w.fence, clock(w.at), largest)
		})
	}
}

// checkLost counts the updates that were lost. Each write is what was read and one more, so if two ops wrote
// the same value, they had read the same, and one update is lost; and if a stale write takes the counter
// back, the values that it has twice from there on are as many as the updates that were lost. So it need not
// be known in which order the writes took effect, but for the last one: what is above it in the end is lost
// too. Where several may be the last one, the largest counts.
func (j *judge) checkLost(r *register) {
	if len(r.tail) > 0 {
		last := slices.MaxFunc(r.tail, func(a, b write) int { return cmp.Compare(a.value, b.value) })
		values := slices.Sorted(maps.Keys(r.writers))
		n, _ := slices.BinarySearch(values, last.value+1)
		for _, value := range values[n:] {
			r.lose(j, r.writers[value], last, value, j.at)
		}
	}
	for _, p := range r.lost {
		j.res.LostUpdates++
		if p.fenced {
			j.res.FencedLostUpdates++
		}
		if !p.fenced && !overlap(j.belief(p.first), j.belief(p.second)) {
			continue // no lock can prevent that
		}
		j.violate(LostUpdate, r.lock, []int32{p.first, p.second}, p.at, 0, func() string {
			if p.value != p.wrote {
				return fmt.Sprintf("%s wrote %d to %q, and %s took it back to %d: the update is lost",
					j.name(p.first), p.value, r.name, j.name(p.second), p.wrote)
			}
			return fmt.Sprintf("%s and %s both wrote %d to %q, the latter by %s: one update is lost",
				j.name(p.first), j.name(p.second), p.value, r.name, clock(p.at))
		})
	}
}

// lose notes that the update by which an op wrote value is lost to w, if w is another's.
func (r *register) lose(j *judge, first int32, w write, value, at int64) {
	if first != w.op {
		fenced := r.fenced && w.fence > 0 && j.ops[first].fence > 0
		r.lost = append(r.lost, lostPair{first, w.op, value, w.value, at, fenced})
	}
}
