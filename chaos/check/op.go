package check

import (
	"fmt"
	"math"
	"slices"

	"github.com/quorumlock/redlock/chaos/history"
)

// never is a time that is never reached.
const never = math.MaxInt64

// An outcome is how an acquire ended.
type outcome uint8

const (
	unanswered outcome = iota
	granted
	refused
	failed
)

// An op is an acquire, and the lease that it got.
type op struct {
	id     uint64
	client int
	lock   *lock
	token  string
	fence  uint64

	reader  bool  // others may read too
	permits int   // of a semaphore
	from    int32 // the op that handed it the lock, or that was its writer; -1: none
	next    int32 // the op that did so with its lock; -1: none
	queued  int64 // since when it had its place in the order of arrival; 0: it is not known

	outcome    outcome
	ended      bool  // it was released, or its loss was noticed
	asked      int64 // when it was requested
	askedLine  int
	granted    int64
	grantLine  int
	believes   int64 // until when; never, if nothing ended it
	touched    int64 // the last read or write
	accessed   bool  // it read or wrote
	seen       bool  // its token was on a node
	released   int64
	freed      int64  // when the release returned; 0: never
	over       int64  // when its owner no longer needed it, so that its keys should disappear; or never
	shared     bool   // others may hold the lock too, so it shows the resource no fencing token
	fenceFloor uint64 // the largest fencing token granted before it was requested, and its op
	floorOp    int32
}

// A lock is everything known about the lock of one resource.
type lock struct {
	name  string
	asked []int32 // all ops, in the order of their requests
	ops   []int32 // the granted ones, in the order of their grants

	largest   uint64 // fence
	largestOp int32
	fences    map[uint64]int32 // the first op with this token
	badFences []badFence

	wrongHolders int // overlaps, and grants out of the order of arrival

	tokens map[string][]int32 // the ops with this owner token, in the order of their requests
	nodes  table[string, keyOnNode]
	count  map[string]int // number of nodes, by token
	took   []taking
	// strange are those of took, by index, whose owner nobody knows, while a holder believed; true: only readers did.
	strange map[int]bool
}

func (j *judge) lock(name string) *lock {
	return j.locks.get(name, func() *lock {
		return &lock{name: name, fences: map[uint64]int32{}, tokens: map[string][]int32{}, count: map[string]int{}}
	})
}

func (j *judge) acquire(e *history.Event) {
	l := j.lock(e.Resource)
	i := int32(len(j.ops))
	j.byID[e.Op] = i
	j.ops = append(j.ops, op{
		id: e.Op, client: e.Client, lock: l, asked: e.At, askedLine: j.line,
		believes: never, over: never, released: never, fenceFloor: l.largest, floorOp: l.largestOp,
		reader: e.Role == history.Reader, permits: max(1, e.Permits), from: -1, next: -1,
		shared: e.Role == history.Reader || j.run.Permits > 0,
	})
	if e.From != 0 {
		j.ops[i].from = j.byID[e.From]
	}
	l.asked = append(l.asked, i)
	j.tell(i, e.Token)
}

func (j *judge) granted(e *history.Event) {
	i := j.byID[e.Op]
	o := &j.ops[i]
	o.outcome, o.granted, o.grantLine, o.touched, o.fence = granted, e.At, j.line, e.At, e.Fence
	j.tell(i, e.Token)
	o.lock.ops = append(o.lock.ops, i)
	if o.from >= 0 && j.ops[o.from].next < 0 {
		j.ops[o.from].next = i
	}
	j.grantFence(i)
	j.answers[granted] = append(j.answers[granted], e.At)
	j.firstAcquire(e.At)
}

func (j *judge) denied(e *history.Event, how outcome) {
	i := j.byID[e.Op]
	j.ops[i].outcome, j.ops[i].over = how, e.At
	if e.Left {
		j.leftAcquires++
	}
	j.tell(i, e.Token)
	j.answers[how] = append(j.answers[how], e.At)
}

// queued processes that an op has its place in the order of arrival.
func (j *judge) queued(e *history.Event) {
	j.ops[j.byID[e.Op]].queued = e.Since
	j.anyQueued = true
}

// tell records the token of an op, once.
func (j *judge) tell(i int32, token string) {
	o := &j.ops[i]
	if token == "" || o.token != "" {
		return
	}
	o.token = token
	o.lock.tokens[token] = append(o.lock.tokens[token], i)
}

// ended processes the events that end a lease.
func (j *judge) ended(e *history.Event) {
	o := &j.ops[j.byID[e.Op]]
	if e.Kind == history.Freed {
		o.freed = e.At
		if e.Left {
			j.leftReleases++
		}
		o.over = min(o.over, e.At)
		return
	}
	if !o.ended {
		for _, what := range e.Untold {
			j.untold[what]++
		}
	}
	o.ended = true
	o.believes = min(o.believes, e.At)
	if e.Until > 0 {
		o.believes = min(o.believes, e.Until)
	}
	o.believes = max(o.believes, o.granted)
	if e.Kind == history.Release {
		o.released = e.At
		return
	}
	o.over = min(o.over, e.At)
	j.res.Losses++
	if e.Until > 0 {
		j.res.LossNoticeLongest = max(j.res.LossNoticeLongest, millis(e.At-max(e.Until, o.granted)))
	}
}

// endCalls names the calls that never returned. While the run waits for them, their clients do nothing else: it shows
// less than it seems to.
func (j *judge) endCalls() {
	for _, c := range []struct {
		left int
		of   string
	}{{j.leftAcquires, "Acquire"}, {j.leftReleases, "Release"}} {
		if c.left == 0 {
			continue
		}
		text := fmt.Sprintf("%d calls of %s never returned, long after their contexts had ended", c.left, c.of)
		if c.left == 1 {
			text = fmt.Sprintf("a call of %s never returned, long after its context had ended", c.of)
		}
		j.leaveOut("calls", "", text)
		j.unsure = true
	}
}

// neverBelieved reports whether the end of the lease says that its client never saw it valid. Then it is no holder, unless
// the lock went from hand to hand: nobody may get in between.
func (o *op) neverBelieved() bool {
	return o.ended && o.believes <= o.granted && o.from < 0 && o.next < 0
}

// endOps ends the leases that nothing has ended, and those whose release did not return.
func (j *judge) endOps() {
	for _, l := range j.locks.all {
		for _, ops := range l.tokens {
			slices.Sort(ops) // tokens were recorded at the grant
		}
	}
	dead := j.deadClients()
	for i := range j.ops {
		o := &j.ops[i]
		if o.outcome == granted && !o.ended {
			o.believes = o.touched
		}
		if o.over == never && o.released != never {
			o.over = o.released
		}
		if died, ok := dead[o.client]; ok && died >= o.asked {
			o.over = min(o.over, died)
		}
	}
}
