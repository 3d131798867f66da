//go:build unix

package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// Whoever has the token of a lease can release it, from any process, and takes the lock from nobody else.
func TestReleaseByTheTokenOfTheLease(t *testing.T) {
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	lease, err := client.Mutex("a", "b").Acquire(t.Context())
	require.NoError(t, err)
	token := lease.Token()
	code, out, errs := run(t, "release", nodes(f), "--token", token, "a", "b")
	require.Equal(t, 0, code, errs)
	require.Equal(t, "a was released\nb was released\n", out)

	other := hold(t, client, "a")
	code, out, errs = run(t, "release", nodes(f), "--token", token, "a")
	require.Equal(t, 76, code)
	require.Empty(t, out)
	require.Contains(t, errs, "redlock: no lease of a has this token: it was released, it expired, or it never was")
	require.NotContains(t, errs, token)
	require.True(t, other.Valid())
	code, out, errs = run(t, "release", nodes(f), "--json", "--token", token, "a", "b")
	require.Equal(t, 76, code, errs)
	require.Equal(t, 2, strings.Count(out, "\n"), out)
	require.Equal(t, 2, strings.Count(out, `"released":false`), out)
	require.Equal(t, 2, strings.Count(out, `"kind":"lost"`), out)
	code, out, errs = start(t, strings.NewReader(other.Token()+"\n"), nil, "release", nodes(f), "--json", "--token=-", "a").wait()
	require.Equal(t, 0, code, errs)
	require.Equal(t, `{"key":"a","released":true}`+"\n", out)

	// The command under the lock may hand it on: here it releases it at once.
	code, out, errs = start(t, nil, []string{"REDLOCK_NODES=" + strings.Join(f.URLs(), ",")}, "run", "--pass-nodes", "c", "--", "sh", "-c",
		`"$0" release --token "$REDLOCK_TOKEN" "$REDLOCK_KEY"`, binary).wait()
	require.Contains(t, out, "c was released")
	require.Contains(t, []int{0, 76}, code, errs) // redlock run learns of it, or the command ends before that

	for line, said := range map[string]string{
		"release k":                               "--token of the lease",
		"release --token= k":                      "--token: it is no owner token",
		"release --token=next:01 k":               "--token: it is no owner token",
		"release --token=x --force k":             "give one of them",
		"release --token=x --foreign k":           "give one of them",
		"release --token=- --nodes-file=- k":      "cannot both be read from standard input",
		"release --nodes a:1,b:1,c:1 --token=- k": "--token: it is no owner token",
	} {
		code, _, errs := run(t, strings.Fields(line)...)
		require.Equal(t, 64, code, line)
		require.Contains(t, errs, said, line)
	}
	everyNode(t, f, (*fleet.Node).Kill)
	code, _, errs = run(t, "release", nodes(f), "--token", token, "a")
	require.Equal(t, 69, code, errs)
}

// Either all of them are locks, or nothing is deleted.
func TestReleaseOfSeveralKeys(t *testing.T) {
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	client := newClient(t, f)
	a, b := hold(t, client, "a"), hold(t, client, "b")
	everyNode(t, f, func(n *fleet.Node) error { do(t, n, "SET", "data", "x"); return nil })
	code, out, errs := run(t, "release", "--force", nodes(f), "a", "data", "b")
	require.Equal(t, 64, code)
	require.Empty(t, out)
	require.Contains(t, errs, "--foreign")
	require.NoError(t, a.Extend(t.Context()))
	require.NoError(t, b.Extend(t.Context()))
	code, out, errs = run(t, "release", "--force", nodes(f), "a", "b", "free")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "\na was released\n\nb is held by ")
	require.Contains(t, out, "\nb was released\n\nfree is free")
	code, out, errs = run(t, "release", "--force", "--json", nodes(f), "a", "b")
	require.Equal(t, 0, code, errs)
	require.Equal(t, 2, strings.Count(out, "\n"))
}

func TestTheFlagVersionDoesWhatTheCommandDoes(t *testing.T) {
	code, out, errs := run(t, "--version")
	require.Equal(t, 0, code, errs)
	_, want, _ := run(t, "version")
	require.Equal(t, want, out)
}
