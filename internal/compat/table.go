package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/quorumlock/redlock/internal/marks"
)

// tableMarks are where the table goes.
var tableMarks = marks.By("compat", "make compat")

// A row is what came of one server.
type row struct {
	server    server
	abilities abilities
	suite     tally
	scenarios acts
}

type table struct {
	date  time.Time
	tests int // how many there are
	rows  []*row
}

func (r *row) fine() bool {
	for _, one := range r.scenarios {
		if !one.fine {
			return false
		}
	}
	return len(r.suite.failed) == 0
}

func (t table) markdown() string {
	var b strings.Builder
	b.WriteString("| server | Debian's | tests | " + strings.Join(plays, " | ") + " | notes |\n")
	b.WriteString("| --- " + strings.Repeat("| --- ", 3+len(plays)) + "|\n")
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s %s | %s | %s |", r.server.product(), r.server.version, r.server.suite(), r.suite.cell())
		for _, one := range r.scenarios {
			fmt.Fprintf(&b, " %s |", one.verdict)
		}
		fmt.Fprintf(&b, " %s |\n", strings.Join(r.notes(), "; "))
	}
	fmt.Fprintf(&b, "\nMade on %s: the %d tests of the library, the command and packages `election` and `fence` that use real\n"+
		"servers, and four [chaos scenarios](failover.md#scenarios), on processes. A test that failed was tried once more, alone.\n", t.date.Format(time.DateOnly), t.tests)
	for _, r := range t.rows {
		for _, list := range []struct {
			what  string
			tests []string
		}{{"Failed", r.suite.failed}, {"Left out", r.suite.skipped}, {"Left out in part", r.suite.partly}} {
			if len(list.tests) > 0 {
				fmt.Fprintf(&b, "\n%s on %s %s: `%s`.\n", list.what, r.server.product(), r.server.version, strings.Join(list.tests, "`, `"))
			}
		}
	}
	return b.String()
}

// cell is the tally of a table.
func (t tally) cell() string {
	all := t.passed + len(t.failed) + len(t.skipped)
	text := fmt.Sprintf("%d of %d", t.passed, all)
	for _, count := range []struct {
		what  string
		tests []string
	}{{"failed", t.failed}, {"left out", t.skipped}, {"left out in part", t.partly}, {"only at the second try", t.chance}} {
		if len(count.tests) > 0 {
			text += fmt.Sprintf(", %d %s", len(count.tests), count.what)
		}
	}
	return text
}

// notes are what a user should know. A server that has all is worth no words.
func (r *row) notes() (notes []string) {
	can := r.abilities
	note := func(say bool, text string) {
		if say {
			notes = append(notes, text)
		}
	}
	note(!can.light, "no `ZADD GT`: a free lock is acquired by a script too")
	note(!can.channels, "ACLs know no channels: leave out what begins with `&`")
	note(!can.subrules, "ACLs cannot forbid a part of a command (`-client\\|kill`)")
	note(!can.dryRun, "no ACL DRYRUN")
	note(!can.named, "doctor does not name a right that a script lacks")
	note(can.kill != "", "stale connections cannot be ended")
	note(len(can.absent) > 0, "INFO lacks "+strings.Join(can.absent, ", "))
	note(!strings.Contains(can.shown, r.server.version), "Status shows it as "+can.shown)
	if len(notes) == 0 {
		return []string{"all that the library uses"}
	}
	return notes
}
