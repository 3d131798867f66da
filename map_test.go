package redlock_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// CONTRIBUTING.md names every file of this package and every directory with Go code, and none that does not exist.
func TestTheMapNamesEveryFileAndDirectory(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	missing, surplus := compareMap(t, os.DirFS("."), string(text))
	require.Empty(t, missing, "CONTRIBUTING.md: the first columns of the map lack these; add a line for each")
	require.Empty(t, surplus, "CONTRIBUTING.md: the map names what does not exist; remove or rename it")
}

func TestTheMapTestFindsMissingAndSurplusNames(t *testing.T) {
	tree := fstest.MapFS{}
	for _, name := range []string{"a.go", "b.go", "b_test.go", "cmd/tool/main.go", "internal/x/x_test.go", "docs/x.md",
		"x/testdata/skipped.go", "_tmp/skipped.go", ".git/skipped.go"} {
		tree[name] = &fstest.MapFile{}
	}
	missing, surplus := compareMap(t, tree, "# Title\n`b.go` `before.go`\n"+mapHeading+"\nfrom `b.go` → `stale.go`\n"+
		"| file | what |\n| --- | --- |\n| `a.go`, `gone.go` | see `b.go` and `Type` |\n| `docs/`, `none/` | |\n"+
		"| `*_test.go`, `z_*_test.go` | |\n## Next\n| `cmd/tool/` `after.go` | |\n")
	require.Equal(t, []string{"b.go", "cmd/tool/", "internal/x/"}, missing)
	require.Equal(t, []string{"gone.go", "none/", "stale.go", "z_*_test.go"}, surplus)

	missing, surplus = compareMap(t, tree, mapHeading+"\n| `a.go`, `b.go` | |\n| `cmd/tool/` | |\n| `internal/x/` | |\n")
	require.Empty(t, missing)
	require.Empty(t, surplus)
}

// mapHeading begins the part of the text that is the map. It ends with the next heading of this level.
const mapHeading = "## Where things are"

var (
	codeSpan  = regexp.MustCompile("`([^`\n]+)`")
	pathInMap = regexp.MustCompile(`^[\w./*-]+(\.go|/)$`) // a file of Go, or a directory
)

// compareMap returns what the tree has and the map does not name in the first column of a table (missing), and what the
// map names anywhere and the tree does not have (surplus).
func compareMap(t *testing.T, tree fs.FS, text string) (missing, surplus []string) {
	_, text, found := strings.Cut(text, mapHeading+"\n")
	require.True(t, found, "there is no heading %q", mapHeading)
	text, _, _ = strings.Cut(text, "\n## ")

	named := map[string]bool{} // in a first column
	for line := range strings.Lines(text) {
		first := ""
		if row, isRow := strings.CutPrefix(line, "|"); isRow {
			first, _, _ = strings.Cut(row, "|")
		}
		for _, m := range codeSpan.FindAllStringSubmatch(first, -1) {
			named[m[1]] = true
		}
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			name := m[1]
			if !pathInMap.MatchString(name) || slices.Contains(surplus, name) {
				continue
			}
			matches, err := fs.Glob(tree, strings.TrimSuffix(name, "/"))
			require.NoError(t, err, name)
			if len(matches) == 0 {
				surplus = append(surplus, name)
			}
		}
	}
	for _, name := range mustBeNamed(t, tree) {
		if !named[name] {
			missing = append(missing, name)
		}
	}
	slices.Sort(surplus)
	return missing, surplus
}

// mustBeNamed returns the files of the root package that are not tests, and the directories below it that have Go code.
func mustBeNamed(t *testing.T, tree fs.FS) (names []string) {
	require.NoError(t, fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && notOurs(entry.Name()):
			return fs.SkipDir
		case path.Ext(name) != ".go":
		case path.Dir(name) != ".":
			names = append(names, path.Dir(name)+"/")
		case !strings.HasSuffix(name, "_test.go"):
			names = append(names, name)
		}
		return nil
	}))
	slices.Sort(names)
	return slices.Compact(names)
}

// notOurs reports whether the go command skips a directory of this name. The root is ".".
func notOurs(dir string) bool {
	return dir == "testdata" || dir != "." && strings.HasPrefix(dir, ".") || strings.HasPrefix(dir, "_")
}
