package redlock_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/quorumlock/redlock"
)

// suspendAware is the switch outside the library: the clock is part of the configuration.
const suspendAware = "suspend-aware clock"

// shownBy names, for a defence, the trait that a world needs to show what the defence is for. The others show in any
// world.
var shownBy = map[string]string{
	"quarantine by the others' clocks": wrongClock,
	"data set vouched for":             failingUnseen,
	"data set named":                   failingBack,
	"Durable distrusts the promoted":   staleDurable,
	"agreed configuration":             differing,
	"Close ends the renewing":          closing,
	"Close awaits calls":               closingAtWork,
	"hooks apart":                      blocking,
	"leaving the queue":                impatience,
	"marker read last":                 splitting,
	"a giver stops first":              handingOver,
	"a failed adopter gives back":      handingOver,
	"a ticket's token compared":        handingOver,
	"one slot on all nodes":            sharing,
	"intent of a writer":               sharing,
	"an entry for each":                sharing,
	"all names or none":                dining,
	"intent of a fair writer":          sharing,

	"a key lasts as long as its last entry": sharing,
	"order of arrival":                      arrivals,
	"tickets above a quorum's":              arrivals,
	"places end":                            arrivals,
	"places left":                           arrivals,
	"far ballots agreed":                    raising,
}

// switchOff runs the world without one of the defences.
func switchOff(t *testing.T, w *world, name string) {
	if name == "" {
		return
	}
	if name == suspendAware {
		w.unaware = true
		return
	}
	s, ok := redlock.Switches[name]
	if !ok {
		t.Fatalf("there is no defence %q", name)
	}
	w.change = append(w.change, s.Off)
}

// everyDefenceIsNeeded switches off one defence after the other, and wants a violation within so many seeds. It prints
// the table of docs/safety.md.
func everyDefenceIsNeeded(t *testing.T, seeds int) {
	fmt.Println("| off | seeds until the first violation | what broke |\n| --- | ---: | --- |")
	for _, name := range slices.Sorted(maps.Keys(switches())) {
		if *simulateOff != "" && name != *simulateOff {
			continue
		}
		s := sweep(t, 1, seeds, name, true)
		if len(s.failures) == 0 {
			fmt.Printf("| %s | more than %d | |\n", name, s.seeds)
			t.Errorf("%s: off, and nothing broke in %d seeds", name, s.seeds)
			continue
		}
		fmt.Printf("| %s | %d | %s |\n", name, s.seeds, s.failures[0].violations[0].invariant)
	}
}

func switches() map[string]bool {
	all := map[string]bool{suspendAware: true}
	for name := range redlock.Switches {
		all[name] = true
	}
	return all
}
