package scoreboard

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/quorumlock/redlock/chaos/check"
)

// text is what the table says of a cell: how many runs were unsafe, with which kind of violation, and how long the longest
// overlap was; how many were unsure, or did not run.
func (c *Cell) text(seeds int) string {
	var unsafe, unsure, failed int
	longest, star := 0.0, ""
	kind := len(gravity)
	for _, r := range c.Runs {
		switch r.Verdict {
		case check.Unsafe:
			unsafe++
			longest = max(longest, r.Longest)
			for _, k := range r.Violations {
				if i := slices.Index(gravity, k); i >= 0 {
					kind = min(kind, i)
				}
			}
		case check.Unsure:
			unsure++
		case "":
			failed++
		default:
			if len(r.NotChecked) > 0 {
				star = "*"
			}
		}
	}
	var parts []string
	say := func(n int, what, more string) {
		switch {
		case n == seeds && what == "not run":
			parts = append(parts, what)
		case n > 0:
			parts = append(parts, fmt.Sprintf("%s %d/%d%s", what, n, seeds, more))
		}
	}
	named := ""
	if kind < len(gravity) {
		named = ": " + words(gravity[kind])
		if gravity[kind] == check.Overlap && longest > 0 {
			named += fmt.Sprintf(" (%s)", millis(longest))
		}
	}
	say(unsafe, "unsafe", named)
	say(unsure, "unsure", "")
	say(failed, "not run", "")
	left := seeds - len(c.Runs)
	switch {
	case left == seeds:
		return "–"
	case len(parts) == 0:
		parts = append(parts, "safe"+star)
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("%d to come", left))
	}
	return strings.Join(parts, ", ")
}

// words returns the kind of a violation for people.
func words(kind check.ViolationKind) string { return strings.ReplaceAll(string(kind), "_", " ") }

// millis has about two digits below 10 ms.
func millis(ms float64) string {
	if ms >= 9.95 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2g ms", ms)
}

// title is the head of a column.
func (c Col) title() string {
	if c.OneServer {
		return c.Name + " (one server)"
	}
	return c.Name
}

// Text writes the table for a terminal.
func (b *Board) Text(w io.Writer) error {
	var out bytes.Buffer
	tab := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprint(tab, "SCENARIO\tWHAT HAPPENS")
	for _, s := range b.Subjects {
		fmt.Fprintf(tab, "\t%s", plain(s.title()))
	}
	fmt.Fprintln(tab)
	for _, row := range b.Scenarios {
		fmt.Fprintf(tab, "%s\t%s", row.Name, row.Short)
		for _, s := range b.Subjects {
			fmt.Fprintf(tab, "\t%s", b.cell(row.Name, s.Name).Text)
		}
		fmt.Fprintln(tab)
	}
	tab.Flush() // to a buffer, which does not fail
	fmt.Fprintln(&out)
	for _, line := range b.notes() {
		fmt.Fprintln(&out, line)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// Markdown writes the table as Markdown, and the command for each run that was not safe.
func (b *Board) Markdown(w io.Writer) error {
	var out bytes.Buffer
	fmt.Fprint(&out, "| scenario | what happens |")
	for _, s := range b.Subjects {
		fmt.Fprintf(&out, " `%s`%s |", cell(s.Name), strings.TrimPrefix(s.title(), s.Name))
	}
	fmt.Fprint(&out, "\n| --- | --- |"+strings.Repeat(" --- |", len(b.Subjects))+"\n")
	for _, row := range b.Scenarios {
		fmt.Fprintf(&out, "| `%s` | %s |", row.Name, row.Short)
		for _, s := range b.Subjects {
			text := b.cell(row.Name, s.Name).Text
			if strings.HasPrefix(text, "un") {
				first, rest, _ := strings.Cut(text, " ")
				text = "**" + first + "** " + rest
			}
			fmt.Fprintf(&out, " %s |", cell(text))
		}
		fmt.Fprintln(&out)
	}
	for _, line := range b.notes() {
		fmt.Fprintf(&out, "\n%s\n", strings.ReplaceAll(line, "*", `\*`))
	}
	if replays := b.replays(); len(replays) > 0 {
		fmt.Fprintf(&out, "\nTo repeat a run that was not safe, the first one of each cell:\n\n```text\n%s```\n", strings.Join(replays, ""))
	}
	_, err := w.Write(out.Bytes())
	return err
}

// replays are the commands that repeat the first run of each cell that was not safe.
func (b *Board) replays() (lines []string) {
	for _, c := range b.Cells {
		for _, verdict := range []check.Verdict{check.Unsafe, check.Unsure} {
			i := slices.IndexFunc(c.Runs, func(r Run) bool { return r.Verdict == verdict })
			if i >= 0 {
				lines = append(lines, plain(c.Runs[i].Replay)+"\n")
				break
			}
		}
	}
	return lines
}

// notes say what the table does not: how it was made, what was not checked, and what did not run.
func (b *Board) notes() (lines []string) {
	seeds := fmt.Sprintf("%d seeds, from %d", b.Seeds, b.Seed)
	if b.Seeds == 1 {
		seeds = fmt.Sprintf("seed %d", b.Seed)
	}
	lines = append(lines, fmt.Sprintf("%s, %d %s nodes, %d clients, TTL %d ms, %v s for each run unless its script takes longer.",
		seeds, b.Nodes, b.Fleet, b.Clients, b.TTL, b.Seconds))
	if slices.ContainsFunc(b.Subjects, func(c Col) bool { return c.OneServer }) {
		lines = append(lines, "one server: the lock is on the first node only, so it is lost where that node forgets it.")
	}
	if !b.Whole {
		lines = append(lines, "NOT WHOLE: it was broken off, or runs failed. A cell says how many of its runs are to come or did not run.")
	}
	return slices.Concat(lines, b.notChecked(), b.notRun())
}

// notChecked are the reasons for the *: of each check and subject the first. What several have in common is said once.
func (b *Board) notChecked() (lines []string) {
	var order []string
	subjects := map[string][]string{}
	for _, s := range b.Subjects {
		said := map[string]bool{} // by check: the numbers in a reason differ from run to run
		for _, c := range b.Cells {
			if c.Subject != s.Name {
				continue
			}
			for _, r := range c.Runs {
				for _, l := range r.NotChecked {
					if r.Verdict != check.Safe || said[l.Check] {
						continue
					}
					said[l.Check] = true
					if subjects[l.String()] == nil {
						order = append(order, l.String())
					}
					subjects[l.String()] = append(subjects[l.String()], s.Name)
				}
			}
		}
	}
	for _, reason := range order {
		lines = append(lines, plain(fmt.Sprintf("* not checked of %s: %s", strings.Join(subjects[reason], ", "), reason)))
	}
	return lines
}

// notRun are the reasons for runs that are unsure, or that are none. What several subjects have in common is said once.
func (b *Board) notRun() (lines []string) {
	type reason struct{ what, scenario, why string }
	var order []reason
	subjects := map[reason][]string{}
	for _, c := range b.Cells {
		for _, r := range c.Runs {
			of := reason{string(r.Verdict), c.Scenario, r.why(c.Scenario)}
			switch {
			case r.Verdict == "":
				of.what = "not run"
			case r.Verdict != check.Unsure:
				continue
			}
			if subjects[of] == nil {
				order = append(order, of)
			}
			if !slices.Contains(subjects[of], c.Subject) {
				subjects[of] = append(subjects[of], c.Subject)
			}
		}
	}
	for _, of := range order {
		names := plain(strings.Join(subjects[of], ", "))
		if len(subjects[of]) > 1 && len(subjects[of]) == len(b.Subjects) {
			names = "all subjects"
		}
		lines = append(lines, fmt.Sprintf("%s: %s with %s: %s", of.what, of.scenario, names, of.why))
	}
	return lines
}

// why is Why in one line, without what the line says before it.
func (r Run) why(scenario string) string {
	why, _, _ := strings.Cut(r.Why, "\n")
	return plain(strings.TrimPrefix(strings.TrimPrefix(why, "chaos: "), scenario+": "))
}

// plain makes text one line without control characters. It may come from a server or from another library.
func plain(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
}

// cell is plain text that ends no cell of a table.
func cell(text string) string { return strings.ReplaceAll(plain(text), "|", `\|`) }
