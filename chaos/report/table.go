package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/quorumlock/redlock/chaos/check"
)

const (
	red   = "\x1b[1;31m"
	green = "\x1b[32m"
	faint = "\x1b[2m"
	reset = "\x1b[0m"
)

// Table writes one row per run, below it the rows of the subjects to compare with, and then every listed violation.
// Without colour it writes no escape sequences.
func Table(w io.Writer, runs []Run, colour bool) error {
	if len(runs) == 0 {
		_, err := io.WriteString(w, "no runs\n")
		return err
	}
	var out bytes.Buffer
	rows(&out, runs, colour)
	staleBesideSafe(&out, runs)
	for i := range runs {
		complaints(&out, &runs[i], colour)
	}
	_, err := w.Write(out.Bytes())
	return err
}

var columns = []string{
	"SCENARIO", "SUBJECT", "VERDICT", "ACQUIRED", "REFUSED", "ERRORS", "OVERLAPS", "LOST UPD", "STALE WRITES", "TOKENS BAD",
	"LATE LOSS", "ORPHANS", "P99",
}

func rows(out *bytes.Buffer, runs []Run, colour bool) {
	var plainRows bytes.Buffer
	tab := tabwriter.NewWriter(&plainRows, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, strings.Join(columns, "\t"))
	paint := []string{faint}
	for i := range runs {
		r := &runs[i]
		paint = append(paint, row(tab, plain(r.Result.Scenario), &r.Result))
		for j := range r.Compare {
			row(tab, "  compared with", &r.Compare[j])
			paint = append(paint, faint)
		}
	}
	tab.Flush() // to a buffer, which does not fail
	for i, line := range strings.Split(strings.TrimSuffix(plainRows.String(), "\n"), "\n") {
		line = strings.TrimRight(line, " ")
		if colour { // after alignment, because a tabwriter counts escape sequences as text
			line = paint[i] + line + reset
		}
		out.WriteString(line + "\n")
	}
}

// staleBesideSafe says what the numbers mean that may be above 0 though nothing was violated.
func staleBesideSafe(out *bytes.Buffer, runs []Run) {
	for i := range runs {
		if r := &runs[i].Result; r.Verdict != check.Unsafe && r.LostUpdates+r.StaleWritesAccepted > 0 {
			out.WriteString("LOST UPD, STALE WRITES without a violation: a client was stopped between its look at its lease and its write. " +
				"No lock can prevent that; a fencing token can.\n")
			return
		}
	}
}

// row writes one result, and returns the colour of its line.
func row(tab io.Writer, name string, r *check.Result) string {
	verdict := string(r.Verdict)
	if len(r.LeftOut) > 0 {
		verdict += "*" // see below
	}
	fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", name, plain(r.Subject), verdict, r.Acquired,
		r.Refused, r.Errors, r.Overlaps, r.LostUpdates, r.StaleWritesAccepted, r.FenceDuplicates+r.FenceInversions, r.LateLosses,
		r.OrphansPast, lasting(1000*max(r.Latency.Before.P99, r.Latency.During.P99, r.Latency.After.P99)))
	if r.Verdict == check.Safe {
		return green
	}
	return red
}

// complaints writes what was wrong with a run, and how to repeat it.
func complaints(out *bytes.Buffer, r *Run, colour bool) {
	res := &r.Result
	if len(res.Violations)+len(r.Unmet)+len(r.Panics)+len(res.LeftOut) == 0 && r.Error == "" {
		return
	}
	on, off := "", ""
	if colour {
		on, off = red, reset
	}
	fmt.Fprintf(out, "\n%s, %s, seed %d: %s\n", plain(res.Scenario), plain(res.Subject), res.Seed,
		count(res.ViolationsFound, "violation"))
	for i, v := range res.Violations {
		fmt.Fprintf(out, "%s%4d. %s  %s%s", on, i+1, seconds(int64(v.At)), words(v.Kind), off)
		if v.For > 0 {
			fmt.Fprintf(out, " for %s", lasting(int64(v.For)))
		}
		fmt.Fprintf(out, "  clients %s  nodes %s\n      cause: %s\n      %s\n", clientList(v.Clients), nodeList(v.Nodes), plain(v.Cause.Text), plain(v.Text))
	}
	if more := res.ViolationsFound - len(res.Violations); more > 0 {
		fmt.Fprintf(out, "      and %d more, which are counted but not listed\n", more)
	}
	for _, l := range res.LeftOut {
		fmt.Fprintf(out, "%s* NOT CHECKED:%s %s\n", on, off, plain(l.String()))
	}
	for _, text := range r.Unmet {
		fmt.Fprintf(out, "%sNOT AS EXPECTED:%s %s\n", on, off, plain(text))
	}
	for _, text := range r.Panics {
		what, stack := panicLines(text)
		fmt.Fprintf(out, "%sPANIC:%s %s\n", on, off, what)
		for _, line := range stack {
			fmt.Fprintf(out, "      %s\n", line)
		}
	}
	if r.Error != "" {
		fmt.Fprintf(out, "%sABORTED:%s %s\n", on, off, plain(r.Error))
	}
	if res.Replay != "" {
		fmt.Fprintf(out, "repeat: %s\n", plain(res.Replay))
	}
}
