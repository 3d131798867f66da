package redlock

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layers reads the map in CONTRIBUTING.md: the layer of each file, 0 for the lowest.
func layers(t *testing.T) (names []string, of map[string]int) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	_, places, _ := strings.Cut(string(text), "## Where things are")
	places, _, _ = strings.Cut(places, "### Directories")
	sections := strings.Split(places, "\n### ")[1:]
	slices.Reverse(sections) // the map goes from the caller down
	of = map[string]int{}
	for i, section := range sections {
		name, _, _ := strings.Cut(section, "\n")
		names = append(names, name)
		for line := range strings.Lines(section) {
			if file, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`"); ok && strings.HasPrefix(line, "| `") {
				of[file] = i
			}
		}
	}
	return names, of
}

// noImports leaves out everything that is not of this package.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not needed") }

// references are the names that one file uses and another declares, by the two files.
func references(t *testing.T, set *token.FileSet, files map[string]*ast.File) map[[2]string][]string {
	var syntax []*ast.File
	for _, file := range files {
		syntax = append(syntax, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}} // other packages' names stay unknown
	pkg, _ := config.Check("redlock", set, syntax, info)
	require.NotNil(t, pkg)
	found := map[[2]string][]string{}
	for ident, used := range info.Uses {
		if used.Pkg() != pkg {
			continue
		}
		from, to := set.Position(ident.Pos()).Filename, set.Position(used.Pos()).Filename
		if pair := [2]string{from, to}; from != to && !slices.Contains(found[pair], ident.Name) {
			found[pair] = append(found[pair], ident.Name)
		}
	}
	return found
}

// climbs are the references from a file to one of a higher layer.
func climbs(refs map[[2]string][]string, layer map[string]int) (pairs [][2]string) {
	for pair := range refs {
		if layer[pair[0]] < layer[pair[1]] {
			pairs = append(pairs, pair)
		}
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return pairs
}

// Dependencies run one way, from what a caller uses down to what is pure: fewer than one reference in eight runs up.
func TestDependenciesRunDown(t *testing.T) {
	names, layer := layers(t)
	set, files := sources(t)
	for name := range files {
		require.Contains(t, layer, name)
	}
	refs := references(t, set, files)
	up := climbs(refs, layer)
	for _, pair := range up {
		slices.Sort(refs[pair])
		t.Logf("%s (%s) uses %v of %s (%s)", pair[0], names[layer[pair[0]]], refs[pair], pair[1], names[layer[pair[1]]])
	}
	t.Logf("%d of %d references between files run up", len(up), len(refs))
	require.Less(t, len(up)*8, len(refs))
}

// The connection and the node name no type of the client.
func TestANodeDoesNotKnowItsClient(t *testing.T) {
	_, layer := layers(t)
	set, files := sources(t)
	for pair, names := range references(t, set, files) {
		if layer[pair[0]] <= layer["node.go"] {
			require.NotContains(t, names, "Client", "%s", pair[0])
		}
	}
}

// The tests above see a reference that runs up.
func TestAReferenceThatRunsUpIsSeen(t *testing.T) {
	set := token.NewFileSet()
	refs := references(t, set, map[string]*ast.File{
		"low.go":  parse(t, set, "low.go", "package p\nvar a = b\nvar c int"),
		"high.go": parse(t, set, "high.go", "package p\nvar b = c"),
	})
	require.Equal(t, [][2]string{{"low.go", "high.go"}}, climbs(refs, map[string]int{"low.go": 0, "high.go": 1}))
}

func parse(t *testing.T, set *token.FileSet, name, text string) *ast.File {
	file, err := parser.ParseFile(set, name, text, 0)
	require.NoError(t, err)
	return file
}
