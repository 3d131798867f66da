package redlock_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documents returns the text of each document, by its path.
func documents(t *testing.T) map[string]string {
	paths, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	texts := map[string]string{}
	for _, path := range append(paths, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		texts[path] = string(text)
	}
	return texts
}

func TestTheProgramInTheReadmeCompiles(t *testing.T) {
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```")
	programs := program.FindAllStringSubmatch(documents(t)["README.md"], -1)
	require.NotEmpty(t, programs)
	for _, program := range programs {
		dir, err := os.MkdirTemp(".", "_readme") // inside the module, and no part of ./...
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program[1]), 0o600))
		out, err := exec.Command("go", "vet", "./"+dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// Every link from the documents into this repository leads to a file, and to a heading in it if the link names one.
func TestTheDocumentsLinkToWhatIsThere(t *testing.T) {
	texts := documents(t)
	for document, text := range texts {
		for _, link := range linksIn(text) {
			target := document
			if link.path != "" {
				target = filepath.Join(filepath.Dir(document), link.path)
				require.FileExists(t, target, document)
			}
			if link.heading != "" {
				require.Contains(t, headingsOf(texts[target]), link.heading, "%s links to a heading of %s", document, target)
			}
		}
	}
}

func TestTheLinkTestFindsLinksAndHeadings(t *testing.T) {
	const text = "# A title, `code` & more\n[a](x.md) [b](docs/x.md#part-2) [c](#here)\n![a picture\nof it](img/x.svg) " +
		"[out](https://example.org/x#y)\n```\n# no heading\n```\n### What's _here_?\n"
	require.Equal(t, []docLink{{"x.md", ""}, {"docs/x.md", "part-2"}, {"", "here"}, {"img/x.svg", ""}}, linksIn(text))
	require.Equal(t, []string{"a-title-code--more", "whats-_here_"}, headingsOf(text))
}

// A line of a table that is broken in two ends the table there: the rest of it is shown as text.
func TestTheTablesOfTheDocumentsAreWhole(t *testing.T) {
	for document, text := range documents(t) {
		require.Empty(t, brokenRowsIn(text), document)
	}
	require.Equal(t, []string{"| c | d", "  | g |"}, brokenRowsIn("| a | b |\n|---|---|\n| c | d\n  e |\n\n  | `f\\|` | f |\n  | g |\n"))
}

// brokenRowsIn returns the rows of tables that do not end on their line, or have fewer or more cells than the one before.
func brokenRowsIn(text string) (broken []string) {
	cells := 0 // of the line before; 0: it is no row
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		row := strings.TrimLeft(line, " ")
		if !strings.HasPrefix(row, "|") {
			cells = 0
			continue
		}
		here := strings.Count(row, "|") - strings.Count(row, `\|`)
		if !strings.HasSuffix(row, "|") || cells != 0 && here != cells {
			broken = append(broken, line)
		}
		cells = here
	}
	return broken
}

// A docLink leads into this repository: to a file, a heading, or a heading of a file.
type docLink struct{ path, heading string }

func linksIn(text string) (links []docLink) {
	for _, m := range regexp.MustCompile(`\]\(([^)#\s]*)#?([^)\s]*)\)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "://") {
			links = append(links, docLink{m[1], m[2]})
		}
	}
	return links
}

// headingsOf returns the anchors of the headings, as GitHub makes them.
func headingsOf(text string) (anchors []string) {
	code := regexp.MustCompile("(?ms)^```.*?^```")
	dropped := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		anchors = append(anchors, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return anchors
}

// Every test that the documents name exists.
func TestTheDocumentsNameTestsThatThereAre(t *testing.T) {
	var code strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, readErr := os.ReadFile(path)
			err = readErr
			code.Write(text)
		}
		return err
	}))
	for document, text := range documents(t) {
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(text, -1) {
			require.True(t, strings.Contains(code.String(), "func "+name+"("),
				"%s names %s, which does not exist", document, name)
		}
	}
}

// Every --flag in the documents is a flag of the command, or of a program that is named there.
func TestTheDocumentsNameFlagsThatThereAre(t *testing.T) {
	known := []string{"help", "appendonly", "appendfsync", "bind", "port", "save", "daemonize",
		"from", "from-file", "watch", "rm", "restart", "command", "init"} // of a Dockerfile, of docker and of kubectl
	sources, err := filepath.Glob("cmd/redlock/*.go")
	require.NoError(t, err)
	sources = append(sources, "chaos/scoreboard/command.go") // the flags of redlock chaos scoreboard
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`Var(?:P)?\(&[\w.]+, "([a-z-]+)"`).FindAllSubmatch(text, -1) {
			known = append(known, string(m[1]))
		}
	}
	require.Contains(t, known, "nodes-file")
	for document, text := range documents(t) {
		if document == "docs/performance.md" { // it names the flags of compare too
			continue
		}
		for _, m := range regexp.MustCompile("(?m)(?:^|[\\s`(])--([a-z][a-z-]+)").FindAllStringSubmatch(text, -1) {
			require.True(t, slices.Contains(known, m[1]), "%s names the flag --%s, which does not exist", document, m[1])
		}
	}
}

// Each picture is well-formed XML, says in words what it shows, and has colours for dark pages too.
func TestThePicturesAreSound(t *testing.T) {
	pictures, err := filepath.Glob("docs/img/*.svg")
	require.NoError(t, err)
	require.NotEmpty(t, pictures)
	for _, picture := range pictures {
		text, err := os.ReadFile(picture)
		require.NoError(t, err)
		for _, part := range []string{"<title ", "<desc ", `viewBox="0 0 800 `, "prefers-color-scheme: dark"} {
			require.Contains(t, string(text), part, picture)
		}
		decoder := xml.NewDecoder(strings.NewReader(string(text)))
		for err == nil {
			_, err = decoder.Token()
		}
		require.True(t, errors.Is(err, io.EOF), "%s: %v", picture, err)
	}
}
