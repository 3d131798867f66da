package check

import (
	"testing"

	"github.com/quorumlock/redlock/chaos/history"
)

func TestCallsThatNeverReturnedAreNamedAndMakeTheVerdictUnsure(t *testing.T) {
	h := tell("", 0).took(1, 10, 1, history.Event{}).left(60, 1).seen(12, 66, "t1", "n1", "n2")
	h.requireLeftOut(t, "")
	h.add(70, history.Event{Kind: history.Acquire, Client: 2, Op: 2})
	h.add(80, history.Event{Kind: history.Failed, Op: 2, Error: "timeout"})
	h.requireLeftOut(t, "")
	for op := uint64(3); op <= 4; op++ {
		h.add(90, history.Event{Kind: history.Acquire, Client: 2, Op: op})
		h.add(99, history.Event{Kind: history.Failed, Op: op, Error: "it did not return", Left: true})
	}
	h.requireVerdict(t, Unsure, "calls: 2 calls of Acquire never returned, long after their contexts had ended")

	stuck := tell("", 0).took(1, 10, 1, history.Event{})
	stuck.add(60, history.Event{Kind: history.Release, Op: 1, Until: 60_000})
	stuck.add(70, history.Event{Kind: history.Freed, Op: 1, Error: "it did not return", Left: true})
	stuck.seen(12, 66, "t1", "n1", "n2").requireVerdict(t, Unsure, "calls: a call of Release never returned, long after its context had ended")
}
