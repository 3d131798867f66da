package chaos_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The judge must not share code, and so mistakes, with the lock.
func TestOnlyTheSubjectOfThisLibraryKnowsThisLibrary(t *testing.T) {
	const library = "github.com/quorumlock/redlock"
	var knows []string
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if imported == library && !strings.HasSuffix(path, "_test.go") {
				knows = append(knows, filepath.ToSlash(path))
			}
			judges := strings.HasPrefix(path, "check") || strings.HasPrefix(path, "history")
			if judges && !strings.HasSuffix(path, "_test.go") && strings.HasPrefix(imported, library) {
				assert.Equal(t, library+"/chaos/history", imported, path)
			}
		}
		return nil
	}))
	assert.Equal(t, []string{"subject/redlock.go", "subject/redlock_kinds.go"}, knows)
}
