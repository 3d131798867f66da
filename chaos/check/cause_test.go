package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/history"
)

// fault adds a fault of a node or a client. Times are in microseconds; heal 0: it is instant.
func (h *told) fault(at, heal int64, name, node string, client int) *told {
	e := history.Event{Kind: history.Fault, Fault: name, Node: node, Client: client, Begin: heal > 0}
	h.add(at, e)
	if e.Begin = false; heal > 0 {
		h.add(heal, e)
	}
	return h
}

// two is a history in which ops 1 and 2 believe at the same time, from 300 to 500: the first since 100.
func two() *told {
	return tell("", 0).took(50, 100, 1, history.Event{}).took(200, 300, 2, history.Event{}).left(500, 1).left(700, 2)
}

// causeOf returns the cause of the first violation of this kind.
func (h *told) causeOf(t *testing.T, kind ViolationKind) Cause {
	t.Helper()
	res, err := Judge(h.whole())
	require.NoError(t, err)
	for _, v := range res.Violations {
		if v.Kind == kind {
			require.NotContains(t, v.Cause.Text, "no fault was active")
			if v.Cause.Node != "" && v.Cause.Why != Active {
				require.Contains(t, v.Nodes, v.Cause.Node)
			}
			return v.Cause
		}
	}
	require.Fail(t, "no such violation", "%s: %v", kind, res.Violations)
	return Cause{}
}

func TestTheFaultByWhichANodeLostTheKeyIsNamedAndNoOther(t *testing.T) {
	for _, name := range []string{"restart-empty", "flushall", "promote", "replace", "failback", "restart-old-rdb", "clock+1m0s", "flush"} {
		h := two().owners(90, "n1", "t1").owners(90, "n2", "t1").seen(290, 750, "t2", "n3")
		h.add(240, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Since: 195_000})
		h.fault(10, 800, "cut", "n3", 1).fault(205, 0, "flushall", "n3", 0).fault(201, 0, name, "n1", 0)
		for _, harmless := range []string{"save", "pause", "follow", "lag", "detach", "unsubscribe"} {
			h.fault(202, 0, harmless, "n1", 0)
		}
		require.Equal(t, Cause{
			Why: KeyLost, Fault: name, Node: "n1", Before: 0.099,
			Text: name + " n1, 99µs before: the key of client 1 (op 1) was on n1 before it, and not after it",
		}, h.causeOf(t, Overlap))
	}
}

func TestACauseIsThatOfTheKeyThatWasLostWhenTheObserverWasBlind(t *testing.T) {
	// A restart is recorded when it is over, and the observer looks later still: after the grant to another.
	h := two()
	for _, node := range []string{"n1", "n2"} {
		h.owners(90, node, "t1")
	}
	h.add(240, history.Event{Kind: history.Fault, Fault: "restart-empty", Node: "n1", Since: 205_000})
	h.add(320, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Token: "t2", Since: 200_000})
	require.Equal(t, KeyLost, h.causeOf(t, Overlap).Why)

	// A clock that was set while the server was down explains less than that the server forgot.
	h = two().owners(90, "n1", "t1").owners(90, "n2", "t1").fault(210, 230, "kill", "n1", 0).fault(220, 280, "clock-30s", "n1", 0)
	h.add(320, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Token: "t2", Since: 200_000})
	require.Equal(t, "kill", h.causeOf(t, Overlap).Fault)
	h = two().owners(90, "n1", "t1").owners(90, "n2", "t1").fault(205, 280, "clock+1m0s", "n1", 0).fault(204, 230, "kill", "n1", 0)
	h.add(320, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Token: "t2", Since: 200_000})
	require.Equal(t, "kill", h.causeOf(t, Overlap).Fault)
	h = two().owners(90, "n1", "t1").owners(90, "n2", "t1").fault(203, 280, "clock+1m0s", "n1", 0).fault(204, 230, "kill", "n1", 0)
	h.add(320, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Token: "t2", Since: 200_000})
	require.Equal(t, "kill", h.causeOf(t, Overlap).Fault)
	// What came after the grant to another did not lead to it.
	h = two().owners(90, "n1", "t1").owners(90, "n2", "t1").fault(310, 0, "flushall", "n1", 0)
	h.add(320, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Token: "t2", Since: 200_000})
	require.Equal(t, NoCause, h.causeOf(t, Overlap).Why)
	// And one that is set right makes the server forget as well.
	h = two().owners(90, "n1", "t1").owners(90, "n2", "t1").fault(20, 280, "clock-30s", "n1", 0)
	h.add(290, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Since: 200_000})
	require.Equal(t, KeyLost, h.causeOf(t, Overlap).Why)
	h = two().owners(90, "n1", "t1").owners(90, "n2", "t1").fault(20, 800, "clock-30s", "n1", 0)
	h.add(290, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Since: 200_000})
	require.Equal(t, Active, h.causeOf(t, Overlap).Why, "it was set before, and set right after")
}

func TestAKeyThatWasPutBackWasNotLost(t *testing.T) {
	h := two().seen(90, 150, "t1", "n1").seen(160, 750, "t1", "n1", "n2").fault(150, 0, "flushall", "n1", 0)
	c := h.causeOf(t, Overlap)
	require.Equal(t, LastBefore, c.Why)
	require.Equal(t, "flushall n1, 150µs before: the last fault before; it is not known how it explains this", c.Text)
}

func TestACauseOfKeysThatNobodySawSaysSo(t *testing.T) {
	c := two().fault(299, 0, "promote", "n1", 0).causeOf(t, Overlap)
	require.Equal(t, Cause{
		Why: Forgot, Fault: "promote", Node: "n1", Before: 0.001,
		Text: "promote n1, 1µs before: the last fault since client 1 (op 1) asked for the lock that makes a node forget; its key was seen on no node",
	}, c)
	// The keys of a lock that shows no tokens are those of unknown owners.
	c = two().without(noToken).seen(90, 201, "x", "n1", "n2").seen(290, 750, "y", "n1", "n3").
		fault(201, 0, "flushall", "n1", 0).causeOf(t, Overlap)
	require.Equal(t, KeyLost, c.Why)
	require.Contains(t, c.Text, `the key of "r" was on n1 before it`)
}

func TestACauseIsAFaultOfAClientThatTakesPart(t *testing.T) {
	for _, client := range []int{1, 2} {
		c := two().fault(110, 400, "stop", "", client).causeOf(t, Overlap)
		require.Equal(t, OfClient, c.Why)
		require.Equal(t, client, c.Client)
	}
	// It was stopped before its write, and no longer at its write.
	h := tell("", 0).took(1, 10, 1, history.Event{}).left(900, 1).fault(20, 30, "stop", "", 1)
	h.add(40, history.Event{Kind: history.Read, Op: 1}).add(50, history.Event{Kind: history.Read, Op: 1, Value: 7})
	require.Equal(t, OfClient, h.causeOf(t, Register).Why)
	require.Equal(t, NoCause, two().fault(110, 400, "stop", "", 3).causeOf(t, Overlap).Why)
	require.Equal(t, NoCause, two().fault(110, 400, "cut", "n1", 3).causeOf(t, Overlap).Why, "of a client that takes no part")
}

func TestACauseIsElseWhatWasActiveThenOrWhileTheLockWasAcquired(t *testing.T) {
	c := two().fault(60, 101, "delay500ms", "n1", 1).fault(61, 101, "delay500ms", "n2", 1).seen(70, 250, "t1", "n1", "n2").
		causeOf(t, Overlap)
	require.Equal(t, Active, c.Why)
	require.Equal(t, "active then, or while the lock was acquired: delay500ms client 1 (n1, n2); "+
		"the last of these began 239µs before; the key of client 1 (op 1) was gone from n1, n2 50µs before, 200µs after it was asked for: "+
		"it ended by its TTL, or somebody deleted it", c.Text)
	c = two().seen(70, 750, "t1", "n1", "n2").fault(60, 800, "pause", "n1", 0).fault(250, 0, "flushall", "n2", 0).causeOf(t, Overlap)
	require.Equal(t, Active, c.Why)
	require.Contains(t, c.Text, "; the last fault that makes a node forget was flushall n2, 50µs before")
	require.Equal(t, LastBefore, two().fault(60, 800, "lag", "n1", 0).causeOf(t, Overlap).Why, "it hurts nobody as long as the primary lives")
}

func TestAViolationWithoutAFaultSaysThatNoneExplainsIt(t *testing.T) {
	require.Equal(t, Cause{Why: NoCause, Text: "no fault explains it"}, two().causeOf(t, Overlap))
	long := int64(3_000_000)
	h := tell("", 0).fault(10, 0, "flushall", "n1", 0).took(long, long+100, 1, history.Event{}).
		took(long+200, long+300, 2, history.Event{}).left(long+500, 1).left(long+700, 2)
	require.Equal(t, "no fault explains it; the last one before was flushall n1, 3.0003s before", h.causeOf(t, Overlap).Text)
}

func TestAReleaseThatTookTheKeyOfAnotherIsNamed(t *testing.T) {
	h := tell("", 0).took(10, 20, 3, history.Event{})
	h.add(40, history.Event{Kind: history.Release, Op: 3, Until: 40_000})
	h.events = append(h.events, two().events...)
	h.add(260, history.Event{Kind: history.Freed, Op: 3}).seen(90, 251, "t1", "n1", "n2")
	require.Contains(t, h.causeOf(t, Overlap).Text, "no fault explains it; the key of client 1 (op 1) was gone from n1 while client 3 (op 3) released")
}

func TestTheCauseOfALostUpdateIsThatOfItsOverlap(t *testing.T) {
	h := two().seen(90, 201, "t1", "n1", "n2").seen(290, 750, "t2", "n1", "n3").fault(201, 0, "flushall", "n1", 0)
	for _, e := range []history.Event{ // the first holder reads first and writes last
		{At: 150, Kind: history.Read, Op: 1}, {At: 310, Kind: history.Read, Op: 2},
		{At: 320, Kind: history.Write, Op: 2, Value: 1}, {At: 321, Kind: history.Written, Op: 2, Value: 1, OK: true},
		{At: 400, Kind: history.Write, Op: 1, Value: 1}, {At: 401, Kind: history.Written, Op: 1, Value: 1, OK: true},
	} {
		h.add(e.At, e)
	}
	c := h.causeOf(t, LostUpdate)
	require.Equal(t, KeyLost, c.Why)
	require.Equal(t, "flushall", c.Fault)
}

func TestTheCauseOfARepeatedFencingTokenIsWhatMadeANodeForget(t *testing.T) {
	h := func() *told {
		return tell("", 0).took(10, 20, 1, history.Event{Fence: 7}).left(100, 1).
			took(200, 300, 2, history.Event{Fence: 7}).left(400, 2).seen(15, 103, "t1", "n1", "n2")
	}
	c := h().fault(150, 0, "restart-empty", "n2", 0).fault(160, 0, "flushall", "n3", 0).causeOf(t, FenceDuplicate)
	require.Equal(t, Forgot, c.Why)
	require.Equal(t, "restart-empty n2, 150µs before: it makes a node forget, and the node had granted client 1 (op 1)", c.Text)
	require.Equal(t, LastBefore, h().fault(160, 0, "flushall", "n3", 0).causeOf(t, FenceDuplicate).Why)
}

func TestTheCauseOfAnOrphanIsWhatBroughtItsKeyBackOrWhoLeftIt(t *testing.T) {
	const late = 5_000_000
	orphan := func(from int64) *told {
		h := tell("", 0).took(10, 20, 1, history.Event{}).left(100, 1).seen(15, 110, "t1", "n2")
		h.add(from, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Token: "t1", Since: (from - 30) * 1000})
		return h.add(late, history.Event{Kind: history.Owner, Node: "n1", Resource: "r", Since: (late - 1) * 1000})
	}
	c := orphan(250).fault(230, 0, "restart-old-rdb", "n1", 0).causeOf(t, Orphan)
	require.Equal(t, KeyReturned, c.Why)
	require.Equal(t, "restart-old-rdb n1, 20µs before: the key was not on n1 before it, and after it", c.Text)
	c = orphan(90).fault(50, 0, "close", "", 1).causeOf(t, Orphan)
	require.Equal(t, OfClient, c.Why)
	require.Equal(t, "close", c.Fault)
}
