package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestWhatATerminalWouldObeyIsNotPrinted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain – ü":       "plain – ü",
		"two\nlines":      "two; lines",
		"a\x1b[2Jb\x7fc":  "a [2Jb c",
		"csi \u009b2Jx":   "csi  2Jx", // what ESC [ is in one rune
		"bidi \u202eabc":  "bidi  abc",
		"zero\u200bwidth": "zero width",
		"raw \xff\x9bx":   `raw \xff\x9bx`,
		"\ufffd":          "\ufffd", // it is what was written
	} {
		require.Equal(t, want, printable(text), "%q", text)
		for _, r := range quoted(text) {
			require.True(t, unicode.IsPrint(r), "%q", quoted(text))
		}
	}
	require.Equal(t, "no quorum", oneLine("redlock: no quorum"))
	require.Equal(t, "give one with --cert and --key", oneLine("give one in Node.TLS.Certificates (--cert and --key)"))
	require.Equal(t, "a; give the host by a name that is in its certificate", oneLine("a; give the host by a name that is in its certificate, or set Node.TLS.ServerName"), "there is no flag for it")
	require.Equal(t, "redlock: a name", printable("redlock: a name"), "of a lock")
}

// JSON keeps the text as it is: whoever reads it gets what was written.
func TestJSONEscapesWhatATerminalWouldObey(t *testing.T) {
	t.Parallel()
	text := "a\u009b2J\u202eb\u200b\x7f\U000e0001 ü \U0001f512"
	var out bytes.Buffer
	require.NoError(t, writeJSON(&out, map[string]string{"key": text}))
	for _, r := range strings.TrimSuffix(out.String(), "\n") {
		require.True(t, unicode.IsPrint(r), "%q in %s", r, out.String())
	}
	require.Contains(t, out.String(), "ü 🔒")
	var read map[string]string
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	require.Equal(t, text, read["key"])
}

// The library says what to do where a server refuses all writes, and quotes what that says. No second remedy is added.
func TestNoRemedyIsAddedToOneThatIsSaid(t *testing.T) {
	t.Parallel()
	for _, problem := range []string{
		"its memory is full, so it grants no locks; raise maxmemory: OOM command not allowed",
		"it cannot write to its disk, so it refuses locks; make room there: MISCONF Errors writing to the AOF file",
		"it lacks replicas, so it refuses locks; set min-replicas-to-write 0: NOREPLICAS Not enough good replicas",
	} {
		require.Equal(t, problem, withRemedy(problem))
	}
	require.Contains(t, withRemedy("OOM command not allowed"), "no memory left")
}

// A name server that fails says nothing about the node, nor that its name is wrong.
func TestANameServerThatFailsIsNotBlamedOnTheNode(t *testing.T) {
	t.Parallel()
	for _, silent := range []string{"lookup r1.lan: the name server (DNS) has not answered yet",
		"dial tcp: lookup r1.lan: i/o timeout", "lookup r1.lan on 10.0.0.1:53: server misbehaving"} {
		require.Contains(t, withRemedy(silent), "/etc/resolv.conf")
	}
	require.Contains(t, withRemedy("lookup r1.lan on 10.0.0.1:53: no such host"), "the name of the host")
}

// A server with TLS that has reached maxclients ends the connection, and cannot say why.
func TestAFullServerWithTLSIsThoughtOf(t *testing.T) {
	t.Parallel()
	require.Contains(t, withRemedy("the server closed the connection (EOF)"), "maxclients")
}

// What this machine has no more of is no fault of the server's. Linux says it in these words.
func TestALimitOfThisMachineHasARemedy(t *testing.T) {
	t.Parallel()
	require.Contains(t, withRemedy("dial tcp: socket: too many open files"), "ulimit -n")
	require.Contains(t, withRemedy("dial tcp 127.0.0.1:6379: connect: cannot assign requested address"), "ip_local_port_range")
}
