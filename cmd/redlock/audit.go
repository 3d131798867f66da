package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock/audit"
)

func newAudit() *cobra.Command {
	asJSON, clockError := false, audit.DefaultClockError
	cmd := &cobra.Command{
		Use:   "audit JOURNAL.jsonl...",
		Short: "Find out from the journals of processes whether two held a lock at the same time",
		Long: `Judges what leases there were in production. Give it the journals of all processes that share the locks: those with
the same nodes and the same --prefix. They may still run, and the order does not matter. - is standard input.
redlock run --journal FILE writes a journal, and so does a program with the package
github.com/quorumlock/redlock/audit/recorder. Other lock libraries can write the same format.

Leases of one process are compared by its clock. Those of several processes are compared by their fencing tokens,
and by the wall clocks as far as these can be trusted: see --clock-error.

Exit code: 0 no violation, 1 violations, 2 a journal could not be read, or a part was not judged, 64 usage.`,
		Example: "  redlock audit web-1.jsonl web-2.jsonl\n  redlock audit --clock-error 20ms --json /var/log/orders/*.jsonl",
		Args:    takesSome("a JOURNAL.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if clockError < 0 {
				return usage("--clock-error is negative: %v", clockError)
			}
			var journals []*audit.Journal
			for _, path := range args {
				journal, err := readJournal(path, cmd.InOrStdin())
				if err != nil {
					return err
				}
				journals = append(journals, journal)
			}
			result := audit.Judge(audit.Options{ClockError: max(clockError, 1)}, journals...) // 0 would be the usual one
			var err error
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), result)
			} else {
				err = printAudit(cmd.OutOrStdout(), &result)
			}
			switch {
			case err != nil:
				return &exitError{exitUnable, err}
			case result.Verdict == audit.Violated:
				return &exitError{exitFailed, nil}
			case result.Verdict == audit.Unsure:
				return &exitError{exitUnable, nil}
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&clockError, "clock-error", clockError, "how far the wall clock of any of these machines may have been from the true time")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func readJournal(path string, stdin io.Reader) (*audit.Journal, error) {
	from, name, err := openInput(path, stdin)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	journal, err := audit.Read(name, from)
	if err != nil {
		return nil, &exitError{exitUnable, err}
	}
	return journal, nil
}

// printAudit prints the result for people. What journals say is shown without control characters.
func printAudit(out io.Writer, r *audit.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintln(w, printable(fmt.Sprintf(format, args...))) }
	line("%s of %s; processes: %d", plural(r.Leases, "lease"), plural(r.Names, "name"), r.Processes)
	if r.Leases > 0 {
		line("from %s to %s", r.From.Format(auditTime), r.To.Format(auditTime))
	}
	for _, v := range r.Violations {
		line("VIOLATION %s of %s, by %s: %s", v.Kind, v.Name, v.Basis, v.Text)
		for _, l := range v.Leases {
			end := l.End
			if end == "" {
				end = "its end is not in the journal"
			}
			fence := "no fence"
			if l.Fence > 0 {
				fence = fmt.Sprint("fence ", l.Fence)
			}
			columns := []string{"  " + l.Process, fence, "from " + l.From.Format(auditTime), "to " + l.To.Format(auditTime), end}
			for i := range columns {
				columns[i] = printable(columns[i])
			}
			fmt.Fprintln(w, strings.Join(columns, "\t"))
		}
	}
	for kind, n := range r.Counts {
		if n > audit.MaxListed {
			line("and %d more of the kind %s", n-audit.MaxListed, kind)
		}
	}
	for _, what := range r.LeftOut {
		line("LEFT OUT %s", what)
	}
	if r.Close > 0 {
		line("%s may or may not have overlapped with another process's: their clocks may be wrong by %v", plural(r.Close, "lease"), time.Duration(r.ClockErrorSeconds*float64(time.Second)))
	}
	if r.NoEnd > 0 {
		line("%s without an end in the journals: each counts until it was last renewed", plural(r.NoEnd, "lease"))
	}
	line("%s", map[audit.Verdict]string{
		audit.Consistent: "no violation",
		audit.Violated:   "violated",
		audit.Unsure:     "unsure: no violation, but a part was not judged",
	}[r.Verdict])
	return w.Flush()
}

// auditTime is how an audit shows a time, in UTC.
const auditTime = time.DateTime + ".000000"
