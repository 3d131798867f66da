package election

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func leader(number uint64) Leader { return Leader{"a b", number, fmt.Sprint("token", number)} }

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
	require.True(t, v.heard(leads(2)))
	require.Equal(t, leader(2), v.now)
	require.False(t, v.heard(leads(2)), "repeated")
	require.True(t, v.heard("ended 2"))
	require.True(t, v.now.None())
	require.False(t, v.heard("ended 2"), "repeated")
	require.False(t, v.heard(leads(2)), "late")
	require.False(t, v.saw(sighting{true, leader(2)}), "its release has not arrived")
	require.True(t, v.now.None())

	v.saw(sighting{true, leader(3)})
	require.Equal(t, leader(3), v.now)
	v.saw(sighting{false, Leader{}})
	require.Equal(t, leader(3), v.now, "not known")
	v.saw(sighting{true, Leader{}})
	require.True(t, v.now.None())
	require.True(t, v.heard(leads(3)), "it is there after all: look")
	v.saw(sighting{true, leader(3)})
	require.Equal(t, leader(3), v.now)

	require.True(t, v.heard("ended 5"), "the leader with number 4 or 5 was missed")
	require.True(t, v.now.None())
	v.saw(sighting{true, leader(4)})
	require.True(t, v.now.None())
	require.True(t, v.saw(sighting{true, Leader{Token: "token6"}}))
	require.True(t, v.saw(sighting{true, Leader{Token: "token6"}}))
	require.True(t, v.now.None(), "its record may come")
	require.False(t, v.saw(sighting{true, Leader{Token: "token6"}}))
	require.Equal(t, Leader{Token: "token6"}, v.now)
	v.saw(sighting{true, leader(6)})
	require.Equal(t, leader(6), v.now)
	for _, unclear := range []string{"", "x", "leads", "leads token 0 label", "ended", "ended 0", "ended x"} {
		require.True(t, v.heard(unclear), "look: %q", unclear)
		require.Equal(t, leader(6), v.now)
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
					v.heard(leads(number))
				case 1:
					v.heard(fmt.Sprint("ended ", number))
					ended = max(ended, number)
				case 2:
					v.saw(sighting{true, leader(number)})
				default:
					v.saw(sighting{random.IntN(2) == 0, Leader{}})
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
