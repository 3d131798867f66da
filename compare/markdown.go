package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/quorumlock/redlock/compare/internal/measure"
	"github.com/quorumlock/redlock/compare/internal/stats"
	"github.com/quorumlock/redlock/compare/internal/subject"
	"github.com/quorumlock/redlock/internal/marks"
)

var (
	tablesMarks  = marks.By("compare", "make compare")
	summaryMarks = marks.By("compare summary", "make compare")
)

// circumstances say what the figures are of.
func (r *report) circumstances() string {
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		versions = append(versions, name+" "+r.Versions[name])
	}
	return fmt.Sprintf("Medians of %d rounds of %g s, %s. Five Redis %s servers and the client share the machine: %s. %s.",
		r.Rounds, r.Seconds, r.Date, r.Redis, r.Machine, strings.Join(versions, ", "))
}

// markdown is a table for uncontended locks, one for contended ones and one for the kinds of locks: medians, and half of
// what lies between the least and the most, in percent.
func (r *report) markdown() string {
	var b strings.Builder
	for _, table := range []int{uncontended, contended} {
		r.writeTable(&b, table, headlined)
	}
	r.writeTable(&b, kinds, ofEachKind)
	fmt.Fprintf(&b, "%s ±: half of the difference between the largest and the smallest value, as a share of the median. A cycle is an acquire and a release. "+
		"A call that has not come back counts as old as it was at the end. "+
		"*limit* is no lock: it only sends this library's commands and counts the replies.\n", r.circumstances())
	return b.String()
}

// shortMarkdown is a small table for readers who want no more than an impression.
func (r *report) shortMarkdown() string {
	var b strings.Builder
	r.writeTable(&b, summary, summarized)
	fmt.Fprintf(&b, "Medians of %d rounds of %g s, %s. Five Redis %s servers and the client share the machine: %s. "+
		"±: half of the difference between the largest and the smallest value, as a share of the median.\n", r.Rounds, r.Seconds, r.Date, r.Redis, r.Machine)
	return b.String()
}

// A column is one headline and its workload.
type column struct {
	headline
	workload string
}

func (r *report) columns(table int) (columns []column) {
	for _, res := range r.Results {
		for _, h := range res.workload.headline {
			if c := (column{h, res.Workload}); h.table == table && !slices.Contains(columns, c) {
				columns = append(columns, c)
			}
		}
	}
	return columns
}

func (r *report) writeTable(b *strings.Builder, table int, subjects []string) {
	columns := r.columns(table)
	if len(columns) == 0 {
		return
	}
	b.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.title)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(columns)) + "\n")
	for _, s := range subject.All() {
		if !slices.Contains(subjects, s.Name) {
			continue
		}
		cells := ""
		some := false
		for _, c := range columns {
			text := "–"
			if res := r.lookup(c.workload, s.Name); res != nil {
				text = cell(c.metric, res)
			}
			some = some || text != "–"
			cells += " " + text + " |"
		}
		if some {
			fmt.Fprintf(b, "| %s |%s\n", s.Name, cells)
		}
	}
	b.WriteString("\n")
}

func (r *report) lookup(workload, subject string) *result {
	for _, res := range r.Results {
		if res.Workload == workload && res.Subject == subject {
			return res
		}
	}
	return nil
}

// headlined are the subjects of the Markdown tables: one of each library, by the pool that serves it best.
var headlined = []string{"redlock", "redlock NoFence", "redsync redigo", "redsync rueidis", "rueidislock (one server)",
	"bsm/redislock (one server)", "limit"}

// summarized are those of the small table: this library, a lock like it, and the fastest on one server.
var summarized = []string{"redlock", "redsync redigo", "rueidislock (one server)"}

// cell is the median, its spread, and how it compares to the baseline where that is what the workload is
// about.
func cell(m measure.Metric, res *result) string {
	s := res.Summary[m]
	if s.Rounds == 0 {
		return "–"
	}
	text := show(m, s.Median) + plusMinus(s)
	if m == res.workload.main() && res.Ratio != nil && res.Subject != subject.Baseline {
		text += " **×" + digits(res.Ratio.Median) + "**"
	}
	return text
}

func plusMinus(s stats.Summary) string {
	if s.Rounds < 2 || s.Median < 0.001 {
		return ""
	}
	percent := 100 * (s.Max - s.Min) / 2 / s.Median
	if percent < 0.5 {
		return ""
	}
	return fmt.Sprintf(" ±%.0f %%", percent)
}

// writeMarkdown puts the tables between the marks of the file. Without a file, it makes one.
func writeMarkdown(path string, m marks.Marks, tables string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(path, []byte(m.Begin+"\n"+m.End+"\n"), 0o644); err != nil {
			return err
		}
	}
	return m.Write(path, tables)
}
