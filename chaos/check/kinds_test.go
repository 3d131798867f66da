package check

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/history"
)

// A told is a history made by hand. Its times are in microseconds.
type told struct {
	run    history.Run
	events []history.Event
}

func tell(lock history.LockKind, permits int) *told {
	return &told{run: history.Run{
		Version: 1, TTL: int64(time.Second), Nodes: []string{"n1", "n2", "n3"}, Lock: lock, Permits: permits,
	}}
}

func (h *told) add(at int64, e history.Event) *told {
	e.At = at * 1000
	if e.Resource == "" && e.Op != 0 {
		e.Resource = "r"
	}
	h.events = append(h.events, e)
	return h
}

// took adds an acquire that was granted. e has what else the acquire has.
func (h *told) took(asked, granted int64, op uint64, e history.Event) *told {
	fence := e.Fence
	if fence == 0 {
		fence = op
	}
	e.Kind, e.Op, e.Client, e.Fence = history.Acquire, op, int(op), 0
	h.add(asked, e)
	return h.add(granted, history.Event{Kind: history.Granted, Op: op, Fence: fence, Token: fmt.Sprintf("t%d", op)})
}

func (h *told) left(at int64, op uint64) *told { return h.gave(at, op, false) }

func (h *told) gave(at int64, op uint64, handed bool) *told {
	h.add(at, history.Event{Kind: history.Release, Op: op, Until: at * 1000, Handed: handed})
	return h.add(at+5, history.Event{Kind: history.Freed, Op: op})
}

func (h *told) queued(at, since int64, op uint64) *told {
	return h.add(at, history.Event{Kind: history.Queued, Op: op, Since: since * 1000})
}

func (h *told) owners(at int64, node string, tokens ...string) *told {
	e := history.Event{Kind: history.Owner, Node: node, Resource: "r", Owners: tokens}
	if len(tokens) == 1 {
		e.Token, e.Owners = tokens[0], nil
	}
	return h.add(at, e)
}

// whole returns all events, in the order of time.
func (h *told) whole() []history.Event {
	events := slices.Clone(h.events)
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	end := history.Event{At: events[len(events)-1].At, Kind: history.End}
	return append(append([]history.Event{{Kind: history.Start, Run: &h.run}}, events...), end)
}

// judge judges the history, with our own check and porcupine.
func (h *told) judge(t *testing.T) Result {
	t.Helper()
	res, err := Judge(h.whole())
	require.NoError(t, err)
	require.Equal(t, 2, res.Confirmed.Agreed, "the fencing tokens and the holders: %v", res.LeftOut)
	return res
}

// requireSafe requires that nothing is found.
func (h *told) requireSafe(t *testing.T) {
	t.Helper()
	res := h.judge(t)
	require.Equal(t, Safe, res.Verdict, "%v", res.Violations)
}

// requireFound requires that this alone is found, and that porcupine finds it too, without our own check.
func (h *told) requireFound(t *testing.T, kind ViolationKind, ops ...uint64) Violation {
	t.Helper()
	res := h.judge(t)
	require.Len(t, res.Violations, 1, "%v", res.Violations)
	require.Equal(t, kind, res.Violations[0].Kind)
	require.ElementsMatch(t, ops, res.Violations[0].Ops)
	require.Equal(t, Unsafe, res.Verdict)
	if kind != Overlap && kind != Overtaken {
		return res.Violations[0]
	}
	j := newJudge()
	for e, err := range history.Validate(h.whole()) {
		require.NoError(t, err)
		j.line++
		j.at = e.At
		j.step(&e)
	}
	j.endOps()
	l := j.locks.all[0]
	j.checkArrival(l)
	l.wrongHolders = 0 // as if our own check had found nothing
	require.ErrorContains(t, j.confirmHolders(l, time.Now().Add(confirmTime)), "porcupine says Illegal")
	return res.Violations[0]
}

var asReader = history.Event{Role: history.Reader}

func TestReadersShareALockAndAWriterIsAlone(t *testing.T) {
	good := func() *told {
		return tell(history.ReadWrite, 0).
			took(1, 10, 1, asReader).took(2, 15, 2, asReader).took(3, 100, 3, history.Event{}).
			left(60, 1).left(100, 2).left(200, 3).took(150, 200, 4, asReader)
	}
	good().left(300, 4).requireSafe(t)

	reader := tell(history.ReadWrite, 0).took(1, 10, 1, asReader).left(150, 1).took(2, 100, 2, history.Event{}).left(200, 2)
	v := reader.requireFound(t, Overlap, 1, 2)
	require.Equal(t, 50*time.Microsecond, v.For, "a writer among readers")

	writer := tell(history.ReadWrite, 0).took(1, 10, 1, history.Event{}).left(150, 1).took(2, 100, 2, asReader).left(200, 2)
	require.Equal(t, 50*time.Microsecond, writer.requireFound(t, Overlap, 1, 2).For, "a reader beside a writer")

	tell(history.ReadWrite, 0).took(1, 10, 1, history.Event{}).left(150, 1).took(2, 100, 2, history.Event{}).left(200, 2).
		requireFound(t, Overlap, 1, 2)
}

func TestAWriterThatBecomesAReaderLetsNoWriterIn(t *testing.T) {
	downgraded := func() *told {
		return tell(history.ReadWrite, 0).took(1, 10, 1, history.Event{Fence: 7}).gave(50, 1, true).
			took(51, 80, 2, history.Event{Role: history.Reader, From: 1, Fence: 7}).left(200, 2)
	}
	downgraded().requireSafe(t) // the fencing token stays the same
	downgraded().took(20, 60, 3, history.Event{Role: history.Reader, Fence: 9}).left(300, 3).requireSafe(t)
	downgraded().took(20, 60, 3, history.Event{Fence: 9}).left(70, 3).requireFound(t, Overlap, 2, 3)
	downgraded().took(20, 40, 3, history.Event{Role: history.Reader, Fence: 9}).left(300, 3).requireFound(t, Overlap, 1, 3)
}

func TestASemaphoreHasSoManyHoldersAndNoMore(t *testing.T) {
	two := func() *told {
		return tell(history.Semaphore, 2).took(1, 10, 1, history.Event{Permits: 1}).took(2, 20, 2, history.Event{Permits: 1}).
			left(150, 1).left(200, 2)
	}
	two().took(3, 150, 3, history.Event{Permits: 1}).left(300, 3).requireSafe(t)
	two().took(3, 200, 3, history.Event{Permits: 2}).left(300, 3).requireSafe(t)
	v := two().took(3, 100, 3, history.Event{Permits: 1}).left(300, 3).requireFound(t, Overlap, 1, 2, 3)
	require.Equal(t, 50*time.Microsecond, v.For)
	require.Contains(t, v.Text, "3 permits of 2 for 50µs")
	two().took(3, 160, 3, history.Event{Permits: 2}).left(300, 3).requireFound(t, Overlap, 2, 3)
}

func TestAFairLockIsJudgedByItsOrderOfArrival(t *testing.T) {
	// Op 2 has its place from 30 on. Op 3 is requested later, and op 1 was granted before.
	waits := func(second, third int64) *told {
		return tell(history.Fair, 0).took(1, 10, 1, history.Event{}).left(100, 1).
			took(20, second, 2, history.Event{Fence: 2 + uint64(second)}).left(second+50, 2).
			took(40, third, 3, history.Event{Fence: 2 + uint64(third)}).left(third+50, 3).
			queued(35, 30, 2).queued(400, 50, 3)
	}
	waits(100, 150).requireSafe(t)
	v := waits(150, 100).requireFound(t, Overtaken, 2, 3)
	require.Contains(t, v.Text, "client 2 (op 2) had its place in the order of arrival of \"r\" since 30µs")
	require.Equal(t, 50*time.Microsecond, v.For)

	// Of calls at the same moment, any may be first.
	same := waits(150, 100)
	for i := range same.events {
		if same.events[i].Kind == history.Queued && same.events[i].Op == 2 {
			same.events[i].Since = 40_000
			same.events[i].At = 41_000
		}
	}
	same.requireSafe(t)
}

func TestAPlaceThatFaultsTookAwayIsNotJudgedAndSaidSo(t *testing.T) {
	overtaken := func(faulty ...string) *told {
		h := tell(history.Fair, 0).took(1, 10, 1, history.Event{}).left(100, 1).
			took(40, 100, 3, history.Event{}).left(150, 3).
			took(20, 150, 2, history.Event{Fence: 4}).left(200, 2).queued(35, 30, 2)
		for _, node := range faulty {
			h.add(60, history.Event{Kind: history.Fault, Fault: "kill", Node: node, Begin: true})
			h.add(70, history.Event{Kind: history.Fault, Fault: "kill", Node: node})
		}
		return h
	}
	overtaken("n1").requireFound(t, Overtaken, 2, 3)
	res := overtaken("n1", "n2").judge(t)
	require.Equal(t, Safe, res.Verdict)
	require.Contains(t, fmt.Sprint(res.LeftOut),
		`order of arrival: 1 of 1 acquires that waited: faults left them no quorum of nodes`)
}

// Without places, the order of arrival is that of the requests, or it is not known.
func TestAFairLockThatNeverSaysWhenACallHadItsPlaceIsUnsureIfThatMatters(t *testing.T) {
	const why = "order of arrival: of no call is it known when it had its place"
	inOrder := tell(history.Fair, 0).took(1, 10, 1, history.Event{}).left(50, 1).took(2, 60, 2, history.Event{}).left(100, 2).judge(t)
	require.Equal(t, Safe, inOrder.Verdict)
	require.NotContains(t, fmt.Sprint(inOrder.LeftOut), why)
	// Two that are requested at about the same time may come to the nodes in any order.
	near := tell(history.Fair, 0).took(2, 10, 1, history.Event{}).left(50, 1).took(1, 60, 2, history.Event{}).left(100, 2).judge(t)
	require.Equal(t, Safe, near.Verdict)
	require.NotContains(t, fmt.Sprint(near.LeftOut), why)
	const later = 1_000_002
	other := tell(history.Fair, 0).took(later, later+10, 1, history.Event{}).left(later+50, 1).
		took(1, later+60, 2, history.Event{}).left(later+100, 2).judge(t)
	require.Equal(t, Unsure, other.Verdict)
	require.Contains(t, fmt.Sprint(other.LeftOut), why)
}

// One call that says its place says nothing of the others.
func TestACallThatIsOvertakenAndNeverSaidItsPlaceIsNamed(t *testing.T) {
	const later = 1_000_002
	one := func(asked int64) Result {
		return tell(history.Fair, 0).took(later, later+10, 1, history.Event{}).left(later+50, 1).queued(later+5, later+5, 1).
			took(asked, later+60, 2, history.Event{}).left(later+100, 2).judge(t)
	}
	const why = "order of arrival: 1 acquires that did not say when they had their place came after one"
	res := one(1)
	require.Equal(t, Safe, res.Verdict)
	require.Contains(t, fmt.Sprint(res.LeftOut), why)
	require.NotContains(t, fmt.Sprint(one(later-10).LeftOut), "order of arrival")
}

// When another took the lock is known by the owner tokens alone.
func TestLateLossesOfALockThatShowsNoTokenAreNotJudgedAndSaidSo(t *testing.T) {
	late := func() *told {
		return tell("", 0).took(1, 10, 1, history.Event{}).left(200, 1).took(20, 150, 2, history.Event{}).left(160, 2).
			owners(100, "n1", "t2").owners(100, "n2", "t2")
	}
	res, err := Judge(late().whole())
	require.NoError(t, err)
	require.Equal(t, 1, res.LateLosses)
	require.Empty(t, res.LeftOut)

	res, err = Judge(late().without(noToken).whole())
	require.NoError(t, err)
	require.Zero(t, res.LateLosses)
	require.Contains(t, fmt.Sprint(res.LeftOut), "late losses: of 2 leases the owner token is not known")
	require.Contains(t, res.Violations[0].Text, "the token of op 1 is not known and the token of op 2 is not known")
}

func TestNobodyGetsALockThatIsHandedOver(t *testing.T) {
	handed := func() *told {
		return tell(history.HandOver, 0).took(1, 10, 1, history.Event{}).gave(50, 1, true).
			took(60, 100, 2, history.Event{From: 1, Fence: 5}).left(150, 2)
	}
	handed().took(20, 150, 3, history.Event{Fence: 6}).left(300, 3).requireSafe(t)
	handed().took(20, 70, 3, history.Event{}).left(80, 3).requireFound(t, Overlap, 2, 3)
	// A ticket is used once.
	handed().took(160, 200, 3, history.Event{From: 1, Fence: 6}).left(300, 3).requireFound(t, Overlap, 2, 3)
	// Nobody adopted it.
	tell(history.HandOver, 0).took(1, 10, 1, history.Event{}).gave(50, 1, true).
		took(20, 70, 3, history.Event{}).left(80, 3).requireSafe(t)
}

func TestTheKeysOfAllOwnersAreFollowed(t *testing.T) {
	const second = 1_000_000
	readers := func() *told {
		return tell(history.ReadWrite, 0).took(1, 10, 1, asReader).took(2, 15, 2, asReader).
			owners(20, "n1", "t1", "t2").owners(21, "n2", "t1", "t2").owners(22, "n3", "t2")
	}
	readers().owners(99, "n1", "t1").owners(99, "n2", "t1").owners(99, "n3").left(90, 2).left(3*second, 1).
		owners(3*second+9, "n1").owners(3*second+9, "n2").requireSafe(t)
	// The entry of op 2 stays on n1 beside that of op 1, which is alive.
	readers().owners(99, "n2", "t1").owners(99, "n3").left(90, 2).left(3*second, 1).
		owners(3*second+9, "n1").owners(3*second+9, "n2").requireFound(t, Orphan, 2)
	// A writer takes the lock on a quorum while a reader still believes.
	readers().left(200, 1).left(90, 2).owners(99, "n1", "t1").owners(99, "n3").
		took(30, 210, 3, history.Event{}).owners(150, "n2", "t3").owners(151, "n3", "t3").owners(205, "n1").left(300, 3).
		owners(310, "n2").owners(310, "n3").requireFound(t, LateLoss, 1, 3)
}

// An observer that gets no processor time notices late that a key is gone.
func TestAKeyCountsUntilItWasSeenForTheLastTime(t *testing.T) {
	const second = 1_000_000
	seenUntil := func(at, since int64, tokens ...string) *told {
		return tell("", 0).took(1, 10, 1, history.Event{}).owners(20, "n1", "t1").left(300, 1).
			add(at, history.Event{Kind: history.Owner, Resource: "r", Node: "n1", Owners: tokens, Since: since * 1000})
	}
	seenUntil(3*second, 500).requireSafe(t)
	seenUntil(3*second, 0).requireFound(t, Orphan, 1) // it does not say when it last looked
	seenUntil(3*second, 3*second-1).requireFound(t, Orphan, 1)
	// The run ends while the key is there, and the observer says when it last looked.
	seenUntil(3*second, 500, "t1").requireSafe(t)
	seenUntil(3*second, 3*second-1, "t1").requireFound(t, Orphan, 1)
}

// The key of a ticket that nobody takes over ends by the node's clock, when that has been set back.
func TestAKeyMayStayIfItsNodesClockWasSetMeanwhile(t *testing.T) {
	const second = 1_000_000
	set := func(node string, back int64) *told {
		return tell("", 0).took(1, 10, 1, history.Event{}).owners(20, "n1", "t1").left(300, 1).
			add(15, history.Event{Kind: history.Fault, Fault: "clock+1m0s", Node: node, Begin: true}).
			add(back, history.Event{Kind: history.Fault, Fault: "clock+1m0s", Node: node}).
			owners(back+4*second, "n1")
	}
	set("n1", 400).requireSafe(t)
	set("n2", 400).requireFound(t, Orphan, 1)
	set("n1", 19).requireFound(t, Orphan, 1) // it was set before the key was there
}

// While a container restarts, nobody sees its keys.
func TestWhatIsNotSeenDuringASlowRestartIsNoOrphan(t *testing.T) {
	const second = 1_000_000
	for _, since := range []int64{0, 200} {
		h := tell("", 0).took(1, 10, 1, history.Event{}).owners(20, "n1", "t1").left(300, 1).
			add(3*second, history.Event{Kind: history.Fault, Fault: "restart-empty", Node: "n1", Since: since * 1000}).
			owners(3*second+1, "n1")
		if since > 0 {
			h.requireSafe(t)
			continue
		}
		h.requireFound(t, Orphan, 1)
	}
}

func TestAPermitThatIsTakenWhileTooManyBelieveIsALateLoss(t *testing.T) {
	two := func() *told {
		return tell(history.Semaphore, 2).took(1, 10, 1, history.Event{Permits: 1}).took(2, 20, 2, history.Event{Permits: 1}).
			left(200, 1).left(400, 2)
	}
	third := func(h *told, takes int64) *told {
		for i, node := range []string{"n1", "n2"} {
			h.owners(takes+int64(i), node, "t2", "t3").owners(510, node)
		}
		return h.took(30, 250, 3, history.Event{Permits: 1}).left(500, 3)
	}
	third(two(), 210).requireSafe(t)
	v := third(two(), 100).requireFound(t, LateLoss, 1, 2, 3)
	require.Equal(t, 99*time.Microsecond, v.For)
	require.Contains(t, v.Text, "3 permits of 2")
	// What the observer sees late is no loss: op 1 was granted after op 3.
	third(tell(history.Semaphore, 2).took(2, 20, 2, history.Event{Permits: 1}).left(700, 2).
		took(260, 520, 1, history.Event{Permits: 1, Fence: 9}).left(600, 1), 505).requireSafe(t)
}

func TestHistoriesOfOldAreHistoriesOfAMutex(t *testing.T) {
	h := tell("", 0).took(1, 10, 1, history.Event{}).left(150, 1).took(2, 100, 2, history.Event{}).left(200, 2)
	h.requireFound(t, Overlap, 1, 2)
	res := h.judge(t)
	require.Equal(t, history.Mutex, res.Lock)
}

// naiveReaders compares every belief with every other, and naivePermits every instant.
func naiveReaders(all []belief) (pairs int, longest int64) {
	for i, a := range all {
		for _, b := range all[:i] {
			if overlap(a, b) && !(a.reader && b.reader) {
				pairs++
				longest = max(longest, min(a.to, b.to)-max(a.from, b.from))
			}
		}
	}
	return pairs, longest
}

func together(all []belief, tooMany func(now []belief) bool) (count int64) {
	end := int64(0)
	for _, b := range all {
		end = max(end, b.to)
	}
	for t := range end {
		var now []belief
		for _, b := range all {
			if b.from <= t && t < b.to {
				now = append(now, b)
			}
		}
		if tooMany(now) {
			count++
		}
	}
	return count
}

func beliefsOf(ends [][2]uint8, wide int64) (all []belief) {
	for i, e := range ends {
		from := int64(e[0]) % wide
		all = append(all, belief{
			from: from, to: from + int64(e[1])%9, op: int32(i), reader: e[1]%3 > 0, permits: 1 + int(e[0]%2),
		})
	}
	return all
}

func TestTheSweepsOfSharedLocksAgreeWithTheirNaiveTwins(t *testing.T) {
	require.NoError(t, quick.Check(func(ends [][2]uint8, scale uint8) bool {
		all := beliefsOf(ends, int64(scale)%250+2)
		pairs, longest := naiveReaders(all)
		readers := sweep(slices.Clone(all), 0, nil)
		alone := together(all, func(now []belief) bool {
			return len(now) > 1 && slices.ContainsFunc(now, func(b belief) bool { return !b.reader })
		})
		require.Equal(t, overlaps{pairs, alone, longest}, readers)

		const permits = 3
		counted := 0
		got := sweepPermits(slices.Clone(all), permits, len(all), func(have []belief, b belief, until int64) {
			taken := b.permits
			for _, a := range have {
				require.True(t, overlap(a, b) || a.from == b.from && a.to > b.from)
				taken += a.permits
			}
			require.Greater(t, taken, permits)
			counted++
		})
		require.Equal(t, got.pairs, counted)
		require.Equal(t, got.together, together(all, func(now []belief) bool {
			taken := 0
			for _, b := range now {
				taken += b.permits
			}
			return taken > permits
		}))
		return true
	}, &quick.Config{MaxCount: 2000}))
}

// randomLock is a history of a lock that mostly keeps its promise.
func randomLock(r *rand.Rand, kind history.LockKind, steps int) *told {
	h := tell(kind, 0)
	if kind == history.Semaphore {
		h.run.Permits = 3
	}
	type open struct {
		op            uint64
		e             history.Event
		since, queued int64
	}
	var asking, holding []open
	at, op, fence := int64(1), uint64(0), uint64(0)
	fits := func(o open) bool {
		left := h.run.Permits - max(1, o.e.Permits)
		for _, x := range holding {
			left -= max(1, x.e.Permits)
			if h.run.Permits == 0 && (o.e.Role != history.Reader || x.e.Role != history.Reader) {
				return false
			}
		}
		return h.run.Permits == 0 || left >= 0
	}
	first := func(o open) bool {
		return !slices.ContainsFunc(asking, func(x open) bool { return x.queued > 0 && x.queued < o.since })
	}
	for range steps {
		at += int64(r.IntN(3))
		lies := r.IntN(steps) == 0
		switch n := r.IntN(4); {
		case n == 0 && len(asking) < 5:
			op++
			o := open{op: op, since: at}
			switch kind {
			case history.ReadWrite:
				o.e.Role = []history.Role{history.Alone, history.Reader, history.Reader}[r.IntN(3)]
			case history.Semaphore:
				o.e.Permits = 1 + r.IntN(2)
			}
			o.e.Kind, o.e.Op, o.e.Client = history.Acquire, op, int(op)
			h.add(at, o.e)
			asking = append(asking, o)
		case n == 1 && len(asking) > 0 && kind == history.Fair:
			o := &asking[r.IntN(len(asking))]
			if o.queued == 0 && at > o.since {
				o.queued = at
				h.queued(at, at, o.op)
			}
		case n == 2 && len(asking) > 0:
			i := r.IntN(len(asking))
			o := asking[i]
			if !lies && (!fits(o) || !first(o)) {
				continue
			}
			fence++
			h.add(at, history.Event{Kind: history.Granted, Op: o.op, Fence: fence})
			asking, holding = slices.Delete(asking, i, i+1), append(holding, o)
		case n == 3 && len(holding) > 0:
			i := r.IntN(len(holding))
			o := holding[i]
			holding = slices.Delete(holding, i, i+1)
			if kind != history.HandOver || r.IntN(2) == 0 {
				h.left(at, o.op)
				continue
			}
			h.gave(at, o.op, true)
			op++
			o.op = op
			at += int64(r.IntN(3))
			fence++
			h.took(at, at+2, op, history.Event{From: o.e.Op, Fence: fence})
			o.e.Op = op
			at += 2
			holding = append(holding, o)
		}
	}
	return h
}

// Judge fails if our own check and porcupine disagree.
func TestPorcupineAgreesAboutEveryKindOfLock(t *testing.T) {
	for _, kind := range []history.LockKind{
		history.Mutex, history.Fair, history.ReadWrite, history.Semaphore, history.HandOver,
	} {
		t.Run("lock "+string(kind), func(t *testing.T) {
			wrong, histories := 0, 800
			for seed := range uint64(histories) {
				h := randomLock(rand.New(rand.NewPCG(seed, 3)), kind, 100)
				if len(h.events) == 0 {
					continue
				}
				res, err := Judge(h.whole())
				require.NoError(t, err, "seed %d", seed)
				require.Zero(t, res.Confirmed.TooLong+res.Confirmed.Expired, "seed %d", seed)
				if res.Overlaps+res.Overtakings > 0 {
					wrong++
				}
			}
			t.Logf("%d of %d are wrong", wrong, histories)
			require.Greater(t, wrong, histories/20, "the histories are of both sorts")
			require.Less(t, wrong, histories*19/20, "the histories are of both sorts")
		})
	}
}

// What porcupine has to try doubles with each call in flight. All these calls are, for as long as they wait.
func TestWhereManyWaitPorcupineStillComesToItsEnd(t *testing.T) {
	for _, kind := range []history.LockKind{history.Mutex, history.ReadWrite, history.Semaphore} {
		h := tell(kind, 0)
		if kind == history.Semaphore {
			h.run.Permits = 3
		}
		order := rand.New(rand.NewPCG(1, 1)).Perm(100)
		for turn, i := range order {
			e := history.Event{Fence: uint64(turn + 1)}
			if kind == history.ReadWrite && turn%4 > 0 {
				e.Role = history.Reader
			}
			at := int64(1000 + 100*turn)
			h.took(int64(i+1), at, uint64(i+1), e).left(at+90, uint64(i+1))
		}
		h.requireSafe(t)
	}
}

// Windows are cut where the lock may be held and calls may wait. One lie is found in a long history.
func TestOneLieIsFoundInALongHistoryOfEveryKind(t *testing.T) {
	for _, kind := range []history.LockKind{history.Fair, history.ReadWrite, history.Semaphore, history.HandOver} {
		for _, lies := range []bool{false, true} {
			h := tell(kind, 0)
			h.run.Observed = []string{"nothing"}
			e := history.Event{}
			switch kind {
			case history.Semaphore:
				h.run.Permits, e.Permits = 2, 2
			case history.ReadWrite:
				e.Role = history.Reader
			}
			const turns = 3000
			for i := range int64(turns) { // two ops a turn: one of the kind, one alone
				at, op := 1+400*i, uint64(3*i+1)
				until := at + 100
				if lies && i == turns/2 {
					until += 50
				}
				h.took(at, at+10, op, e)
				if kind == history.HandOver {
					h.gave(at+50, op, true).took(at+55, at+60, op+1, history.Event{From: op})
					op++
				}
				if kind == history.Semaphore {
					e.Permits = 1
				}
				h.left(until, op)
				h.took(at+20, at+100, op+1, history.Event{Permits: h.run.Permits}).left(at+200, op+1)
				if kind == history.Fair {
					h.queued(at+30, at+25, op+1)
				}
			}
			if lies {
				at := int64(1 + 400*(turns/2))
				op := uint64(3*(turns/2) + 1)
				if kind == history.HandOver {
					op++
				}
				v := h.requireFound(t, Overlap, op, op+1)
				require.Equal(t, 50*time.Microsecond, v.For)
				require.Equal(t, time.Duration(at+100)*time.Microsecond, v.At)
				continue
			}
			h.requireSafe(t)
		}
	}
}

// without drops what some of the grants tell.
func (h *told) without(drop func(granted *history.Event), ops ...uint64) *told {
	for i := range h.events {
		if e := &h.events[i]; e.Kind == history.Granted && (len(ops) == 0 || slices.Contains(ops, e.Op)) {
			drop(e)
		}
	}
	return h
}

func noFence(e *history.Event) { e.Fence = 0 }
func noToken(e *history.Event) { e.Token = "" }

// A library that loses its fencing token on one path leaves its resource without protection there.
func TestALeaseWithoutAFencingTokenAfterOneWithATokenIsAnInversion(t *testing.T) {
	three := func() *told {
		return tell("", 0).took(1, 10, 1, history.Event{}).left(20, 1).
			took(30, 40, 2, history.Event{}).left(50, 2).took(60, 70, 3, history.Event{}).left(80, 3)
	}
	v := three().without(noFence, 2).requireFound(t, FenceInversion, 1, 2)
	require.Contains(t, v.Text, "client 2 (op 2) requested \"r\" at 30µs, after client 1 (op 1) was granted it "+
		"with the fencing token 1 at 10µs, and got no fencing token")

	none, err := Judge(three().without(noFence).whole())
	require.NoError(t, err)
	require.Equal(t, Safe, none.Verdict)
	require.NotContains(t, fmt.Sprint(none.LeftOut), "fencing tokens", "the subject has none")

	early := three().without(noFence, 1).judge(t)
	require.Equal(t, Safe, early.Verdict)
	require.Contains(t, fmt.Sprint(early.LeftOut), "fencing tokens: 1 of 3 leases have none, and were requested before there was any")

	// Op 2 was requested before op 1 was granted.
	together := tell(history.Semaphore, 2).took(1, 10, 1, history.Event{Permits: 1}).left(50, 1).
		took(5, 40, 2, history.Event{Permits: 1}).left(60, 2).without(noFence, 2).judge(t)
	require.Equal(t, Safe, together.Verdict)
	require.Contains(t, fmt.Sprint(together.LeftOut), "fencing tokens: 1 of 2 leases")
}

func TestReadersNeedNoFencingToken(t *testing.T) {
	h := tell(history.ReadWrite, 0).took(1, 10, 1, history.Event{}).left(20, 1).took(30, 40, 2, asReader).left(50, 2)
	res := h.without(noFence, 2).judge(t)
	require.Equal(t, Safe, res.Verdict)
	require.NotContains(t, fmt.Sprint(res.LeftOut), "fencing tokens")
}
