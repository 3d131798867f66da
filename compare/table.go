package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/quorumlock/redlock/compare/internal/measure"
	"github.com/quorumlock/redlock/compare/internal/stats"
	"github.com/quorumlock/redlock/compare/internal/subject"
)

// titles are the titles of the columns.
var titles = map[measure.Metric]string{
	measure.Rate: "cycles/s", measure.CycleP50: "p50", measure.CycleP99: "p99", measure.CycleMax: "max",
	measure.WaitP50: "wait p50", measure.WaitP99: "wait p99", measure.WaitMax: "wait max",
	measure.Allocs: "allocs", measure.CPU: "client CPU", measure.Failures: "gave up", measure.Leftovers: "keys left",
	measure.RTT: "round trip", measure.Handover: "from its return to holding", measure.HandoverRTT: "in round trips",
	measure.Full: "from release to holding", measure.FullRTT: "in round trips",
	measure.LeasesTaken: "leases", measure.Acquiring: "acquired in", measure.SecondsKept: "kept for", measure.Lost: "lost",
	measure.LeaseBytes: "heap bytes a lease", measure.Goroutines: "goroutines", measure.LeaseCPU: "CPU while kept, % of a core",
	measure.TimeToUnlock: "released in", measure.ClientBytes: "heap bytes", measure.ClientConns: "connections",
}

func title(m measure.Metric) string { return titles[m] }

// show formats a value with its unit and three digits.
func show(m measure.Metric, v float64) string {
	switch {
	case strings.HasSuffix(string(m), "_us"):
		return showMicros(v)
	case strings.HasSuffix(string(m), "_s") && m != measure.Rate:
		return showMicros(v * 1e6)
	case m == measure.Failures || m == measure.Leftovers || m == measure.Lost:
		return fmt.Sprintf("%.0f", v)
	default:
		return digits(v)
	}
}

func showMicros(v float64) string {
	switch {
	case v < 1e3:
		return digits(v) + " µs"
	case v < 1e6:
		return digits(v/1e3) + " ms"
	default:
		return digits(v/1e6) + " s"
	}
}

// digits formats a value with three digits, or more before the decimal point.
func digits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.995:
		return fmt.Sprintf("%.3f", v)
	case v < 9.95:
		return fmt.Sprintf("%.2f", v)
	case v < 99.5:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

// spread formats the median, and the minimum and maximum if there was more than one round.
func spread(m measure.Metric, s stats.Summary) string {
	switch {
	case s.Rounds == 0:
		return "–"
	case s.Rounds == 1 || s.Min == s.Max:
		return show(m, s.Median)
	default:
		return fmt.Sprintf("%s (%s–%s)", show(m, s.Median), show(m, s.Min), show(m, s.Max))
	}
}

func showRatio(r *stats.Summary) string {
	if r == nil {
		return "–"
	}
	if r.Rounds == 1 {
		return "×" + digits(r.Median)
	}
	return fmt.Sprintf("×%s (%s–%s)", digits(r.Median), digits(r.Min), digits(r.Max))
}

// writeText writes one table per workload.
func (r *report) writeText(w io.Writer) error {
	fmt.Fprintf(w, "%s\n", r.circumstances())
	last := ""
	for _, res := range r.Results {
		if res.Workload == last {
			continue
		}
		last = res.Workload
		fmt.Fprintf(w, "\n%s\n", last)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		columns := res.workload.columns
		for _, m := range columns {
			fmt.Fprintf(tw, "\t%s", title(m))
		}
		fmt.Fprintf(tw, "\tto %s\n", subject.Baseline)
		for _, res := range r.of(last) {
			fmt.Fprint(tw, "  ", res.Subject)
			for _, m := range columns {
				fmt.Fprintf(tw, "\t%s", spread(m, res.Summary[m]))
			}
			fmt.Fprintf(tw, "\t%s\n", showRatio(res.Ratio))
			for _, err := range res.Errors {
				fmt.Fprintf(tw, "    failed: %s\n", strings.ReplaceAll(err, "\n", " "))
			}
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}
