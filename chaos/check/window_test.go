package check

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/stretchr/testify/require"
)

// Judge fails if porcupine disagrees with the walk. Porcupine gets one window after another, and the possible contents
// of the register between them.
func TestWindowsAreJudgedAsTheWholeIs(t *testing.T) {
	wrong, seeds := 0, uint64(30)
	if raceEnabled {
		seeds = 5
	}
	for seed := range seeds {
		for _, fenced := range []bool{true, false} {
			for lies := range 2 {
				res, err := Judge(longRegister(rand.New(rand.NewPCG(seed, 5)), fenced, lies, 3000, 300))
				require.NoError(t, err, "seed %d", seed)
				require.Equal(t, 3, res.Confirmed.Agreed, "seed %d: the tokens, the holders and the register: %v", seed, res.LeftOut)
				found := 0
				for _, v := range res.Violations {
					if v.Kind == Register {
						found++
					}
				}
				if lies == 0 {
					require.Zero(t, found, "seed %d: %v", seed, res.Violations)
					require.Zero(t, res.ValidWritesRefused+res.FencedStaleAccepted, "seed %d", seed)
				}
				wrong += found
			}
		}
	}
	require.NotZero(t, wrong, "the histories are of both sorts")
}

// A turns is a history of holders that take the lock one after another. Each adds one to the unfenced counter.
type turns struct {
	events []history.Event
	ops    uint64
	value  int64
}

func newTurns() *turns {
	return &turns{events: []history.Event{{Kind: history.Start, Run: &history.Run{Version: 1, TTL: int64(time.Second), Nodes: []string{"n1"}}}}}
}

func (h *turns) add(e history.Event) {
	e.At = int64(len(h.events)) * int64(time.Microsecond)
	e.Resource = "r"
	if e.Kind == history.Release {
		e.Until = e.At
	}
	h.events = append(h.events, e)
}

// turn adds one holder, which reads a value that is too small by stale.
func (h *turns) turn(stale int64) {
	h.ops++
	client := int(1 + h.ops%8)
	for _, e := range []history.Event{
		{Kind: history.Acquire}, {Kind: history.Granted, Fence: h.ops}, {Kind: history.Read, Value: h.value - stale},
		{Kind: history.Write, Value: h.value - stale + 1}, {Kind: history.Written, OK: true}, {Kind: history.Release}, {Kind: history.Freed},
	} {
		e.Op, e.Client = h.ops, client
		h.add(e)
	}
	h.value += 1 - stale
}

func (h *turns) judge(t *testing.T) Result {
	t.Helper()
	h.add(history.Event{Kind: history.End})
	res, err := Judge(h.events)
	require.NoError(t, err)
	return res
}

func kindsOf(res Result) map[ViolationKind]int {
	kinds := map[ViolationKind]int{}
	for _, v := range res.Violations {
		kinds[v.Kind]++
	}
	return kinds
}

// Porcupine gets at most 2000 calls at once. Longer histories are judged too: a holder that reads an overwritten value
// is found, without any fault or stopped client.
func TestAStaleReadIsFoundHoweverLongTheHistoryIs(t *testing.T) {
	for _, turns := range []int{20, 846, 1427, 20_000} {
		h := newTurns()
		for i := range turns {
			stale := int64(0)
			if i == turns/2 {
				stale = 1
			}
			h.turn(stale)
		}
		res := h.judge(t)
		require.Equal(t, Unsafe, res.Verdict, "%d turns", turns)
		require.Equal(t, 1, res.LostUpdates)
		require.Equal(t, map[ViolationKind]int{Register: 1, LostUpdate: 1}, kindsOf(res), "%d turns: %v", turns, res.Violations)
		require.Contains(t, res.Violations[0].Text, fmt.Sprintf("client %d (op %d) read %d", 1+(turns/2+1)%8, turns/2+1, turns/2-1))
		require.Equal(t, Confirmation{Agreed: 3}, res.Confirmed)
	}
}

// An update that the write of a stopped client destroyed is counted. A loss that no stopped client explains is a
// violation.
func TestALostUpdateThatNoStoppedClientExplainsIsAViolation(t *testing.T) {
	h := newTurns()
	h.turn(0)
	h.ops = 100
	// Op 11 looks at its lease and is stopped. Op 12 takes its turn. Op 11 wakes up and writes.
	h.add(history.Event{Kind: history.Acquire, Op: 11, Client: 1})
	h.add(history.Event{Kind: history.Granted, Op: 11, Client: 1, Fence: 11})
	h.add(history.Event{Kind: history.Read, Op: 11, Client: 1, Value: 1})
	until := int64(len(h.events)) * int64(time.Microsecond)
	h.turn(0)
	h.add(history.Event{Kind: history.Write, Op: 11, Client: 1, Value: 2})
	h.add(history.Event{Kind: history.Written, Op: 11, Client: 1, OK: true})
	h.add(history.Event{Kind: history.Lost, Op: 11, Client: 1, Until: until})
	for range 20 {
		h.turn(0)
	}
	res := h.judge(t)
	require.Equal(t, Safe, res.Verdict, "%v", res.Violations)
	require.Equal(t, 1, res.LostUpdates)
	require.Equal(t, 1, res.StaleWritesAccepted)
}

// What cannot be judged is named. What follows is judged again.
func TestACheckThatDoesNotComeToItsEndIsNamedAndIsNotSafe(t *testing.T) {
	crowded := func(stale int64) Result {
		h := newTurns()
		h.turn(0)
		const crowd = maxFlying + 6
		for op := uint64(1001); op <= 1000+crowd; op++ {
			h.add(history.Event{Kind: history.Acquire, Op: op, Client: int(op)})
			h.add(history.Event{Kind: history.Granted, Op: op, Client: int(op), Fence: op})
			h.add(history.Event{Kind: history.Release, Op: op, Client: int(op)})
		}
		for op := uint64(1001); op <= 1000+crowd; op++ { // each read may have happened at any time since the grant
			h.add(history.Event{Kind: history.Read, Op: op, Client: int(op), Value: 1})
		}
		h.ops += 1000 + crowd
		h.turn(0)
		h.turn(0)
		h.turn(stale)
		return h.judge(t)
	}
	res := crowded(0)
	require.Equal(t, Unsure, res.Verdict)
	require.Zero(t, res.ViolationsFound, "%v", res.Violations)
	require.NotEmpty(t, res.LeftOut)
	require.Equal(t, "unfenced register", res.LeftOut[0].Check)
	require.Contains(t, res.LeftOut[0].String(), `unfenced register of "r": lines`)
	require.Contains(t, res.LeftOut[0].Reason, "more than 64 calls were in flight at once")

	res = crowded(1)
	require.Equal(t, Unsafe, res.Verdict)
	require.Equal(t, 1, kindsOf(res)[Register], "%v", res.Violations)
}

// If calls overlap in an endless chain, there is no window for porcupine. The walk needs none.
func TestAChainOfCallsThatOverlapIsJudgedWithoutASecondOpinion(t *testing.T) {
	for _, stale := range []int64{0, 1} {
		h := newTurns()
		const links = confirmOps + 500
		grant := func(op uint64) {
			h.add(history.Event{Kind: history.Acquire, Op: op, Client: 1})
			h.add(history.Event{Kind: history.Granted, Op: op, Client: 1, Fence: op})
			h.add(history.Event{Kind: history.Release, Op: op, Client: 1})
		}
		h.turn(0)
		grant(1001)
		for i := range uint64(links) { // each reads after the next one was granted
			grant(1002 + i)
			value := h.value
			if i == links/2 {
				value -= stale
			}
			h.add(history.Event{Kind: history.Read, Op: 1001 + i, Client: 1, Value: value})
		}
		res := h.judge(t)
		require.Equal(t, stale == 1, res.Verdict == Unsafe, "%v", res.Violations)
		require.Equal(t, int(stale), kindsOf(res)[Register])
		require.Equal(t, 1, res.Confirmed.TooLong)
		named := false
		for _, l := range res.LeftOut {
			named = named || l.Check == "second opinion on the unfenced register"
		}
		require.True(t, named, "%v", res.LeftOut)
	}
}
