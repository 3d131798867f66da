package redlock

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// said is a refusal of a node, of that kind.
func said(kind, owner string, more ...any) answer {
	reply := append([]any{[]byte(kind), int64(1), int64(10000), []byte(owner), int64(0)}, more...)
	a, ok := parseArray(reply)
	if !ok {
		panic(fmt.Sprint(reply))
	}
	return a
}

// One node named a slot twice, and so many times less did it count as taken: below none, where nobody looked for a free one.
func TestASlotThatOneNodeNamesTwiceIsFree(t *testing.T) {
	first := func(time.Duration) time.Duration { return 0 }
	s := sharing{permits: 2, take: 1}
	for _, free := range []string{"1", "1,1", "1,1,1,1,1,1"} {
		names := func(free string) answer { return said("held", "permits", []byte(free), int64(2)) }
		answers := []answer{names("1"), names("1"), names(free)}
		slots, ok := s.freeSlots(answers, 2, false, first)
		require.True(t, ok, free)
		require.Equal(t, []int{1}, slots, free)
	}
}

// O3: A node that named as many waiters ahead as there are numbers had a waiter ask 4000 times a second.
func TestAWaiterBehindMoreThanThereAreDoesNotAskAtOnce(t *testing.T) {
	for _, ahead := range []int64{1, 1000, 1 << 40, math.MaxInt64 - 1, math.MaxInt64} {
		taken := func(ahead int64) answer { return said("taken", "foreign", int64(0), ahead) }
		answers := []answer{taken(0), taken(0), taken(ahead)}
		votes := newTally(3, 2, -1)
		for i := range answers {
			votes.cast(i, denied, anywhere)
		}
		k := fairKnown{settings: &settings{protocol: standard}, answers: answers, votes: votes, hears: true, refresh: time.Second, deafPoll: time.Second}
		require.Greater(t, k.decide().pause, foreignPoll/2, "%d", ahead)
	}
}
