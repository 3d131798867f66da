package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Wrong flags and arguments are told in plain words: those of cobra and of the Go library name functions of Go.

// wantedOf says what a flag of this type takes.
var wantedOf = map[string]string{
	"bool":     "true or false",
	"duration": "a duration such as 30s or 5m",
	"float64":  "a number",
	"int":      "a whole number",
	"uint64":   "a whole number, not negative",
}

// wrongFlag is what the user did wrong with a flag.
func wrongFlag(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		empty   *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
		syntax  *pflag.InvalidSyntaxError
	)
	text := err.Error()
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		text = "there is no flag -" + unknown.GetSpecifiedName()
	case errors.As(err, &unknown):
		text = "there is no flag --" + unknown.GetSpecifiedName()
	case errors.As(err, &empty):
		text = "--" + empty.GetFlag().Name + " needs a value"
	case errors.As(err, &invalid):
		flag := invalid.GetFlag()
		text = "--" + flag.Name + " " + brief(invalid.GetValue()) + ": it cannot be read"
		if wanted := wantedOf[flag.Value.Type()]; wanted != "" {
			text = "--" + flag.Name + " " + brief(invalid.GetValue()) + ": give " + wanted
		}
	case errors.As(err, &syntax):
		text = brief(syntax.GetSpecifiedFlag()) + " is not a flag"
	}
	return usage("%s; see %s --help", text, cmd.CommandPath())
}

// takesNone is for commands that take no arguments and talk to no nodes.
func takesNone(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, but %s is one; see %[1]s --help", cmd.CommandPath(), brief(args[0]))
	}
	return nil
}

// noArgs is for commands that talk to nodes.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments; nodes are given with --nodes", cmd.CommandPath())
	}
	return nil
}

// takesOne is for commands that take one argument, which is called that in the usage.
func takesOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%s needs one %s; see %[1]s --help", cmd.CommandPath(), what)
		}
		return nil
	}
}

// takesSome is for commands that take one or more.
func takesSome(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("%s needs %s; see %[1]s --help", cmd.CommandPath(), what)
		}
		return nil
	}
}

// differentKeys refuses a KEY that is given twice, as a lock of several keys does.
func differentKeys(cmd *cobra.Command, keys []string) error {
	for i, key := range keys {
		if slices.Contains(keys[:i], key) {
			return usage("KEY %s is given twice", brief(key))
		}
	}
	return takesSome("a KEY")(cmd, keys)
}

// unknownCommand refuses what is no command, and names those that it may be meant for.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	cmd.SuggestionsMinimumDistance = 2 // letters
	// Of a short word these are half or more, so something else must be alike: rnu means run, and foo does not mean top.
	other := func(name string) bool {
		return len(args[0]) < 5 && (args[0] == "" || !strings.EqualFold(name[:1], args[0][:1]))
	}
	if near := slices.DeleteFunc(cmd.SuggestionsFor(args[0]), other); len(near) > 0 {
		meant = " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return usage("there is no command %s%s; %s --help lists them", brief(args[0]), meant, cmd.CommandPath())
}
