package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// W1, W2: A waiter that gives up at its turn passes the key on, although its process has another waiter for the key: one
// that began later and was told nothing. That one may be unable to use the key, because it wants another name too. It is
// told that it was taken out of the queue, so it asks again soon. If it was told the same, it decides.
func TestAWaiterThatGivesUpAtItsTurnLeavesItToNobodyWhoWasNotTold(t *testing.T) {
	reserved := func(s *scene) { s.message("x", 0) }
	released := func(s *scene) { s.c.waiters.released(s.res) }
	for name, c := range map[string]struct {
		happens func(s *scene)
		late    bool // the other waiter begins after that
		sends   [3]string
	}{
		"reserved, the other is late":            {reserved, true, [3]string{"leave", "", ""}},
		"reserved, the other was told":           {reserved, false, [3]string{}},
		"released in here, the other is late":    {released, true, [3]string{"leave", "leave", "leave"}},
		"released in here, the other was told":   {released, false, [3]string{}},
		"nothing has happened, the other queues": {func(*scene) {}, true, [3]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, "x")
				s.one()
				other := waiter{client: s.c, res: s.c.Mutex("x", "y").spec.res}
				if c.late {
					c.happens(s)
					other.listen()
				} else {
					other.listen()
					c.happens(s)
				}
				before := s.c.waiters.drain(other.inbox)
				s.end()
				require.Equal(t, c.sends, s.sent())
				after := s.c.waiters.drain(other.inbox)
				for rank, sent := range c.sends {
					require.Equal(t, sent != "", after.resubscribed.has(s.rank[rank]))
				}
				require.Equal(t, c.late, before == hints{})
			})
		})
	}
}

// W2: A lock may be named like the message that a slot of another one is reserved. The waiters of both are told.
func TestALockThatIsNamedLikeAMessageOfAPermitTakesNoMessageFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "permit 7 x")
		s.c.waiters.contend(s.res) // so it is known, though nobody waits for it
		permit := waiter{client: s.c, res: s.c.Semaphore("x", 9).spec.res}
		permit.listen()
		const node = 1
		s.c.waiters.received("permit 7 x", node, true)
		require.Equal(t, hints{reserved: 1 << node, permit: 8}, s.c.waiters.drain(permit.inbox))

		reader := waiter{client: s.c, res: s.c.RWMutex("permit 7 x").Reader().spec.res}
		reader.listen()
		s.c.waiters.received("permit 7 x", node, true)
		require.Equal(t, hints{reserved: 1 << node, permit: 8}, s.c.waiters.drain(permit.inbox))
		require.Equal(t, hints{reserved: 1 << node}, s.c.waiters.drain(reader.inbox))
	})
}

// W1, W2: The same for a waiter that was told, has tried, and waits on.
func TestAWaiterThatGivesUpAtItsTurnLeavesItToNobodyWhoHasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "x", "y")
		s.one()
		other := &scene{waiter: &waiter{client: s.c, res: s.c.Mutex("x").spec.res}, c: s.c, rank: s.rank}
		other.listen()
		s.c.waiters.released(other.res)
		_, err := s.refused(t.Context(), by(third, time.Minute)) // from before the release
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.refused(ctx, by(third, time.Minute), by(third, time.Minute), by(third, time.Minute))
		require.NoError(t, err)
		require.Equal(t, [3]string{"leave", "leave", "leave"}, s.sent(), "of y, which nobody else here wants")
		other.end()
		require.Equal(t, [3]string{"leave", "leave", "leave"}, s.sent())
	})
}

// W2: A waiter whose ballot was too low at its turn asks again, and still has its turn. If it gives up, it passes it on.
func TestAWaiterKeepsItsTurnIfOnlyItsBallotWasTooLow(t *testing.T) {
	for name, names := range map[string][]string{"one name": {"x"}, "two names": {"x", "y"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, names[0], names[1:]...)
				s.one()
				s.message("x", 0)
				s.message("x", 1)
				_, err := s.refused(t.Context(), by(third, time.Minute)) // from before
				require.NoError(t, err)
				require.Equal(t, everybody, s.first())
				slept, err := s.refused(t.Context(), low, low, yes1)
				require.NoError(t, err)
				require.Zero(t, slept)
				require.Equal(t, [3]string{}, s.sent())
				require.Equal(t, s.set(0, 1), s.turn.reserved)
				s.end()
				require.Equal(t, [3]string{"leave", "leave", "leave"}, s.sent(), "to the third too: its release left a free key there")
			})
		})
	}
}

// W2, S5: Whoever may publish may send any message. A slot that no semaphore has is not asked for: the entry that a node
// would write for it is none.
func TestAReservedPermitIsASlotThatASemaphoreCanHave(t *testing.T) {
	for message, want := range map[string]int{
		"permit 0 x": 0, "permit 7 x": 7, "permit 999 x": 999,
		"permit -5 x": -1, "permit -1 x": -1, "permit 1000 x": -1, "permit 99999999999999999999 x": -1, "permit  x": -1,
		"permit 0": -1, "permit x x": -1, "0 x": -1,
	} {
		slot, key, ok := reservedPermit(message)
		require.Equal(t, want >= 0, ok, message)
		if ok {
			require.Equal(t, want, slot, message)
			require.Equal(t, "x", key, message)
		}
	}
}
