package check

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/stretchr/testify/require"
)

// randomRegister makes a history of a fenced resource. Answers come late, and some of them are lies. Without lies the
// history is correct by construction: every call takes effect at one line.
func randomRegister(r *rand.Rand, fenced bool, lies int) (events []history.Event) {
	return longRegister(r, fenced, lies, 60, 8)
}

// longRegister has this many steps, and one in unanswered writes has no answer.
func longRegister(r *rand.Rand, fenced bool, lies, steps, unanswered int) (events []history.Event) {
	run := &history.Run{Version: 1, TTL: 1}
	add := func(e history.Event) {
		e.At = int64(len(events))
		events = append(events, e)
	}
	add(history.Event{Kind: history.Start, Run: run})
	const holders = 5
	for op := uint64(1); op <= holders; op++ {
		add(history.Event{Kind: history.Acquire, Client: int(op), Op: op, Resource: "r"})
		add(history.Event{Kind: history.Granted, Op: op, Fence: op})
	}
	var value int64
	var seen uint64
	type state struct {
		step   int // 0: to read; 1: it read; 2: its write is out; 3: it took effect
		value  int64
		answer history.Event
	}
	var ops [holders + 1]state
	for range steps {
		op := 1 + r.Uint64N(holders)
		o := &ops[op]
		event := history.Event{Op: op, Resource: "r", Fenced: fenced}
		switch o.step {
		case 0:
			if fenced && op < seen {
				continue // it is refused, which is not recorded
			}
			o.value, o.step, seen = value, 1, max(seen, op)
			event.Kind, event.Value = history.Read, o.value
			add(event)
		case 1:
			event.Kind, event.Value = history.Write, o.value+1
			add(event)
			o.step = 2
		case 2:
			event.Kind, event.OK = history.Written, !fenced || op >= seen
			if event.OK {
				value, seen = o.value+1, max(seen, op)
			}
			if lies > 0 && r.IntN(6*steps/60) == 0 {
				event.OK = !event.OK
			}
			if r.IntN(unanswered) == 0 {
				event.OK, event.Error = false, "timeout"
			}
			o.answer, o.step = event, 3
		case 3:
			add(o.answer)
			o.step = 0
		}
	}
	add(history.Event{Kind: history.End})
	return events
}

func TestARightRegisterIsNeverAccused(t *testing.T) {
	refused := 0
	for seed := range uint64(2000) {
		for _, fenced := range []bool{true, false} {
			res, err := Judge(randomRegister(rand.New(rand.NewPCG(seed, 2)), fenced, 0))
			require.NoError(t, err, "seed %d", seed)
			require.Zero(t, res.ValidWritesRefused, "seed %d: %v", seed, res.Violations)
			require.Zero(t, res.FencedStaleAccepted, "seed %d: %v", seed, res.Violations)
			require.Zero(t, res.FencedLostUpdates, "seed %d: %v", seed, res.Violations)
			for _, v := range res.Violations {
				require.Contains(t, []ViolationKind{Overlap, LostUpdate}, v.Kind, "seed %d: %s", seed, v.Text)
			}
			refused += res.StaleWritesRefused
		}
	}
	require.Greater(t, refused, 1000)
}

// Judge fails if porcupine accepts a history in which our own checks found a wrong answer.
func TestALyingRegisterIsFoundOut(t *testing.T) {
	found := map[ViolationKind]int{}
	for seed := range uint64(2000) {
		res, err := Judge(randomRegister(rand.New(rand.NewPCG(seed, 3)), true, 1))
		require.NoError(t, err, "seed %d", seed)
		for _, v := range res.Violations {
			found[v.Kind]++
		}
	}
	t.Log(fmt.Sprint(found))
	for _, kind := range []ViolationKind{StaleWriteAccepted, ValidWriteRefused, Register} {
		require.NotZero(t, found[kind], "%s", kind)
	}
}

// Many holders add one to the counter at the same time. What is missing at the end was lost. The judge knows neither
// the final value nor the order in which the writes took effect.
func TestLostUpdatesAreWhatTheCounterLacks(t *testing.T) {
	lost, seeds := 0, uint64(1000)
	if raceEnabled {
		seeds = 200
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 4))
		events := []history.Event{{Kind: history.Start, Run: &history.Run{Version: 1, TTL: 1}}}
		const holders = 20
		var steps, reads [holders + 1]int64
		for op := uint64(1); op <= holders; op++ {
			events = append(events, history.Event{Kind: history.Acquire, Client: 1, Op: op, Resource: "r"},
				history.Event{Kind: history.Granted, Op: op})
		}
		crowd := 1 + r.Uint64N(holders) // number of concurrent holders
		value, first := int64(0), uint64(1)
		for first <= holders {
			op := min(first+r.Uint64N(crowd), holders)
			e := history.Event{Op: op, Resource: "r"}
			switch steps[op]++; steps[op] {
			case 1:
				reads[op] = value
				e.Kind, e.Value = history.Read, value
			case 2:
				e.Kind, e.Value = history.Write, reads[op]+1
			case 3:
				value = reads[op] + 1 // at an unrecorded time
				continue
			case 4:
				e.Kind, e.OK = history.Written, true
			default:
				for first <= holders && steps[first] >= 4 {
					first++
				}
				continue
			}
			events = append(events, e)
		}
		total := int64(holders)
		if seed%2 == 0 { // a last holder without others
			const op = holders + 1
			total++
			value++
			events = append(events, history.Event{Kind: history.Acquire, Client: 1, Op: op, Resource: "r"},
				history.Event{Kind: history.Granted, Op: op},
				history.Event{Kind: history.Write, Op: op, Value: value},
				history.Event{Kind: history.Written, Op: op, OK: true})
		}
		res, err := Judge(append(events, history.Event{Kind: history.End}))
		require.NoError(t, err)
		if seed%2 == 0 {
			require.EqualValues(t, total-value, res.LostUpdates, "seed %d", seed)
		} else { // it is unknown which write was the last
			require.LessOrEqual(t, int64(res.LostUpdates), total-value, "seed %d", seed)
		}
		lost += res.LostUpdates
	}
	require.Greater(t, lost, int(seeds))
}

func TestAnUnknownWriteMayTakeEffectAtAnyTimeOrNever(t *testing.T) {
	write := porcupine.Operation{Call: 1, Return: infinity, Input: slotted{input{kind: writes, value: 9}, 1}, Output: unknown}
	read := func(line, value int64) porcupine.Operation {
		return porcupine.Operation{Call: line, Return: line + 1, Input: slotted{input{kind: reads, value: value}, 0}, Output: known}
	}
	m := registerModel(false, possible{})
	require.True(t, porcupine.CheckOperations(m, []porcupine.Operation{write, read(2, 0), read(4, 9)}))
	require.True(t, porcupine.CheckOperations(m, []porcupine.Operation{write, read(2, 0), read(4, 0)}))
	require.False(t, porcupine.CheckOperations(m, []porcupine.Operation{write, read(2, 0), read(4, 9), read(6, 0)}), "it takes effect once")
}
