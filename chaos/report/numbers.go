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

// phases leaves out the phases during and after the faults if there was no fault.
func phases(r *check.Result) []phase {
	all := []phase{
		{"before the faults", r.Phases.Before, r.Latency.Before},
		{"during", r.Phases.During, r.Latency.During},
		{"after", r.Phases.After, r.Latency.After},
	}
	if len(r.Faults) == 0 {
		all = all[:1]
		all[0].Name = "the whole run, without a fault"
	}
	return all
}

// A cell is a number. Bad means that it should be zero and is not.
type cell struct {
	Text string
	Bad  bool
	Zero bool
}

// A number is a row of the table of numbers: one cell for the run, and one for each other subject.
type number struct {
	What, Why string
	Cells     []cell
}

// A measure computes one number of a result.
type measure struct {
	what, why string
	of        func(*check.Result) cell
}

// bad returns a measure that must be zero.
func bad(what, why string, of func(*check.Result) int) measure {
	return measure{what, why, func(r *check.Result) cell {
		n := of(r)
		return cell{Text: strconv.Itoa(n), Bad: n > 0, Zero: n == 0}
	}}
}

// info returns a measure that is neither good nor bad.
func info(what, why string, of func(*check.Result) string) measure {
	return measure{what, why, func(r *check.Result) cell { return cell{Text: of(r)} }}
}

var measures = []measure{
	{"verdict", "", func(r *check.Result) cell { return cell{Text: string(r.Verdict), Bad: r.Verdict != check.Safe} }},
	bad("violations", "of any kind", func(r *check.Result) int { return r.ViolationsFound }),
	bad("overlaps", "they believed that they held what one of them could not", func(r *check.Result) int { return r.Overlaps }),
	info("overlap", "total; longest", func(r *check.Result) string {
		return lasting(nanos(r.OverlapTime)) + "; " + lasting(nanos(r.OverlapLongest))
	}),
	bad("overtaken", "out of the order of arrival, if the lock has one", func(r *check.Result) int { return r.Overtakings }),
	bad("late losses", "another client owned the lock while the holder believed", func(r *check.Result) int { return r.LateLosses }),
	bad("duplicate fencing tokens", "also 0 if the lock has none", func(r *check.Result) int { return r.FenceDuplicates }),
	bad("fencing tokens out of order", "also 0 if the lock has none", func(r *check.Result) int { return r.FenceInversions }),
	bad("lost updates, fenced", "fencing tokens prevent all", func(r *check.Result) int { return r.FencedLostUpdates }),
	info("lost updates, unfenced", "bad only if beliefs overlap", func(r *check.Result) string {
		return strconv.Itoa(r.LostUpdates - r.FencedLostUpdates)
	}),
	bad("stale writes accepted, fenced", "fencing tokens prevent all", func(r *check.Result) int {
		return r.FencedStaleAccepted
	}),
	info("stale writes accepted, unfenced", "no lock can prevent all", func(r *check.Result) string {
		return strconv.Itoa(r.StaleWritesAccepted - r.FencedStaleAccepted)
	}),
	info("stale writes refused", "fencing tokens prevented them", func(r *check.Result) string { return strconv.Itoa(r.StaleWritesRefused) }),
	bad("valid writes refused", "by the fenced resource", func(r *check.Result) int { return r.ValidWritesRefused }),
	bad("orphans past the TTL", "keys that blocked the lock", func(r *check.Result) int { return r.OrphansPast }),
	info("orphans", "keys that outlived their owner; longest", func(r *check.Result) string {
		return fmt.Sprintf("%d; %s", r.Orphans, lasting(nanos(r.OrphanLongest)))
	}),
	info("losses noticed", "longest time to notice", func(r *check.Result) string {
		return fmt.Sprintf("%d; %s", r.Losses, lasting(nanos(r.LossNoticeLongest)))
	}),
	info("acquired", "", func(r *check.Result) string { return strconv.Itoa(r.Acquired) }),
	info("refused", "", func(r *check.Result) string { return strconv.Itoa(r.Refused) }),
	info("errors", "", func(r *check.Result) string { return strconv.Itoa(r.Errors) }),
	info("success", "of all answers", func(r *check.Result) string { return rate(r.Acquired, r.Refused, r.Errors) }),
	info("first acquire after a fault", "longest wait", func(r *check.Result) string {
		if len(r.Faults) == 0 {
			return "no fault"
		}
		return maybe(r.FirstAcquireAfterFault, "never after one of them")
	}),
	info("p50 during the faults", "", func(r *check.Result) string { return lasting(1000 * r.Latency.During.P50) }),
	info("p99 during the faults", "", func(r *check.Result) string { return lasting(1000 * r.Latency.During.P99) }),
	info("length", "as requested", func(r *check.Result) string { return fmt.Sprintf("%v s", r.Seconds) }),
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

// confirms describes the second opinion.
func confirms(c *check.Confirmation) string {
	if c.Agreed+c.TooLong+c.Expired == 0 {
		return ""
	}
	return fmt.Sprintf("Second opinion by porcupine, an independent checker: it agrees on %s; %d had parts that were too long, and %d took too much time.",
		historyCount(c.Agreed), c.TooLong, c.Expired)
}

func historyCount(n int) string {
	if n == 1 {
		return "1 history"
	}
	return strconv.Itoa(n) + " histories"
}
