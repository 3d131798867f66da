package main

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/quorumlock/redlock/compare/internal/measure"
	"github.com/quorumlock/redlock/compare/internal/stats"
	"github.com/quorumlock/redlock/compare/internal/subject"
)

// A report is all results of a run.
type report struct {
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Redis    string            `json:"redis"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"` // measured in each round
	Versions map[string]string `json:"versions"`
	Results  []*result         `json:"results"`
}

// A result is one subject under one workload.
type result struct {
	Workload string                           `json:"workload"`
	Subject  string                           `json:"subject"`
	Samples  []measure.Sample                 `json:"samples"` // one per round; null if it failed
	Errors   []string                         `json:"errors,omitempty"`
	Summary  map[measure.Metric]stats.Summary `json:"summary"`
	Ratio    *stats.Summary                   `json:"ratio,omitempty"` // how many times better than the baseline
	workload workload
}

// peers are the modules whose versions matter.
var peers = []string{"go-redsync/redsync", "gomodule/redigo", "redis/go-redis", "redis/rueidis", "bsm/redislock"}

func newReport(rounds int, each time.Duration) *report {
	r := &report{
		Date: time.Now().UTC().Format(time.DateOnly), Rounds: rounds, Seconds: each.Seconds(), Versions: map[string]string{},
		Machine: fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			for _, peer := range peers {
				path := strings.TrimPrefix(dep.Path, "github.com/")
				if path == peer || strings.HasPrefix(path, peer+"/v") {
					r.Versions[peer] = dep.Version
				}
			}
		}
	}
	return r
}

// find returns the result. It adds a new one if there is none.
func (r *report) find(w workload, s string) *result {
	for _, res := range r.Results {
		if res.Workload == w.name && res.Subject == s {
			return res
		}
	}
	res := &result{Workload: w.name, Subject: s, workload: w}
	r.Results = append(r.Results, res)
	return res
}

// values returns the values of a metric by round, NaN where there is none.
func (r *result) values(m measure.Metric) []float64 {
	values := make([]float64, len(r.Samples))
	for i, sample := range r.Samples {
		value, ok := sample[m]
		if !ok {
			value = math.NaN()
		}
		values[i] = value
	}
	return values
}

// conclude summarizes the rounds.
func (r *report) conclude() {
	for _, res := range r.Results {
		res.Summary = map[measure.Metric]stats.Summary{}
		for _, sample := range res.Samples {
			for m := range sample {
				res.Summary[m] = stats.Summarize(res.values(m))
			}
		}
	}
	for _, res := range r.Results {
		if res.workload.load.Fault == measure.Stopped {
			continue // the baseline makes no progress, so there is no ratio
		}
		main := res.workload.main()
		for _, base := range r.Results {
			if base.Workload != res.Workload || base.Subject != subject.Baseline {
				continue
			}
			above, below := res.values(main), base.values(main)
			if res.workload.handover { // shorter is better
				above, below = below, above
			}
			if ratio := stats.Summarize(stats.Ratios(above, below)); ratio.Rounds > 0 {
				res.Ratio = &ratio
			}
		}
	}
}

// failed reports whether any measurement failed.
func (r *report) failed() bool {
	for _, res := range r.Results {
		if len(res.Errors) > 0 {
			return true
		}
	}
	return false
}

// of returns the results of one workload, in order.
func (r *report) of(workload string) (results []*result) {
	for _, res := range r.Results {
		if res.Workload == workload {
			results = append(results, res)
		}
	}
	return results
}
