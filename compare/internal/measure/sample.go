// Package measure puts a load on one subject and measures it.
package measure

import (
	"runtime"
	"time"

	"github.com/quorumlock/redlock/compare/internal/stats"
)

// A Metric names a quantity and its unit.
type Metric string

const (
	Rate        Metric = "cycles_per_s"    // acquire, hold and release, all clients together
	CycleP50    Metric = "cycle_p50_us"    // from the request of the lock to the end of its release
	CycleP99    Metric = "cycle_p99_us"    //
	CycleMax    Metric = "cycle_max_us"    //
	WaitP50     Metric = "wait_p50_us"     // from the request of the lock to its acquisition
	WaitP99     Metric = "wait_p99_us"     //
	WaitMax     Metric = "wait_max_us"     //
	Allocs      Metric = "allocs"          // per cycle
	AllocBytes  Metric = "alloc_bytes"     // per cycle
	CPU         Metric = "client_cpu_us"   // per cycle, in this process
	Failures    Metric = "failures"        // the library gave up waiting, or could not release
	Leftovers   Metric = "leftover_keys"   // left a second after the end
	RTT         Metric = "rtt_us"          // of a PING
	Handover    Metric = "handover_us"     // from the return of a release to the acquisition by another client
	HandoverRTT Metric = "handover_rtts"   // the same in round trips
	Full        Metric = "release_to_us"   // from the call of the release
	FullRTT     Metric = "release_to_rtts" // the same in round trips

	Acquiring    Metric = "acquire_s"
	LeaseBytes   Metric = "heap_bytes_per_lease"
	Lost         Metric = "lost"
	Goroutines   Metric = "goroutines"
	LeaseCPU     Metric = "renewing_cpu_percent" // of one core, in this process
	ClientBytes  Metric = "heap_bytes"
	ClientConns  Metric = "connections"
	LeasesTaken  Metric = "leases"
	SecondsKept  Metric = "kept_s"
	TimeToUnlock Metric = "release_s"
)

// A Sample is the result of one measurement. What could not be measured is not in it.
type Sample map[Metric]float64

func (s Sample) durations(d stats.Distribution, p50, p99, longest Metric) {
	if d.Count() == 0 {
		return
	}
	s[p50], s[p99], s[longest] = micros(d.Quantile(0.5)), micros(d.Quantile(0.99)), micros(d.Max())
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// usage is what this process has used so far.
type usage struct {
	at             time.Time
	mallocs, bytes uint64
	cpu            time.Duration
}

func usageNow() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{at: time.Now(), mallocs: m.Mallocs, bytes: m.TotalAlloc, cpu: cpuTime()}
}

// heap returns the heap in use after two collections. An object with a cleanup or a finalizer survives one collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
