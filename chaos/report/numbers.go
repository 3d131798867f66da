package report

import (
	"fmt"
	"strconv"

	"github.com/quorumlock/redlock/chaos/check"
)

// A phase is a row of the table of phases.
type phase struct {
	Name string
	check.Counts
	check.Latency
}

// phases leaves those out in which nothing can have been, because there was no fault.
func phases(r *check.Result) []phase {
	all := []phase{
		{"before the faults", r.Phases.Before, r.Latency.Before},
		{"during", r.Phases.During, r.Latency.During},
		{"after", r.Phases.After, r.Latency.After},
	}
	if len(r.Faults) == 0 {
		all = all[:1]
		all[0].Name = "all of it: there was no fault"
	}
	return all
}

// A cell is a number. It is bad if there should be none.
type cell struct {
	Text string
	Bad  bool
	Zero bool
}

// A number is a row of the table of numbers: the run's, and beside it that of each other subject.
type number struct {
	What, Why string
	Cells     []cell
}

// A measure is one number of any result.
type measure struct {
	what, why string
	of        func(*check.Result) cell
}

// bad makes a measure of what must be zero.
func bad(what, why string, of func(*check.Result) int) measure {
	return measure{what, why, func(r *check.Result) cell {
		n := of(r)
		return cell{Text: strconv.Itoa(n), Bad: n > 0, Zero: n == 0}
	}}
}

// told makes a measure of what is neither good nor bad.
func told(what, why string, of func(*check.Result) string) measure {
	return measure{what, why, func(r *check.Result) cell { return cell{Text: of(r)} }}
}

var measures = []measure{
	{"verdict", "", func(r *check.Result) cell { return cell{Text: string(r.Verdict), Bad: r.Verdict != check.Safe} }},
	bad("violations", "of any kind", func(r *check.Result) int { return r.ViolationsFound }),
	bad("overlaps", "two believed that they held the lock", func(r *check.Result) int { return r.Overlaps }),
	told("overlap", "in all; the longest", func(r *check.Result) string {
		return lasting(nanos(r.OverlapTime)) + "; " + lasting(nanos(r.OverlapLongest))
	}),
	bad("late losses", "another owned it while the holder believed", func(r *check.Result) int { return r.LateLosses }),
	bad("fences given twice", "0 too for a lock without fences", func(r *check.Result) int { return r.FenceDuplicates }),
	bad("fences that went back", "the same", func(r *check.Result) int { return r.FenceInversions }),
	bad("lost updates, fenced", "behind the fence there is to be none", func(r *check.Result) int { return r.FencedLostUpdates }),
	told("lost updates, unfenced", "bad only where beliefs overlap", func(r *check.Result) string {
		return strconv.Itoa(r.LostUpdates - r.FencedLostUpdates)
	}),
	bad("stale writes accepted, fenced", "behind the fence there is to be none", func(r *check.Result) int {
		return r.FencedStaleAccepted
	}),
	told("stale writes accepted, unfenced", "no lock can prevent all", func(r *check.Result) string {
		return strconv.Itoa(r.StaleWritesAccepted - r.FencedStaleAccepted)
	}),
	told("stale writes refused", "the fence at work", func(r *check.Result) string { return strconv.Itoa(r.StaleWritesRefused) }),
	bad("valid writes refused", "by the fence", func(r *check.Result) int { return r.ValidWritesRefused }),
	bad("orphans past the TTL", "keys that kept everybody out", func(r *check.Result) int { return r.OrphansPast }),
	told("orphans", "keys that outlived their owner; the longest", func(r *check.Result) string {
		return fmt.Sprintf("%d; %s", r.Orphans, lasting(nanos(r.OrphanLongest)))
	}),
	told("losses noticed", "the longest time to notice", func(r *check.Result) string {
		return fmt.Sprintf("%d; %s", r.Losses, lasting(nanos(r.LossNoticeLongest)))
	}),
	told("acquired", "", func(r *check.Result) string { return strconv.Itoa(r.Acquired) }),
	told("refused", "", func(r *check.Result) string { return strconv.Itoa(r.Refused) }),
	told("errors", "", func(r *check.Result) string { return strconv.Itoa(r.Errors) }),
	told("success", "of what was answered", func(r *check.Result) string { return rate(r.Acquired, r.Refused, r.Errors) }),
	told("first acquire after a fault", "the longest wait for one", func(r *check.Result) string {
		if len(r.Faults) == 0 {
			return "no fault"
		}
		return maybe(r.FirstAcquireAfterFault, "after one of them never")
	}),
	told("p50 during the faults", "", func(r *check.Result) string { return lasting(1000 * r.Latency.During.P50) }),
	told("p99 during the faults", "", func(r *check.Result) string { return lasting(1000 * r.Latency.During.P99) }),
	told("length", "of the run asked for", func(r *check.Result) string { return fmt.Sprintf("%v s", r.Seconds) }),
}

func numbers(r *Run) []number {
	table := make([]number, len(measures))
	for i, m := range measures {
		n := number{What: m.what, Why: m.why, Cells: []cell{m.of(&r.Result)}}
		for j := range r.Compare {
			n.Cells = append(n.Cells, m.of(&r.Compare[j]))
		}
		table[i] = n
	}
	return table
}

// confirms says what a second checker had to say.
func confirms(c *check.Confirmation) string {
	if c.Agreed+c.TooLong+c.Expired == 0 {
		return ""
	}
	return fmt.Sprintf("porcupine, a checker by others, agreed on %s; %d had parts too long for it and %d took it too much time.",
		historyCount(c.Agreed), c.TooLong, c.Expired)
}

func historyCount(n int) string {
	if n == 1 {
		return "1 history"
	}
	return strconv.Itoa(n) + " histories"
}
