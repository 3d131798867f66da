//go:build unix

package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// What is wrong with the command line is told in words of the command line: no function of Go, no word of a library.
func TestWrongUsageIsToldInPlainWords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	for line, said := range map[string]string{
		"demo now":                     `redlock demo takes no arguments, but "now" is one; see redlock demo --help`,
		"chaos check":                  `redlock chaos check needs one HISTORY.jsonl; see redlock chaos check --help`,
		"chaos run x":                  `redlock chaos run takes no arguments, but "x" is one`,
		"demo --seconds abc":           `--seconds "abc": give a number; see redlock demo --help`,
		"run --kill-after 5 k -- true": `--kill-after "5": give a duration such as 30s or 5m`,
		"run --durable=maybe k":        `--durable "maybe": give true or false`,
		"top --count x":                `--count "x": give a whole number`,
		"run --nope":                   `there is no flag --nope`,
		"run -x":                       `there is no flag -x`,
		"run --nodes":                  `--nodes needs a value`,
		"run --=3":                     `is not a flag`,
		"dance":                        `there is no command "dance"`,
		"run --nodes embedded --wait 0 --owner " + long + " k -- true": `--owner "xxxxxxxxxxxxxxxxxxxx"… has 5000 bytes, more than the 256 allowed`,
		"inspect --nodes embedded " + long:                             `KEY "xxxxxxxxxxxxxxxxxxxx"… has 5000 bytes, more than the 1024 allowed; use a hash of it`,
		"run --nodes embedded --node-timeout 250ns k -- true":          `--node-timeout 250ns is too short to be meant; give it a unit: 250ms, for example`,
		"run --nodes embedded redlock:node -- true":                    `redlock: KEY: the key "redlock:node" is one that this library uses itself; use another KEY or --prefix`,
		"run --kill-after " + long + " k -- true":                      `…: give a duration`,
		"demo " + long:                      `"… is one`,
		long:                                `there is no command "xxx`,
		"run --wait " + long + " k -- true": `…: give 0, a duration such as 30s, or forever`,
	} {
		code, out, errs := run(t, strings.Fields(line)...)
		require.Equal(t, 64, code, errs)
		require.Empty(t, out)
		require.Contains(t, errs, said)
		require.Less(t, len(errs), 300, errs)
		for _, word := range []string{"strconv", "arg(s)", "unknown command", "time: ", "With", "parsing"} {
			require.NotContains(t, errs, word)
		}
	}
	code, _, errs := run(t, "inspect", "--nodes=embedded", "")
	require.Equal(t, 64, code)
	require.Equal(t, "redlock: KEY: it is empty\n", errs)
}

// The library's errors name what a Go program would change.
func TestErrorsOfTheLibraryAreToldWithTheFlags(t *testing.T) {
	t.Parallel()
	for flags, said := range map[string]string{
		"--max-ttl=30s":              "`redlock enroll --only-new` ends this now",
		"--durable":                  "--durable is set, but it keeps no append-only file; set appendonly yes and appendfsync always, or give --durable=false",
		"--nodes=SAME --max-ttl=30s": "it is the same server as ",
	} {
		f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}) // the first run writes its configuration on the nodes
		same := strings.Replace(f.URLs()[1], "127.0.0.1", "localhost", 1)
		flags = strings.Replace(flags, "SAME", strings.Join(append(f.URLs()[:2:2], same), ","), 1)
		for _, command := range []string{"doctor", "doctor --json", "run --wait=0 k -- true", "run --wait=0 --json k -- true"} {
			_, out, errs := run(t, with(strings.Fields(command), append([]string{nodes(f)}, strings.Fields(flags)...)...)...)
			require.Contains(t, out+errs, said, command)
			for _, word := range []string{"Nodes[", "Config.", "Client.", "OnlyNew", "unset Durable"} {
				require.NotContains(t, out+errs, word, command)
			}
		}
	}
}

func TestDoctorSaysOnceWhatItWarnsOf(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "default", "-client|kill")
	}
	code, out, _ := run(t, "doctor", nodes(f))
	require.Equal(t, 0, code)
	require.Equal(t, 1, strings.Count(out, "\n! "), out)
	var names []string
	for _, url := range f.URLs() {
		names = append(names, strings.TrimPrefix(url, "redis://"))
	}
	require.Contains(t, out, "\n! "+strings.Join(names, ", ")+" (each): ")
}

func TestWhatIsSaidOfANodeAndItsDatabaseIsRight(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 1})
	code, out, _ := run(t, "doctor", nodes(f)+"/99")
	require.Equal(t, 1, code)
	require.Contains(t, out, "refused the database: ERR DB index is out of range; the server has no database of this number")
	require.Contains(t, out, "0 of 1 node votes, and it takes 1")
	code, out, errs := run(t, "inspect", nodes(f), "--node-timeout=3s", "k")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "nobody has it on a quorum (which is 1 of 1 node)")
}

// The server says only that it does not know the command.
func TestDoctorSaysWhatToDoAboutARenamedCommand(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"EVALSHA", "SCRIPT", "TIME", "INFO", "ZADD"} {
		f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1, Args: []string{"--rename-command", command, ""}})
		_, _, _ = run(t, "enroll", nodes(f))
		code, out, _ := run(t, "doctor", nodes(f))
		require.Equal(t, 1, code, command)
		require.Regexp(t, `(?i)unknown (redis )?command.*; if its redis.conf has a rename-command for it, remove that line`, out, command)
	}
}
