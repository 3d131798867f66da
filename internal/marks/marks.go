// Package marks puts what a program has measured into a Markdown file, between two lines that mark the place.
package marks

import (
	"fmt"
	"os"
	"strings"
)

// Marks are two lines of a Markdown file. What is between them is replaced.
type Marks struct{ Begin, End string }

// By is the marks of what this command writes.
func By(what, command string) Marks {
	return Marks{fmt.Sprintf("<!-- %s: begin, written by `%s` -->", what, command), fmt.Sprintf("<!-- %s: end -->", what)}
}

// Replace puts the tables in place of what lies between the marks.
func (m Marks) Replace(text, tables string) (string, error) {
	before, rest, found := strings.Cut(text, m.Begin)
	_, after, ended := strings.Cut(rest, m.End)
	if !found || !ended {
		return "", fmt.Errorf("it lacks the lines %q and %q, between which the tables go", m.Begin, m.End)
	}
	return before + m.Begin + "\n" + tables + m.End + after, nil
}

// Write puts the tables between the marks of the file.
func (m Marks) Write(file, tables string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := m.Replace(string(old), tables)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
