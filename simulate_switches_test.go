package redlock_test

import (
	"fmt"
	"maps"
	"os"
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

	"the rest of a minimum hold": minHolding,
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
	readersOrWriter, tooMany, tooEarly}

// breaks names, for invariants that seldom break first, a defence without which they break.
var breaks = map[string]string{
	fenceOrder:  "fence comparison",
	lostUpdate:  "fresh token",
	inTheGap:    "a ticket's token compared",
	twoAdopters: "a ticket's token compared",
	leftFree:    "late-grant release",
	neverBack:   "quarantine by the others' clocks",

	readersOrWriter: "an entry for each",
}

// beginAt is where the sweep begins for a defence that few seeds show; the others begin at 1.
var beginAt = map[string]uint64{"hooks apart": 1450}

// shownAt has seeds that showed what a defence is for, and what -search would find again. They run first, and up to a
// hundred times: a seed does not decide everything.
var shownAt = map[string][]uint64{
	"Close awaits calls":                    {262, 405},
	"Close ends the renewing":               {1026, 204, 1642},
	"Durable distrusts the promoted":        {162},
	"a failed adopter gives back":           {70},
	"a giver stops first":                   {4},
	"a key lasts as long as its last entry": {5},
	"a ticket's token compared":             {6, 5},
	"a winner for every try":                {3},
	"agreed configuration":                  {4},
	"all names or none":                     {5, 3},
	"an entry for each":                     {4},
	"an expired lease stays expired":        {4},
	"ballots of the servers":                {1},
	"clean-up after cancel":                 {6},
	"clock band":                            {447, 305},
	"data set named":                        {44},
	"data set vouched for":                  {44},
	"far ballots agreed":                    {3},
	"fence comparison":                      {40, 50, 49, 24},
	"fence persistence":                     {6},
	"final validity check":                  {124},
	"fresh token":                           {3},
	"held told from outage":                 {13},
	"hooks apart":                           {1527},
	"intent of a fair writer":               {18},
	"intent of a writer":                    {1},
	"keys taken in time":                    {4},
	"late-asked nodes released":             {2},
	"late-grant release":                    {6},
	"leaving the queue":                     {3, 6},
	"marker read last":                      {771},
	"one slot on all nodes":                 {6},
	"order of arrival":                      {4},
	"places end":                            {34},
	"places left":                           {3},
	"quarantine":                            {31},
	"quarantine length":                     {14},
	"quarantine by the others' clocks":      {1},
	"suspend-aware clock":                   {15},
	"the rest of a minimum hold":            {47, 50, 33},
	"tickets above a quorum's":              {5},
}

// brokenAt has the same for invariants of breaks.
var brokenAt = map[string][]uint64{fenceOrder: {47, 1293}, leftFree: {15}, inTheGap: {242}, lostUpdate: {6, 14}, neverBack: {9}}

// show runs the known seeds, unless -search says not to, and then so many from the beginning, until one has failed as
// sought.
func show(t *testing.T, name string, known []uint64, seeds int, sought func(failure) bool) (s summary) {
	for _, tries := range []int{len(known), 100} {
		if *simulateAll || len(known) == 0 {
			break
		}
		s = runSeeds(t, func(i int64) uint64 { return known[i%int64(len(known))] }, tries, name, sought)
		if slices.ContainsFunc(s.failures, sought) {
			return s
		}
	}
	return sweep(t, max(1, beginAt[name]), seeds, name, sought)
}

// everyDefenceIsNeeded switches off one defence after the other, and wants a violation within so many seeds. Then it
// wants each invariant broken. With -search, it prints the tables of docs/safety.md. It prints to stderr
// which seeds showed something: those that a search found may be added to shownAt.
func everyDefenceIsNeeded(t *testing.T, seeds int) {
	without := map[string]string{} // by invariant: a defence that was off when it broke
	try := func(name string, known []uint64, sought func(failure) bool) summary {
		s := show(t, name, known, seeds, sought)
		for _, f := range s.failures {
			fmt.Fprintf(os.Stderr, "%s: seed %d: %s\n", name, f.seed, f.violations[0].invariant)
			for _, v := range f.violations {
				if without[v.invariant] == "" {
					without[v.invariant] = name
				}
			}
		}
		return s
	}
	until := "worlds until a seed of shownAt, or the search, showed it"
	if *simulateAll {
		until = "seeds until the first violation"
	}
	fmt.Printf("| off | %s | what broke |\n| --- | ---: | --- |\n", until)
	for _, name := range slices.Sorted(maps.Keys(switches())) {
		if *simulateOff != "" && name != *simulateOff {
			continue
		}
		s := try(name, shownAt[name], func(failure) bool { return true })
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
			try(breaks[invariant], brokenAt[invariant], func(f failure) bool { return slices.ContainsFunc(f.violations, broken) })
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
