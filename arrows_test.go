package redlock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sources parses the non-test files of this package.
func sources(t *testing.T) (*token.FileSet, map[string]*ast.File) {
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	set, files := token.NewFileSet(), map[string]*ast.File{}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files[name], err = parser.ParseFile(set, name, nil, 0)
			require.NoError(t, err)
		}
	}
	return set, files
}

// quorum.go, waiter_next.go and fair_next.go only decide, from what they are given. They do no I/O, start no goroutine
// and read no clock.
func TestTheDecisionsImportNoIO(t *testing.T) {
	_, files := sources(t)
	for name, imports := range map[string][]string{"quorum.go": {`"math"`, `"time"`}, "waiter_next.go": {`"strings"`, `"time"`},
		"fair_next.go": {`"slices"`, `"time"`}} {
		for _, spec := range files[name].Imports {
			require.Contains(t, imports, spec.Path.Value, "%s decides and does nothing else", name)
		}
		ast.Inspect(files[name], func(n ast.Node) bool {
			_, spawns := n.(*ast.GoStmt)
			require.False(t, spawns, name)
			used, ok := n.(*ast.SelectorExpr)
			require.False(t, ok && slices.Contains([]string{"Now", "Since", "Clock", "Load", "Lock"}, used.Sel.Name), name)
			return true
		})
	}
}

// F1: Nothing depends on the wall clock. time.Now is allowed where only its monotonic part counts, or where the wall clock
// is a hint.
func TestNothingDependsOnTheWallClock(t *testing.T) {
	allowed := map[string]string{
		"clock.go": "the monotonic clock; and the wall clock, to know when a suspend is possible",
		"trace.go": "when an operation began, for traces; nothing in the lock depends on it",
	}
	set, files := sources(t)
	for name, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if ok && pkg.Name == "time" && sel.Sel.Name == "Now" {
				require.Contains(t, allowed, name, "time.Now at %s", set.Position(n.Pos()))
			}
			require.NotContains(t, []string{"Unix", "UnixNano", "UnixMilli", "UnixMicro"}, sel.Sel.Name,
				"wall time at %s", set.Position(n.Pos()))
			return true
		})
	}
}

// Only the chaos harness and the command may reach Docker. What any other package or its tests import, go mod tidy writes
// into the go.sum of its importers.
func TestOnlyTheChaosHarnessReachesDocker(t *testing.T) {
	list, err := exec.Command("go", "list", "-test", "-f", "{{.ImportPath}}{{range .Deps}} {{.}}{{end}}", "./...").Output()
	require.NoError(t, err)
	reaches := 0
	for line := range strings.Lines(string(list)) {
		if !strings.Contains(line, " github.com/ory/dockertest/") {
			continue
		}
		reaches++
		require.Regexp(t, `^github.com/quorumlock/redlock/(chaos|cmd/redlock|internal/fleet/dockerfleet)(_test|\.test)?(/|$)`,
			strings.Fields(line)[0])
	}
	require.Positive(t, reaches)
}
