//go:build unix

package main_test

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// A name, and what another program wrote under it, cannot control the terminal of whoever looks at it (SECURITY.md).
func TestNoNameAndNoValueControlsTheTerminal(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	const evil = "a\u009b2J\u202eb\u200bc\xff\x9bd"
	held, foreign := evil+"1", evil+"2"
	hold(t, newClient(t, f), held)
	everyNode(t, f, func(n *fleet.Node) error {
		do(t, n, "SET", foreign, evil, "PX", 60000)
		return nil
	})
	for _, args := range [][]string{
		{"inspect", held, foreign},
		{"inspect", "--json", held, foreign},
		{"top", "--count=1", held, foreign},
		{"top", "--count=1"},
		{"top", "--count=1", "--json"},
		{"run", "--wait=1500ms", held, "--", "true"},
		{"run", "--wait=1500ms", foreign, "--", "true"},
		{"run", "--wait=0", "--json", held, "--", "true"},
		{"release", "--force", foreign},
		{"release", "--force", held},
	} {
		_, out, errs := run(t, append([]string{args[0], nodes(f)}, args[1:]...)...)
		require.NotEmpty(t, out+errs, args)
		require.True(t, utf8.ValidString(out+errs), "%q: %q", args, out+errs)
		for _, r := range out + errs {
			require.True(t, r == '\n' || unicode.IsPrint(r), "%q: %q in %q", args, r, out+errs)
		}
	}
}
