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

// invariants are those of the worlds that some defence must break. Two are left out. A stale write would need two leases
// with one fencing token, and that breaks fenceOrder first. The defence against former leaders is in package election:
// TestTheNumberNeverGoesBack switches it off.
var invariants = []string{twoHolders, fenceOrder, validRefused, lostUpdate, orphaned, stuck, poisoned, outlived, closes, refused,
	wrongKind, nobodyWon, leftFree, outOfTurn, neverBack, inTheGap, twoAdopters, outOfOrder, twoLeaders, deadlocked,
	readersOrWriter, tooMany}

// breaks names, for invariants that seldom break first, a defence without which they break.
var breaks = map[string]string{
	fenceOrder:  "fence comparison",
	lostUpdate:  "quarantine",
	inTheGap:    "a ticket's token compared",
	twoAdopters: "a ticket's token compared",
	leftFree:    "late-grant release",

	readersOrWriter: "an entry for each",
}

// beginAt is where the sweep begins for a defence that few seeds show; the others begin at 1.
var beginAt = map[string]uint64{"leaving the queue": 9400, "hooks apart": 1450}

// everyDefenceIsNeeded switches off one defence after the other, and wants a violation within so many seeds. Then it
// wants each invariant broken. It prints the tables of docs/safety.md.
func everyDefenceIsNeeded(t *testing.T, seeds int) {
	without := map[string]string{} // by invariant: a defence that was off when it broke
	try := func(name string, sought func(failure) bool) summary {
		s := sweep(t, max(1, beginAt[name]), seeds, name, sought)
		for _, f := range s.failures {
			for _, v := range f.violations {
				if without[v.invariant] == "" {
					without[v.invariant] = name
				}
			}
		}
		return s
	}
	fmt.Println("| off | seeds until the first violation | what broke |\n| --- | ---: | --- |")
	for _, name := range slices.Sorted(maps.Keys(switches())) {
		if *simulateOff != "" && name != *simulateOff {
			continue
		}
		s := try(name, func(failure) bool { return true })
		if len(s.failures) == 0 {
			fmt.Printf("| %s | more than %d | |\n", name, s.seeds)
			t.Errorf("%s: off, and nothing broke in %d seeds", name, s.seeds)
			continue
		}
		fmt.Printf("| %s | %d | %s |\n", name, s.seeds, s.failures[0].violations[0].invariant)
	}
	fmt.Println("\n| invariant | broke, among others, without |\n| --- | --- |")
	for _, invariant := range slices.Sorted(slices.Values(invariants)) {
		if *simulateOff != "" && breaks[invariant] != *simulateOff {
			continue
		}
		broken := func(v violation) bool { return v.invariant == invariant }
		if without[invariant] == "" && breaks[invariant] != "" {
			try(breaks[invariant], func(f failure) bool { return slices.ContainsFunc(f.violations, broken) })
		}
		fmt.Printf("| %s | %s |\n", invariant, without[invariant])
		if without[invariant] == "" {
			t.Errorf("%q was not broken by any defence that was off (tried: %q)", invariant, breaks[invariant])
		}
	}
}

func switches() map[string]bool {
	all := map[string]bool{suspendAware: true}
	for name := range redlock.Switches {
		all[name] = true
	}
	return all
}
