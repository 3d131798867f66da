package redlock

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func said(owner string, more ...any) answer {
	reply := append([]any{[]byte("held"), int64(1), int64(10000), []byte(owner), int64(0)}, more...)
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
		answers := []answer{said("permits", []byte("1"), int64(2)), said("permits", []byte("1"), int64(2)), said("permits", []byte(free), int64(2))}
		slots, ok := s.freeSlots(answers, 2, false, first)
		require.True(t, ok, free)
		require.Equal(t, []int{1}, slots, free)
	}
}

// O3: A node that named as many waiters ahead as there are numbers had a waiter ask 4000 times a second.
func TestAWaiterBehindMoreThanThereAreDoesNotAskAtOnce(t *testing.T) {
	for _, ahead := range []int64{1, 1000, 1 << 40, math.MaxInt64 - 1, math.MaxInt64} {
		taken := func(ahead int64) answer {
			a, ok := parseArray([]any{[]byte("taken"), int64(1), int64(10000), []byte("foreign"), int64(0), int64(0), ahead})
			require.True(t, ok)
			return a
		}
		answers := []answer{taken(0), taken(0), taken(ahead)}
		votes := newTally(3, 2, -1)
		for i := range answers {
			votes.cast(i, denied, anywhere)
		}
		k := fairKnown{settings: &settings{protocol: standard}, answers: answers, votes: votes, hears: true, refresh: time.Second, deafPoll: time.Second}
		require.Greater(t, k.decide().pause, foreignPoll/2, "%d", ahead)
	}
}
