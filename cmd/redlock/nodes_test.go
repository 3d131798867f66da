//go:build unix

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

func writeNodes(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nodes")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	require.NoError(t, os.Chmod(file, mode)) // whatever the umask
	return file
}

func TestAMistakeInTheListOfNodesIsNamedWithItsPlace(t *testing.T) {
	t.Parallel()
	const good = "127.0.0.1:1"
	for bad, said := range map[string]string{
		"127.0.0.1:99999":            "its port is not 1 to 65535",
		"rediss://u:p@127.0.0.1:0":   "its port is not 1 to 65535",
		"127.0.0.1:1;127.0.0.1:2":    "it has a semicolon; separate the URLs with commas",
		"127.0.0.1:1 127.0.0.1:2":    "it has a space; separate the URLs with commas",
		"redis://h:1\tredis://h:2":   "it has a space; separate the URLs with commas",
		"u:hunter2@h:1 u:p@h:2":      "it has a space; separate the URLs with commas",
		"redis://u:hunter 2@h:1":     "write %20 for a space in a password",
		"redis://2001:db8::1:6379":   "write an IPv6 address in brackets: redis://[2001:db8::1]:6379",
		"::1":                        "write an IPv6 address in brackets",
		"redis://u:p@::1:6379/3":     "write an IPv6 address in brackets",
		"redis://u:hunter2/x@h:1":    "not a URL; write redis://user:password@host:port",
		"http://127.0.0.1:1":         "its scheme is none of redis://, rediss:// and unix://",
		good:                         "one server has one vote",
		"redis://127.0.0.1:2?dbx=3x": "only db is known",
	} {
		code, out, errs := run(t, "doctor", "--nodes", good+","+bad)
		require.Equal(t, 64, code, "%s: %s", bad, out)
		require.Contains(t, errs, said, bad)
		require.Contains(t, errs, "the 2nd of the URLs: ", bad)
		require.NotContains(t, errs, "Nodes[", bad)
		require.NotContains(t, errs, "hunter")
		file := writeNodes(t, 0o600, "# two nodes\n\n"+good+"\n"+bad+"\n")
		code, out, errs = run(t, "doctor", "--nodes-file", file)
		require.Equal(t, 64, code, "%s: %s", bad, out)
		require.Contains(t, errs, said, bad)
		require.Contains(t, errs, "line 4 of "+file+":", bad)
		require.NotContains(t, errs, "Nodes[", bad)
	}
	for list, place := range map[string]string{"a:99999": "1st", strings.Repeat("a:1,", 2) + "a:99999": "3rd", strings.Repeat("a:1,", 10) + "a:99999": "11th"} {
		_, _, errs := run(t, "doctor", "--nodes", list)
		require.Equal(t, "redlock: --nodes: the "+place+" of the URLs: its port is not 1 to 65535\n", errs)
	}
	_, _, errs := start(t, strings.NewReader("a:1\nb:99999"), nil, "doctor", "--nodes-file=-").wait()
	require.Equal(t, "redlock: --nodes-file: line 2 of standard input: its port is not 1 to 65535\n", errs)
}

// A variable of the caller's may be empty by mistake. Then the nodes of the environment are not what it meant.
func TestAnEmptyListOfNodesIsNotThatOfTheEnvironment(t *testing.T) {
	t.Setenv("REDLOCK_NODES", "embedded")
	code, _, errs := run(t, "enroll", "--only-new", "--nodes", "")
	require.Equal(t, 64, code)
	require.Equal(t, "redlock: --nodes is empty; give the URLs of the nodes, or leave it out to use REDLOCK_NODES\n", errs)
	code, _, errs = run(t, "doctor", "--nodes-file=")
	require.Equal(t, 64, code)
	require.Contains(t, errs, "--nodes-file is empty; give the name of a file")
}

// What else may be in a list: passwords with anything, brackets, and the mark that editors on Windows put before a file.
func TestAListOfNodesThatIsRightIsTaken(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 1, Args: []string{"--requirepass", "a;b:c::1"}})
	at := f.Nodes()[0].URL()
	at = "127.0.0.1" + at[strings.LastIndexByte(at, ':'):]
	for _, text := range []string{"\ufeffredis://:a;b%3Ac%3A%3A1@" + at + "\r\n", "redis://:a;b:c::1@" + at} {
		code, out, errs := run(t, "inspect", "--nodes-file", writeNodes(t, 0o600, text), "k")
		require.Equal(t, 0, code, "%q: %s%s", text, out, errs)
	}
	_, _, errs := run(t, "run", "--wait=0", "--nodes", "[::1]:1", "k", "--", "true")
	require.NotContains(t, errs, "brackets")
}

func TestAFileWithPasswordsThatOthersReadIsNamedSoThatItCanBeHidden(t *testing.T) {
	t.Parallel()
	file := writeNodes(t, 0o644, "redis://u:p@127.0.0.1:1")
	_, _, errs := run(t, "doctor", "--nodes-file", file)
	require.Contains(t, errs, "redlock: --nodes-file: "+file+" has passwords, and other users of this host may read it; chmod 600 "+file+"\n")
	_, _, errs = shell(t, `exec "$0" doctor --nodes-file /dev/fd/7 7<"$NODES"`, []string{"NODES=" + file})
	require.NotContains(t, errs, "chmod 600 /dev/fd/7", "it would be another file there")
	require.Contains(t, errs, "chmod 600 ")
}

func TestAPathOfASocketMayHaveAnAt(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/nonexistent/redis@1.sock", "/nonexistent/redis%401.sock"} {
		code, out, errs := run(t, "doctor", "--nodes", "unix://"+path)
		require.Equal(t, 1, code, errs)
		require.Contains(t, out, "dial unix /nonexistent/redis@1.sock: ")
	}
	code, _, errs := run(t, "doctor", "--nodes", "unix://user:pass/word@/nonexistent/redis.sock")
	require.Equal(t, 64, code)
	require.NotContains(t, errs, "pass/")
}
