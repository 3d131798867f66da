package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quorumlock/redlock/chaos"
	chaoscheck "github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/report"
)

// document returns what --json prints and report.json contains: one run, or a list of runs. What goes wrong after the one
// run, as in the run to compare with, has its place in the list only.
func (o *chaosOptions) document(r *chaosResult) any {
	if len(o.plays) == 1 && len(r.Runs) == 1 && !r.Interrupted && len(r.LeftOut) == 0 && r.Error == "" {
		return r.Runs[0]
	}
	return r
}

// report prints the result and writes the files of --out. Its error has an exit code.
func (o *chaosOptions) report(w io.Writer, r *chaosResult) error {
	if o.json {
		return printed(w, o.writeFiles(r), &r.jsonFailure, func() any { return o.document(r) })
	}
	var err error
	if !r.saysNothing(len(o.plays)) { // then standard error says why
		err = report.Table(w, r.Runs, coloured(w))
		if o.schedule != "" && len(r.Runs) == 1 && r.Runs[0].Result.Verdict != chaoscheck.Unsafe {
			_, failed := fmt.Fprintln(w, "\n"+howClose(r.Runs[0].Result.Margin))
			err = errors.Join(err, failed)
		}
		for _, l := range r.LeftOut {
			_, failed := fmt.Fprintf(w, "LEFT OUT %s\n", oneLine(l.Why))
			err = errors.Join(err, failed)
		}
	}
	if err = errors.Join(err, o.writeFiles(r)); err != nil {
		return &exitError{exitUnable, err}
	}
	return nil
}

// printed prints one line of JSON, which has the error of what was written before it, if there is one. Its error has an exit
// code, and no text if the line has that.
func printed(w io.Writer, err error, failure *jsonFailure, document func() any) error {
	if err != nil {
		failure.failed(err, kindOf(exitUnable))
	}
	if err := writeJSON(w, document()); err != nil {
		return &exitError{exitUnable, err}
	}
	if err != nil {
		return &exitError{exitUnable, nil}
	}
	return nil
}

// writeFiles writes the files of --out.
func (o *chaosOptions) writeFiles(r *chaosResult) error {
	if o.out == "" {
		return nil
	}
	return errors.Join(
		writeFile(filepath.Join(o.out, "report.json"), func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(o.document(r))
		}),
		writeFile(filepath.Join(o.out, "report.html"), func(w io.Writer) error { return report.HTML(w, r.Runs...) }))
}

// historyPath returns the file for the history of a scenario.
func (o *chaosOptions) historyPath(scenario string) string {
	if len(o.plays) == 1 {
		return filepath.Join(o.out, "history.jsonl")
	}
	return filepath.Join(o.out, scenario, "history.jsonl")
}

// A historyFile receives the history of a scenario.
type historyFile struct {
	*bufio.Writer
	file   *os.File
	folder string // for it alone; "": it is in the folder of the report
}

// createHistory makes the file for the history of a scenario. It does so before the run, so that a folder that cannot be
// written to is told at once, and so that no history of an earlier run stays there.
func (o *chaosOptions) createHistory(scenario string) (*historyFile, error) {
	path := o.historyPath(scenario)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	folder := ""
	if len(o.plays) > 1 {
		folder = filepath.Dir(path)
	}
	return &historyFile{bufio.NewWriter(file), file, folder}, nil
}

// end closes the file after a run that returned this error, and adds what went wrong with it. The file of a scenario that was
// left out, or of which nothing was recorded, is removed: it would look like the history of a run. So is the folder of the
// scenario, if it has nothing else.
func (f *historyFile) end(err error, leftOut bool) error {
	failed := f.Flush()
	if errors.Is(err, failed) { // the run was told already
		failed = nil
	}
	info, unknown := f.file.Stat()
	if failed = errors.Join(failed, unknown, f.file.Close()); failed == nil && (leftOut || info.Size() == 0) {
		if failed = os.Remove(f.file.Name()); failed == nil && f.folder != "" {
			_ = os.Remove(f.folder) // fails if there is anything else in it
		}
	}
	return errors.Join(err, failed)
}

// howClose says how close a run came to two holders. nil: that is not known.
func howClose(millis *float64) string {
	if millis == nil {
		return "How close it came is not known: no lease ended by itself before the lock was granted again."
	}
	return fmt.Sprintf("The closest: %v from the end of a lease to the next grant.", marginOf(*millis))
}

// marginOf is a margin as people read it.
func marginOf(millis float64) time.Duration {
	return time.Duration(millis * float64(time.Millisecond)).Round(10 * time.Microsecond)
}

// runOf is what a report has of an outcome.
func runOf(o *chaos.Outcome) report.Run {
	return report.Run{Result: o.Result, Unmet: o.Unmet, Panics: o.Panics, Error: o.Error}
}

func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// coloured reports whether w is a terminal and NO_COLOR is not set.
func coloured(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
}

// openInput opens a file to read, or stdin if the path is "-". name is what to call it in errors.
func openInput(path string, stdin io.Reader) (from io.ReadCloser, name string, err error) {
	if path == "-" {
		return io.NopCloser(stdin), "standard input", nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, path, &exitError{exitUnable, err}
	}
	return file, path, nil
}

// judgeFile reads and judges the history in a file, or in stdin if the path is "-".
func judgeFile(path string, stdin io.Reader) (run report.Run, err error) {
	from, path, err := openInput(path, stdin)
	if err != nil {
		return run, err
	}
	defer from.Close()
	events, err := history.ReadAll(from)
	if err != nil {
		return run, unable("%s: %w", path, err)
	}
	outcome, err := chaos.Judge(events)
	if err != nil {
		return run, unable("%s: %w", path, err)
	}
	run = runOf(outcome)
	run.Events = events
	return run, nil
}

func newChaosCheck() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "check HISTORY.jsonl",
		Short: "Judge a history",
		Long: `Judges a history that redlock chaos run has recorded. - is standard input.

Exit code: 0 no violation, 1 violations, 2 it could not be read or is unsure, 64 usage.`,
		Example: "  redlock chaos check report/history.jsonl",
		Args:    takesOne("HISTORY.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := judgeFile(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), run)
			} else {
				err = report.Table(cmd.OutOrStdout(), []report.Run{run}, coloured(cmd.OutOrStdout()))
			}
			if err != nil {
				return &exitError{exitUnable, err}
			}
			return (&chaosResult{Runs: []report.Run{run}}).exit()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func newChaosReport() *cobra.Command {
	out, asJSON := "", false
	cmd := &cobra.Command{
		Use:   "report HISTORY.jsonl -o FILE.html",
		Short: "Make an HTML page from a history",
		Long: `Judges a history and writes the report as an HTML page, or prints it as JSON, or both. - is standard
input.

Exit code: 0 the report was made, whatever its verdict; 2 it could not be made; 64 usage.`,
		Example: "  redlock chaos report report/history.jsonl -o report.html\n  redlock chaos report report/history.jsonl --json",
		Args:    takesOne("HISTORY.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" && !asJSON {
				return usage("no output: give -o FILE.html or --json")
			}
			run, err := judgeFile(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			if out != "" {
				err = writeFile(out, func(w io.Writer) error { return report.HTML(w, run) })
			}
			if asJSON && err == nil { // else the error is the line of JSON
				err = writeJSON(cmd.OutOrStdout(), run)
			}
			if err != nil {
				return &exitError{exitUnable, err}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "HTML page to write")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object, as in report.json")
	return cmd
}
