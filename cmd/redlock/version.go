package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"
)

// A versionReport is what version prints.
type versionReport struct {
	Version  string `json:"version"`            // of the module; (devel) if it was built from a checkout
	Revision string `json:"revision,omitempty"` // of the checkout
	Time     string `json:"time,omitempty"`     // of the revision
	Modified bool   `json:"modified,omitempty"` // the checkout had changes that were not committed
	Go       string `json:"go"`
	System   string `json:"system"`
}

func newVersion() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of redlock, the revision and the Go version it was built with",
		Long:    "Prints the version of the module, the revision of the source and the version of Go that redlock was built with.",
		Example: "  redlock version\n  redlock version --json",
		Args:    takesNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := thisVersion()
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), v)
			}
			return v.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON line")
	return cmd
}

// thisVersion reads what the Go command wrote into the program.
func thisVersion() versionReport {
	v := versionReport{Version: "unknown", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(info.Main.Version, "(devel)")
	setting := func(key string) string {
		i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
		if i < 0 {
			return ""
		}
		return info.Settings[i].Value
	}
	v.Revision, v.Time, v.Modified = setting("vcs.revision"), setting("vcs.time"), setting("vcs.modified") == "true"
	return v
}

func (v versionReport) print(out io.Writer) error {
	fmt.Fprintf(out, "redlock %s\n", v.Version)
	if v.Revision != "" {
		modified := ""
		if v.Modified {
			modified = ", modified"
		}
		fmt.Fprintf(out, "revision %s (%s%s)\n", v.Revision, v.Time, modified)
	}
	_, err := fmt.Fprintf(out, "%s %s\n", v.Go, v.System)
	return err
}
