package main

import (
	"time"

	"github.com/quorumlock/redlock/compare/internal/measure"
	"github.com/quorumlock/redlock/compare/internal/subject"
)

// A workload is one kind of load that the subjects are measured under.
type workload struct {
	name      string
	transport measure.Transport
	handover  bool // otherwise load is used
	load      measure.Load
	subjects  []string // nil: all that support it
	columns   []measure.Metric
	headline  []headline // its columns in the Markdown tables
}

// A headline is a column of the Markdown table of that number.
type headline struct {
	table  int
	title  string
	metric measure.Metric
}

// main is the metric for the ratio to the baseline.
func (w workload) main() measure.Metric {
	if w.handover {
		return measure.Full
	}
	return measure.Rate
}

func (w workload) takes(s subject.Subject) bool {
	if w.handover && s.Bare || !w.handover && w.load.Bearable(s) != nil {
		return false
	}
	if w.subjects == nil {
		return !s.Special
	}
	for _, name := range w.subjects {
		if name == s.Name {
			return true
		}
	}
	return false
}

// The columns of the text tables.
var (
	cycleColumns = []measure.Metric{measure.RTT, measure.Rate, measure.CycleP50, measure.CycleP99, measure.CycleMax,
		measure.Allocs, measure.CPU, measure.Failures, measure.Leftovers}
	waitColumns = []measure.Metric{measure.Rate, measure.WaitP50, measure.WaitP99, measure.WaitMax,
		measure.Failures, measure.Leftovers}
	handoverColumns = []measure.Metric{measure.RTT, measure.Full, measure.FullRTT, measure.Handover, measure.HandoverRTT}
)

// some are the subjects of workloads in which the variants of a library differ little.
var some = []string{"redlock", "redsync redigo", "redsync redigo FailFast", "redsync rueidis",
	"rueidislock (one server)", "bsm/redislock (one server)", "limit"}

// ofEachKind are a lock of each kind, and peers.
var ofEachKind = []string{"redlock", "redsync redigo", "redlock Fair", "redlock Semaphore of 4", "semaphore recipe of 4 (one server)"}

const (
	uncontended = iota
	contended
	kinds
	summary // the small one
)

func distinct(name string, t measure.Transport, goroutines int, fault measure.Fault) workload {
	return workload{name: name, transport: t, columns: cycleColumns,
		load: measure.Load{Goroutines: goroutines, Keys: measure.Distinct, Fault: fault}}
}

func contenders(name string, clients int) workload {
	return workload{name: name, transport: measure.TCP, columns: waitColumns, subjects: some,
		load: measure.Load{Goroutines: clients, Clients: clients, Keys: measure.Hot, Hold: time.Millisecond}}
}

// farContenders are clients of servers on another continent.
func farContenders(name string, clients int) workload {
	return workload{name: name, transport: measure.Links, columns: append([]measure.Metric{measure.RTT}, waitColumns...),
		subjects: []string{"redlock", "redsync redigo"},
		load:     measure.Load{Goroutines: clients, Clients: clients, Keys: measure.Hot, Fault: measure.AllFar, Least: 20 * time.Second}}
}

func (w workload) headed(h ...headline) workload {
	w.headline = h
	return w
}

func (w workload) by(subjects []string) workload {
	w.subjects = subjects
	return w
}

// fullPlan takes ten minutes with three rounds of a second each.
func fullPlan() []workload {
	zipf := workload{name: "256 goroutines, Zipf mix of names", transport: measure.TCP, columns: waitColumns, subjects: some,
		load: measure.Load{Goroutines: 256, Keys: measure.Zipf}}
	hot := workload{name: "16 goroutines of one client, one name", transport: measure.TCP, columns: waitColumns, subjects: some,
		load: measure.Load{Goroutines: 16, Keys: measure.Hot}}
	return []workload{
		distinct("1 goroutine", measure.TCP, 1, measure.AllWell).headed(
			headline{uncontended, "1 goroutine, p50", measure.CycleP50},
			headline{summary, "1 goroutine: p50", measure.CycleP50}),
		distinct("16 goroutines", measure.TCP, 16, measure.AllWell).headed(
			headline{uncontended, "16 goroutines, cycles/s", measure.Rate},
			headline{uncontended, "p99", measure.CycleP99},
			headline{uncontended, "allocations a cycle", measure.Allocs},
			headline{uncontended, "client CPU a cycle", measure.CPU}),
		distinct("256 goroutines", measure.TCP, 256, measure.AllWell).headed(
			headline{uncontended, "256 goroutines, cycles/s", measure.Rate},
			headline{summary, "256 goroutines: cycles/s", measure.Rate}),
		distinct("4096 goroutines", measure.TCP, 4096, measure.AllWell).headed(
			headline{uncontended, "4096 goroutines, cycles/s", measure.Rate}),
		distinct("1 goroutine, unix sockets", measure.Unix, 1, measure.AllWell).by(some),
		distinct("256 goroutines, unix sockets", measure.Unix, 256, measure.AllWell).by(some),
		distinct("16 goroutines, one of five stopped", measure.TCP, 16, measure.Stopped).headed(
			headline{contended, "one of five stopped: cycles/s", measure.Rate},
			headline{contended, "p99", measure.CycleP99},
			headline{summary, "16 goroutines, one of five servers stopped: p99", measure.CycleP99}),
		distinct("16 goroutines, by way of a proxy", measure.Links, 16, measure.AllWell).by(some),
		distinct("16 goroutines, proxy, one server delayed", measure.Links, 16, measure.OneSlower).by(some),
		distinct("16 goroutines, proxy, all servers delayed", measure.Links, 16, measure.AllSlower).by(some),
		hot,
		zipf,
		contenders("8 clients, one name, held 1 ms", 8).headed(
			headline{contended, "8 clients, 1 ms hold: grants/s", measure.Rate},
			headline{contended, "wait p99", measure.WaitP99},
			headline{contended, "longest", measure.WaitMax},
			headline{summary, "8 clients want one lock: wait p99", measure.WaitP99}),
		contenders("64 clients, one name, held 1 ms", 64).headed(
			headline{contended, "64 clients: grants/s", measure.Rate},
			headline{contended, "wait p99", measure.WaitP99},
			headline{contended, "longest", measure.WaitMax}),
		farContenders("4 clients, one name, round trip 150 ms", 4),
		distinct("16 goroutines, each kind", measure.TCP, 16, measure.AllWell).by(ofEachKind).headed(
			headline{kinds, "16 goroutines, cycles/s", measure.Rate},
			headline{kinds, "p99", measure.CycleP99}),
		distinct("256 goroutines, each kind", measure.TCP, 256, measure.AllWell).by(ofEachKind).headed(
			headline{kinds, "256 goroutines, cycles/s", measure.Rate},
			headline{kinds, "client CPU a cycle", measure.CPU}),
		contenders("8 clients of one name, held 1 ms, each kind", 8).by(ofEachKind).headed(
			headline{kinds, "8 clients, 1 ms hold: grants/s", measure.Rate},
			headline{kinds, "wait p99", measure.WaitP99},
			headline{kinds, "longest", measure.WaitMax}),
		{name: "hand-over between two clients", transport: measure.TCP, handover: true, subjects: some, columns: handoverColumns,
			headline: []headline{{contended, "hand-over", measure.Full}, {summary, "hand-over to a waiter", measure.Full}}},
		// On loopback a round trip is so short that all is in the scheduling of processes; this one counts messages.
		{name: "hand-over, proxy, all servers delayed", transport: measure.Links, handover: true, subjects: some,
			columns: handoverColumns, load: measure.Load{Fault: measure.AllSlower},
			headline: []headline{{contended, "the same with servers farther away, in round trips", measure.FullRTT}}},
	}
}

// quickPlan is a selection that takes a minute and a half.
func quickPlan() (plan []workload) {
	for _, w := range fullPlan() {
		if subjects, ok := quickSubjectsOf[w.name]; ok {
			plan = append(plan, w.by(subjects))
		}
	}
	return plan
}

var (
	few             = []string{"redlock", "redsync redigo", "rueidislock (one server)"}
	quickSubjects   = append([]string{"redlock NoFence", "redsync go-redis"}, some...)
	quickSubjectsOf = map[string][]string{
		"1 goroutine": quickSubjects, "16 goroutines": quickSubjects, "256 goroutines": quickSubjects,
		"16 goroutines, one of five stopped":    some,
		"8 clients, one name, held 1 ms":        some,
		"hand-over between two clients":         few,
		"hand-over, proxy, all servers delayed": few,
	}
)
