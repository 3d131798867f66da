package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Long: `Writes a manual page for redlock and for each of its commands into DIR, which it makes if it does not exist:
redlock.1, redlock-run.1 and so on. Their text is that of --help.`,
		Example: "  redlock man /usr/local/share/man/man1\n  redlock man man && man -l man/redlock-run.1",
		Args:    takesOne("DIR"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return &exitError{exitFailed, err}
			}
			return writePages(cmd.Root(), args[0])
		},
	}
}

// writePages writes the page of the command, and those of the commands below it.
func writePages(cmd *cobra.Command, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(page(cmd)), 0o644); err != nil {
		return &exitError{exitFailed, err}
	}
	for _, below := range documented(cmd) {
		if err := writePages(below, dir); err != nil {
			return err
		}
	}
	return nil
}

// documented is the commands below this one that --help lists, except help itself.
func documented(cmd *cobra.Command) (commands []*cobra.Command) {
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() && below.Name() != "help" {
			commands = append(commands, below)
		}
	}
	return commands
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page is the manual page of a command, in the macros of man(7).
func page(cmd *cobra.Command) string {
	var b strings.Builder
	name := pageName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"redlock %s\" \"Manual of redlock\"\n", strings.ToUpper(name), roff(thisVersion().Version))
	b.WriteString(".nh\n.ad l\n") // no hyphens that a reader would type, and no wide gaps
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", roff(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n" + prose(cmd.Long))
	if below := documented(cmd); len(below) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range below {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(c)), roff(c.Short))
		}
	}
	if flags := options(cmd); flags != "" {
		b.WriteString(".SH OPTIONS\n" + flags)
	}
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n")
		for line := range strings.Lines(cmd.Example) {
			b.WriteString(roff(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "  ")) + "\n")
		}
		b.WriteString(".fi\n")
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(pageName(cmd.Parent())))
	}
	return b.String()
}

func options(cmd *cobra.Command) string {
	var b strings.Builder
	cmd.InitDefaultHelpFlag()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, what := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if kind != "" {
			kind = " " + kind
		}
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			what += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR%s\n%s\n", roff(name), roff(kind), roff(what))
	})
	return b.String()
}

var (
	notASCII = regexp.MustCompile(`[^\x00-\x7f]`)
	bullet   = regexp.MustCompile(`^\s+- (.*)$`)
	columns  = regexp.MustCompile(`^\s+(\S+(?: \S+)*) {2,}(\S.*)$`)
	gap      = regexp.MustCompile(`\S {2,}\S`)
)

// prose turns the text of --help into paragraphs, lists and tables.
func prose(text string) string {
	var b strings.Builder
	inside := false // in an indented part
	enter := func(indented bool) {
		if indented != inside {
			b.WriteString(map[bool]string{true: ".RS 2\n", false: ".RE\n"}[indented])
		}
		inside = indented
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.TrimSpace(line) == "" {
			enter(false)
			b.WriteString(".PP\n")
			continue
		}
		enter(strings.HasPrefix(line, " "))
		if !inside {
			b.WriteString(roff(line) + "\n")
			continue
		}
		item, row := bullet.FindStringSubmatch(line), columns.FindStringSubmatch(line)
		switch {
		case item != nil:
			fmt.Fprintf(&b, ".IP \\(bu 2\n%s\n", roff(item[1]))
		case row != nil && gap.MatchString(row[2]): // several columns
			fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(line))
		case row != nil:
			fmt.Fprintf(&b, ".TP 16\n%s\n%s\n", roff(row[1]), roff(row[2]))
		default:
			b.WriteString(roff(strings.TrimSpace(line)) + "\n")
		}
	}
	enter(false)
	return b.String()
}

// roff escapes what would be a command of roff, and keeps hyphens and quotes as they are typed.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\(ga", "^", `\(ha`, "~", `\(ti`, "\n", " ").Replace(text)
	text = notASCII.ReplaceAllStringFunc(text, func(s string) string { return fmt.Sprintf(`\[u%04X]`, []rune(s)[0]) })
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, `\(aq`) {
		text = `\&` + text
	}
	return text
}
