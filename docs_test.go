package redlock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheProgramInTheReadmeCompiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	programs := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(readme, -1)
	require.NotEmpty(t, programs)
	for _, program := range programs {
		dir, err := os.MkdirTemp(".", "_readme") // inside the module, and no part of ./...
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), program[1], 0o600))
		out, err := exec.Command("go", "vet", "./"+dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// Every link of the documents into this repository leads to a file.
func TestTheDocumentsLinkToWhatIsThere(t *testing.T) {
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)
	for _, document := range append(documents, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[1], "://") {
				require.FileExists(t, filepath.Join(filepath.Dir(document), m[1]), document)
			}
		}
	}
}

// What the documents call a test is one.
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
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, document := range append(documents, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1) {
			require.True(t, strings.Contains(code.String(), "func "+name+"("), "%s names %s, which does not exist", document, name)
		}
	}
}
