package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/chaos/traffic"
	"github.com/quorumlock/redlock/internal/fleet"
)

// exitUnable is the exit code of the chaos commands if they could not run.
const exitUnable = 2

func unable(format string, args ...any) error {
	return &exitError{exitUnable, fmt.Errorf(format, args...)}
}

const chaosHelp = `Tests a lock under faults. It starts Redis nodes, lets clients contend for a lock, injects the faults of a scenario,
records what happens, and judges the record.

Exit code: 0 no violation, 1 violations, 2 it could not run or is unsure, 64 usage, 128+n if
signal n ended it (130: INT).`

func newChaos() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "chaos",
		Short:   "Test a lock while nodes fail",
		Long:    chaosHelp,
		Example: "  redlock chaos list\n  redlock chaos run --scenario failover --subject single\n  redlock chaos run --out report",
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newChaosList(), newChaosRun(), newChaosCheck(), newChaosReport(), newChaosMatrix(), newChaosScoreboard(), newChaosClient())
	return cmd
}

// newChaosClient is the client process for scenarios that stop or kill a client.
func newChaosClient() *cobra.Command {
	command := ""
	cmd := &cobra.Command{
		Use: "client", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			find := subject.ByName
			if command != "" {
				find = func(string) (subject.Subject, error) { return subject.Command{Line: command}, nil }
			}
			err := traffic.ServeChild(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), find)
			if err != nil {
				return unable("client: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&command, "subject-command", "", "see redlock chaos run")
	return cmd
}

// childCommand returns the command that runs newChaosClient.
func childCommand() []string {
	self, err := os.Executable()
	if err != nil {
		return nil // scenarios that need it are then left out by name
	}
	return []string{self, "chaos", "client"}
}

// A listed is a scenario with the fleets that can run it.
type listed struct {
	scenario.Scenario
	Fleets []fleet.Kind `json:"fleets"`
}

type listedSubject struct {
	Name  string           `json:"name"`
	About string           `json:"about"`
	Lock  history.LockKind `json:"lock,omitempty"` // its kind; "": a mutex
}

func newChaosList() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the scenarios and the subjects",
		Example: "  redlock chaos list --json",
		Args:    takesNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var scenarios []listed
			for _, s := range scenario.All() {
				scenarios = append(scenarios, listed{s, s.Fleets()})
			}
			var subjects []listedSubject
			for _, s := range subject.All() {
				subjects = append(subjects, listedSubject{s.Name(), subject.Describe(s), subject.KindOf(s).Lock})
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), map[string]any{"scenarios": scenarios, "subjects": subjects})
			}
			return printList(cmd.OutOrStdout(), scenarios, subjects)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func printList(w io.Writer, scenarios []listed, subjects []listedSubject) error {
	var err error
	print := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format, args...)
		}
	}
	print("Scenarios\n")
	for _, s := range scenarios {
		print("\n  %s\n    %s\n", s.Name, s.Proves)
		if len(s.Faults) > 0 {
			print("    faults: %s\n", strings.Join(s.Faults, "; "))
		}
		print("    may cost: %s\n", s.Costs)
		if len(s.Fails) > 0 {
			print("    unsafe in it: %s\n", strings.Join(s.Fails, ", "))
		}
		kinds := make([]string, len(s.Fleets))
		for i, kind := range s.Fleets {
			kinds[i] = string(kind)
		}
		print("    fleets: %s\n", strings.Join(kinds, ", "))
	}
	print("\nSubjects\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range subjects {
		fmt.Fprintf(table, "  %s\t%s\n", s.Name, s.About)
	}
	if err != nil {
		return err
	}
	return table.Flush()
}
