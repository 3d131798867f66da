package search_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/search"
)

var space = search.Space{
	Nodes: []string{"node-1", "node-2", "node-3"}, Clients: 3, From: time.Second / 2, Until: 3 * time.Second, Scale: time.Second,
	Verbs: []fault.Verb{
		fault.Kill, fault.Pause, fault.Cut, fault.CutReplies, fault.Delay, fault.RestartEmpty, fault.FlushAll, fault.Clock,
		fault.ClientClock, fault.Promote,
	},
}

// walk makes schedules as a search does whose runs have made-up margins.
func walk(seed uint64, margin func(fault.Schedule) time.Duration) (all []fault.Schedule) {
	s := search.New(space, seed, true)
	for range 300 {
		next := s.Next()
		all = append(all, next)
		s.Tell(search.Tried{Schedule: next, Margin: margin(next), Known: true})
	}
	return all
}

// toHit is how far the schedule is from a flush of node-2 at 2s and one of node-3 at 1s.
func toHit(s fault.Schedule) time.Duration {
	near := func(node string, at time.Duration) time.Duration {
		least := space.Until
		for _, t := range s {
			if t.Fault == fault.On(fault.FlushAll, node) {
				least = min(least, (t.At - at).Abs())
			}
		}
		return least
	}
	return near("node-2", 2*time.Second) + near("node-3", time.Second)
}

func TestTheSameSeedAndMarginsGiveTheSameSchedules(t *testing.T) {
	assert.Equal(t, walk(7, toHit), walk(7, toHit))
	assert.NotEqual(t, walk(7, toHit), walk(8, toHit))
}

func TestEveryScheduleCanBeRunAndPrinted(t *testing.T) {
	verbs := map[fault.Verb]bool{}
	for _, s := range walk(3, toHit) {
		require.NoError(t, s.Check(space.Nodes, space.Clients))
		back, err := fault.ParseSchedule(s.String())
		require.NoError(t, err, s.String())
		require.Equal(t, s.String(), back.String())
		step := map[string]fault.Verb{}
		for i, one := range s {
			verbs[one.Fault.Verb] = true
			require.GreaterOrEqual(t, one.At, space.From)
			require.LessOrEqual(t, one.Ends(), space.Until)
			switch one.Fault.Verb {
			case fault.Lag:
				require.Equal(t, fault.Follow, step[one.Fault.Node])
			case fault.Promote:
				require.Equal(t, fault.Lag, step[one.Fault.Node])
			case fault.Follow:
				require.Empty(t, step[one.Fault.Node])
			case fault.Kill, fault.Pause: // nothing else is done to a server that is not there
				for _, other := range s[i+1:] {
					isServer := !slices.Contains([]fault.Verb{
						fault.Cut, fault.CutReplies, fault.Delay, fault.Clock, fault.ClientClock,
					}, other.Fault.Verb)
					require.False(t, isServer && other.Fault.Node == one.Fault.Node && other.At <= one.Ends(), s.String())
				}
				continue
			default:
				continue
			}
			step[one.Fault.Node] = one.Fault.Verb
		}
	}
	assert.Len(t, verbs, len(space.Verbs)+2, "with the two other steps of a failover")
}

// The nearest of the random schedules and the nearest of a search that is told how near each was.
func TestASearchThatIsToldHowCloseItIsComesFarCloserThanChance(t *testing.T) {
	closer := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		chance, searched := time.Hour, time.Hour
		for _, s := range walk(seed, toHit) {
			searched = min(searched, toHit(s))
			chance = min(chance, toHit(space.Random(r)))
		}
		if searched < chance/2 {
			closer++
		}
	}
	assert.GreaterOrEqual(t, closer, 16)
}

func schedule(t *testing.T, lines ...string) fault.Schedule {
	s, err := fault.ParseSchedule(strings.Join(lines, "\n"))
	require.NoError(t, err)
	return s
}

func TestShrinkingLeavesWhatIsNeeded(t *testing.T) {
	tried := 0
	s := search.Shrink(schedule(t, "0s kill(node-1) for 1s", "100ms flushall(node-2)", "200ms pause(node-3) for 800ms",
		"300ms cut(node-1) for 500ms", "400ms flushall(node-3)"), func(s fault.Schedule) bool {
		tried++
		return s.Has(fault.FlushAll) && slices.ContainsFunc(s, func(t fault.Timed) bool {
			return t.Fault.Verb == fault.Pause && t.Lasts >= 90*time.Millisecond
		})
	})
	assert.Equal(t, "200ms pause(node-3) for 100ms\n400ms flushall(node-3)", s.String())
	assert.Less(t, tried, 20)
	assert.Empty(t, search.Shrink(s, func(fault.Schedule) bool { return true }), "it is unsafe without any fault")
	assert.Equal(t, s, search.Shrink(s, func(fault.Schedule) bool { return false }))
}

func TestShrinkingNeverTriesAPartOfAFailoverThatCannotBe(t *testing.T) {
	whole := schedule(t, "0s follow(node-1)", "100ms lag(node-1)", "200ms promote(node-1)", "300ms flushall(node-2)")
	s := search.Shrink(whole, func(s fault.Schedule) bool {
		if s.Has(fault.Promote) || s.Has(fault.Lag) {
			require.True(t, s.Has(fault.Follow), s.String())
		}
		return s.Has(fault.Promote)
	})
	assert.Equal(t, whole[:3], s)
}
