package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock/chaos"
	chaoscheck "github.com/quorumlock/redlock/chaos/check"
)

// document is what --json prints and report.json holds: one run, or a list of them.
func (o *chaosOptions) document(r *chaosResult) any {
	if len(o.plays) == 1 && len(r.Runs) == 1 {
		return r.Runs[0]
	}
	return r
}

// report prints what came of it, and writes the files of --out.
func (o *chaosOptions) report(w io.Writer, r *chaosResult) error {
	var err error
	if o.json {
		err = writeJSON(w, o.document(r))
	} else {
		for _, run := range r.Runs {
			err = errors.Join(err, printRun(w, &run.Result))
		}
		for _, l := range r.LeftOut {
			_, failed := fmt.Fprintf(w, "LEFT OUT %s\n", oneLine(l.Why))
			err = errors.Join(err, failed)
		}
	}
	if o.out == "" {
		return err
	}
	return errors.Join(err,
		writeFile(filepath.Join(o.out, "report.json"), func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(o.document(r))
		}),
		writeFile(filepath.Join(o.out, "report.html"), func(w io.Writer) error { return writePage(w, r.Runs) }))
}

func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// judgeFile judges the history in a file.
func judgeFile(path string) (chaoscheck.Result, error) {
	file, err := os.Open(path)
	if err != nil {
		return chaoscheck.Result{}, &exitError{exitUnable, err}
	}
	defer file.Close()
	result, err := chaoscheck.JudgeReader(file)
	if err != nil {
		return result, unable("%s: %w", path, err)
	}
	return result, nil
}

func printRun(w io.Writer, r *chaoscheck.Result) error {
	_, err := fmt.Fprintf(w, "%-22s %-14s %-7s acquired %d, refused %d, errors %d; overlaps %d, lost updates %d\n",
		r.Scenario, r.Subject, r.Verdict, r.Acquired, r.Refused, r.Errors, r.Overlaps, r.LostUpdates)
	return err
}

func newChaosCheck() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "check HISTORY.jsonl",
		Short:   "Judge a history",
		Example: "  redlock chaos check report/history.jsonl",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := judgeFile(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), result)
			} else {
				err = printRun(cmd.OutOrStdout(), &result)
				for _, v := range result.Violations {
					fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", oneLine(v.Text))
				}
			}
			switch {
			case err != nil:
				return &exitError{exitUnable, err}
			case result.Verdict != chaoscheck.Safe:
				return &exitError{exitFailed, nil}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func newChaosReport() *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:     "report HISTORY.jsonl -o FILE.html",
		Short:   "Make a page of a history",
		Example: "  redlock chaos report report/history.jsonl -o report.html",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return unable("where to? Give -o FILE.html")
			}
			result, err := judgeFile(args[0])
			if err != nil {
				return err
			}
			runs := []*chaosRun{{Outcome: &chaos.Outcome{Result: result}}}
			if err := writeFile(out, func(w io.Writer) error { return writePage(w, runs) }); err != nil {
				return &exitError{exitUnable, err}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the page to write")
	return cmd
}
