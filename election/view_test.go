package election

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func leader(number uint64) Leader { return Leader{"a b", number, fmt.Sprint("token", number)} }

// nobody is what a look finds, after this time, that began and ended a millisecond apart and saw an owner without a record.
func nobody(token string, after time.Duration) sighting {
	began := time.Unix(1, 0).Add(after)
	return sighting{true, Leader{Token: token}, began, began.Add(time.Millisecond)}
}

func leads(number uint64) string { return "leads " + leader(number).record() }

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	for _, label := range []string{"", "a", " a  b ", "\x00ü"} {
		got, ok := parseRecord(Leader{label, 1<<53 - 1, "token"}.record())
		require.True(t, ok)
		require.Equal(t, Leader{label, 1<<53 - 1, "token"}, got)
	}
	for _, wrong := range []string{"", "token", "token 1", " 1 label", "token x label", "token -1 label"} {
		_, ok := parseRecord(wrong)
		require.False(t, ok, wrong)
	}
}

func TestWhatMessagesAndLooksMean(t *testing.T) {
	var v view
	require.True(t, v.heard(leads(2), math.MaxUint64))
	require.Equal(t, leader(2), v.now)
	require.False(t, v.heard(leads(2), math.MaxUint64), "repeated")
	require.True(t, v.heard("ended 2", math.MaxUint64))
	require.True(t, v.now.None())
	require.False(t, v.heard("ended 2", math.MaxUint64), "repeated")
	require.False(t, v.heard(leads(2), math.MaxUint64), "late")
	require.False(t, v.saw(sighting{found: true, leader: leader(2)}), "its release has not arrived")
	require.True(t, v.now.None())

	v.saw(sighting{found: true, leader: leader(3)})
	require.Equal(t, leader(3), v.now)
	v.saw(sighting{})
	require.Equal(t, leader(3), v.now, "not known")
	v.saw(sighting{found: true})
	require.True(t, v.now.None())
	require.True(t, v.heard(leads(3), math.MaxUint64), "it is there after all: look")
	v.saw(sighting{found: true, leader: leader(3)})
	require.Equal(t, leader(3), v.now)

	require.True(t, v.heard("ended 5", math.MaxUint64), "the leader with number 4 or 5 was missed")
	require.True(t, v.now.None())
	v.saw(sighting{found: true, leader: leader(4)})
	require.True(t, v.now.None())
	require.True(t, v.saw(nobody("token6", 0)))
	require.True(t, v.saw(nobody("token6", 0)))
	require.True(t, v.now.None(), "its record may come")
	require.False(t, v.saw(nobody("token6", time.Second)))
	require.Equal(t, Leader{Token: "token6"}, v.now)
	v.saw(sighting{found: true, leader: leader(6)})
	require.Equal(t, leader(6), v.now)
	for _, unclear := range []string{"", "x", "leads", "leads token 0 label", "ended", "ended 0", "ended x"} {
		require.True(t, v.heard(unclear, math.MaxUint64), "look: %q", unclear)
		require.Equal(t, leader(6), v.now)
	}
}

// The record follows the lock by a round trip of the leader. So many looks in a short time say nothing, and neither do few
// in a long time: a record may be lost where one node has it.
func TestAnOwnerHasNoRecordAfterSeveralLooksAndATime(t *testing.T) {
	v := view{owner: nameless{patience: time.Second}}
	for i := range 100 {
		require.True(t, v.saw(nobody("a", time.Duration(i)*10*time.Millisecond)), "look again")
	}
	require.True(t, v.saw(nobody("a", time.Second)), "the first look ended a millisecond after it had begun")
	require.False(t, v.known)
	require.True(t, v.saw(nobody("b", 2*time.Second)), "another owner")
	require.True(t, v.saw(nobody("b", 5*time.Second)), "two looks")
	require.False(t, v.saw(nobody("b", 6*time.Second)))
	require.Equal(t, Leader{Token: "b"}, v.now)
	require.False(t, v.saw(nobody("b", 7*time.Second)), "it is known")
}

// A leader that has ended may still have the lock, and no record any more.
func TestALeaderThatHasEndedDoesNotComeBackWithoutItsName(t *testing.T) {
	var v view
	v.heard(leads(2), math.MaxUint64)
	v.heard("ended 2", math.MaxUint64)
	v.heard("ended 3", math.MaxUint64) // of a leader that was not seen
	for range 2 * namelessLooks {
		require.False(t, v.saw(nobody(leader(2).Token, 0)))
		require.Equal(t, Leader{}, v.now)
	}
}

// Whatever comes, in whatever order and how often: the number never goes back, and a term that has ended does not return.
// An observer that forgets the numbers it has seen goes back.
func TestTheNumberNeverGoesBack(t *testing.T) {
	goesBack := func(forgets bool) bool {
		random := rand.New(rand.NewPCG(1, 2))
		for range 10_000 {
			var v view
			highest, ended := uint64(0), uint64(0)
			for range 30 {
				if forgets {
					v.highest, v.ended = 0, 0
				}
				number := 1 + random.Uint64N(6)
				switch random.IntN(4) {
				case 0:
					v.heard(leads(number), math.MaxUint64)
				case 1:
					v.heard(fmt.Sprint("ended ", number), math.MaxUint64)
					ended = max(ended, number)
				case 2:
					v.saw(sighting{found: true, leader: leader(number)})
				default:
					v.saw(sighting{found: random.IntN(2) == 0})
				}
				if v.now.None() {
					continue
				}
				if v.now.Number < highest || v.now.Number <= ended {
					return true
				}
				highest = v.now.Number
			}
		}
		return false
	}
	require.False(t, goesBack(false))
	require.True(t, goesBack(true))
}

// SECURITY.md: An owner token is a secret.
func TestALeaderShowsNoOwnerTokenInLogs(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef:1234:web"
	for want, leader := range map[string]Leader{
		`"web", term 7`:     {Label: "web", Number: 7, Token: token},
		`"web"`:             {Label: "web", Token: token}, // with Config.NoFence
		"an unknown leader": {Token: token},
		"nobody":            {},
	} {
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("seen", "leader", leader)
		require.NotContains(t, log.String(), token)
		require.Equal(t, want, fmt.Sprintf("%v", leader))
		require.Equal(t, want, fmt.Sprintf("%+v", &leader))
	}
}
