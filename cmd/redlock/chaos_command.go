package main

import (
	"errors"
	"io"
	"strings"
	"unicode"

	"github.com/quorumlock/redlock/chaos/subject"
)

// takeCommand makes the command of --subject-command the lock under test.
func (o *chaosOptions) takeCommand(subjectGiven bool, stderr io.Writer) error {
	switch {
	case subjectGiven:
		return errors.New("--subject and --subject-command: give one of them")
	case strings.TrimSpace(o.command) == "":
		return errors.New("--subject-command: it is empty")
	case strings.ContainsFunc(o.command, unicode.IsControl):
		return errors.New("--subject-command: it has a control character, such as the end of a line; put it into a script")
	}
	o.subject = o.command
	o.locks = subject.Command{Line: o.command, Stderr: stderr}
	return nil
}

// subjectFlag is the flag for the same subject, as a shell reads it.
func (o *chaosOptions) subjectFlag() string {
	if o.command == "" {
		return "--subject " + o.subject
	}
	return "--subject-command " + shellWord(o.command)
}

// childCommand is childCommand with the command of --subject-command, if there is one.
func (o *chaosOptions) childCommand() []string {
	command := childCommand()
	if command != nil && o.command != "" {
		command = append(command, "--subject-command", o.command)
	}
	return command
}
