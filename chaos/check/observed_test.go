package check

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/history"
)

// requireLeftOut requires that nothing is found, and that this alone is named as not checked; "": nothing is.
func (h *told) requireLeftOut(t *testing.T, want string) {
	t.Helper()
	h.requireVerdict(t, Safe, want)
}

// requireVerdict does so with another verdict.
func (h *told) requireVerdict(t *testing.T, verdict Verdict, want string) {
	t.Helper()
	res, err := Judge(h.whole())
	require.NoError(t, err)
	require.Empty(t, res.Violations)
	require.Equal(t, verdict, res.Verdict)
	if want == "" {
		require.Empty(t, res.LeftOut)
		return
	}
	require.Len(t, res.LeftOut, 1)
	require.Equal(t, want, res.LeftOut[0].String())
}

// seen adds what observers saw on these nodes from one time to another.
func (h *told) seen(from, to int64, token string, nodes ...string) *told {
	for _, node := range nodes {
		h.owners(from, node, token)
		h.add(to, history.Event{Kind: history.Owner, Node: node, Resource: "r", Since: (to - 1) * 1000})
	}
	return h
}

const longMicros = 200_000 // longer than OrphanGrace

func TestALockThatTooFewNodesWereSeenToHoldIsNamed(t *testing.T) {
	held := func(micros int64, nodes ...string) *told {
		return tell("", 0).took(1, 10, 1, history.Event{}).left(micros, 1).seen(12, micros+6, "t1", nodes...)
	}
	few := `late losses of "r": owners were seen on 1 of 3 nodes, and a quorum is 2`
	held(longMicros, "n1").requireVerdict(t, Unsure, few)
	held(longMicros, "n1", "n2").requireLeftOut(t, "")
	held(50, "n1").requireLeftOut(t, "") // observers take time

	single := held(longMicros, "n1")
	single.run.Quorum = 1
	single.requireLeftOut(t, "")

	// The script's lock is watched, and so is each other lock, if the run does not say which are.
	other := held(longMicros, "n1", "n2")
	other.add(20, history.Event{Kind: history.Acquire, Op: 2, Client: 2, Resource: "other"})
	other.add(30, history.Event{Kind: history.Granted, Op: 2, Fence: 2, Token: "t2", Resource: "other"})
	other.add(longMicros, history.Event{Kind: history.Release, Op: 2, Until: longMicros * 1000, Resource: "other"})
	other.requireVerdict(t, Unsure, `late losses of "other": no key "other" was seen on any node: `+prefix)
	other.run.Observed = []string{"r"}
	other.requireLeftOut(t, "")
}

const prefix = `does the lock add a prefix? Then let Token return ""`

func TestALockThatNobodyObservedIsUnsureUnlessItShowsNoTokens(t *testing.T) {
	const none = "orphans and late losses: the keys on the nodes were not observed"
	held := func(micros int64) *told { return tell("", 0).took(1, 10, 1, history.Event{}).left(micros, 1) }
	held(longMicros).requireVerdict(t, Unsure, `orphans and late losses of "r": no key "r" was seen on any node: `+prefix)
	held(longMicros).without(noToken).requireVerdict(t, Safe, none)
	held(50).requireVerdict(t, Safe, none) // observers take time
}

func TestATokenOfAnUnknownOwnerThatTookALockFromItsHolderIsNamed(t *testing.T) {
	// The observer looked at the first time, and found the token at the second.
	taken := func(h *told, looked, found int64) *told {
		for _, node := range []string{"n1", "n2"} {
			h.add(found, history.Event{Kind: history.Owner, Node: node, Resource: "r", Token: "x", Since: looked * 1000})
		}
		return h
	}
	named := `late losses of "r": a token of an unknown owner took it once while a holder believed`
	mutex := func() *told {
		return tell("", 0).took(1, 10, 1, history.Event{}).left(200, 1).seen(11, 40, "t1", "n1", "n2")
	}
	taken(mutex(), 50, 60).requireLeftOut(t, named)
	taken(mutex(), 190, 210).requireLeftOut(t, "")
	taken(tell("", 0).took(1, 10, 1, history.Event{}).left(200, 1).seen(30, 40, "t1", "n1", "n2"), 5, 20).
		requireLeftOut(t, "") // it may have been there before the holder

	reader := func() *told {
		return tell(history.ReadWrite, 0).took(1, 10, 1, asReader).left(200, 1).seen(11, 40, "t1", "n1", "n2")
	}
	taken(reader(), 50, 60).requireLeftOut(t, named)
	failed := func(h *told, until int64, role history.Role) *told { // its token is not known
		h.add(15, history.Event{Kind: history.Acquire, Client: 2, Op: 2, Role: role})
		return h.add(until, history.Event{Kind: history.Failed, Op: 2, Error: "timeout"})
	}
	failed(taken(reader(), 50, 60), 20, history.Reader).requireLeftOut(t, "")
	failed(taken(reader(), 50, 60), 20, history.Alone).requireLeftOut(t, named)
	failed(taken(mutex(), 50, 60), 20, history.Alone).requireLeftOut(t, named)
	failed(taken(mutex(), 50, 60), 80, history.Alone).requireLeftOut(t, "") // not every vote counts

	permits := func(n int) *told {
		return tell(history.Semaphore, 2).took(1, 10, 1, history.Event{Permits: n}).left(200, 1).seen(11, 40, "t1", "n1", "n2")
	}
	taken(permits(2), 50, 60).requireLeftOut(t, named)
	taken(permits(1), 50, 60).requireLeftOut(t, "") // there is one left
}

func TestTokensThatAreNotThoseOnTheNodesAreNamed(t *testing.T) {
	named := `late losses of "r": the owner tokens of 1 of 2 leases were not seen on any node`
	second := func(until int64) *told {
		return tell("", 0).took(1, 10, 1, history.Event{}).left(50, 1).seen(11, 60, "t1", "n1", "n2").
			took(70, 80, 2, history.Event{}).left(until, 2)
	}
	second(200).seen(75, 210, "x", "n1", "n2").requireLeftOut(t, named)
	second(200).seen(75, 210, "x", "n1").requireLeftOut(t, "") // what a failed call left behind
	second(200).seen(75, 79, "x", "n1", "n2").requireLeftOut(t, "")
	second(200).requireLeftOut(t, "") // the observers did not look meanwhile
	second(200+OrphanMargin.Microseconds()).requireLeftOut(t, named)
}

// Each lease is on one node of three, and each node has seen some. So no token can ever be seen to take the lock.
func TestALockWhoseTokensAreNeverOnAQuorumIsUnsure(t *testing.T) {
	held := func() *told {
		h := tell("", 0)
		for n, node := range []string{"n1", "n2", "n3"} {
			at := int64(n) * 2 * longMicros
			h.took(at+1, at+10, uint64(n+1), history.Event{}).left(at+2*longMicros-100, uint64(n+1)).
				seen(at+12, at+2*longMicros-98, fmt.Sprintf("t%d", n+1), node)
		}
		return h
	}
	held().requireVerdict(t, Unsure, `late losses of "r": no owner token was seen on a quorum of nodes at a time, which is 2`)
	single := held()
	single.run.Quorum = 1
	single.requireLeftOut(t, "")
	// A server whose clock jumped may have had the token too shortly to be seen.
	held().fault(20, 2*longMicros, "clock+1m0s", "n2", 0).requireLeftOut(t, "")
	held().fault(20, 2*longMicros, "cut", "n2", 1).requireVerdict(t, Unsure, `late losses of "r": no owner token was seen on a quorum of nodes at a time, which is 2`)
}

func TestATokenThatAClientHasAgainWasNotSeenBefore(t *testing.T) {
	again := func(from int64) *told {
		h := tell("", 0)
		for op := uint64(1); op <= 2; op++ { // the same client has the same token
			at := int64(op-1) * 2_000_000
			h.add(at+1, history.Event{Kind: history.Acquire, Client: 1, Op: op})
			h.add(at+10, history.Event{Kind: history.Granted, Op: op, Fence: op, Token: "mine"})
			h.left(at+1_500_000, op)
		}
		return h.seen(from, from+1_400_000, "mine", "n1", "n2")
	}
	again(12).requireLeftOut(t, `late losses of "r": the owner tokens of 1 of 2 leases were not seen on any node`)
	again(2_000_012).requireLeftOut(t, `late losses of "r": the owner tokens of 1 of 2 leases were not seen on any node`)
}

// Who cannot be told apart on the nodes cannot be seen to take the lock from another.
func TestTokensThatClientsShareAreNamed(t *testing.T) {
	taken := func(token string, e history.Event) *told {
		h := tell("", 0).took(1, 10, 1, history.Event{}).gave(200, 1, true).seen(11, 40, "t1", "n1", "n2")
		h.took(210, 220, 2, e).left(300, 2).seen(50, 305, token, "n1", "n2")
		for i := range h.events {
			if e := &h.events[i]; e.Kind == history.Acquire && e.Op == 2 && e.From == 0 {
				e.At = 45_000
			} else if e.Kind == history.Granted && e.Op == 2 {
				e.Token = token
			}
		}
		return h
	}
	taken("t2", history.Event{}).requireFound(t, LateLoss, 1, 2)
	taken("t1", history.Event{}).requireLeftOut(t, "late losses: 2 of 2 leases have the owner token of another client")
	taken("t1", history.Event{From: 1}).requireLeftOut(t, "") // it was handed over together with the lock
}
