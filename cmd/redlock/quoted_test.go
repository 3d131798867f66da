//go:build unix

package main_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

// Every command that README.md and docs/ quote for the shell is run, as far as it can be run here.
//
// A block of a document says what it has: sh (commands), console (commands behind "$ ", with their output), crontab, or
// something that is not for the shell. Commands within the text are those in code spans.

// A quotedRule is about one command that is not simply run, and expected to succeed.
type quotedRule struct {
	notRun  string // why it is not run. Of redlock, the flags are checked all the same
	code    int    // the exit code that it has
	instead string // what is run: the same with less time, or with what it needs
}

// everyRun leads for a moment: it ends between two runs.
const everyRun = "timeout --foreground --preserve-status --signal=INT 2 redlock run --every 5m report -- /opt/report.sh"

var quotedRules = map[string]quotedRule{
	"git clone https://github.com/quorumlock/redlock && cd redlock":                          {notRun: "tests stay on this machine"},
	"go get github.com/quorumlock/redlock github.com/quorumlock/redlock/adapters/goredis":    {notRun: "internal/consumer does, from a proxy of its own"},
	"go get github.com/quorumlock/redlock github.com/quorumlock/redlock/adapters/prometheus": {notRun: "likewise"},

	`go install ./cmd/redlock && export PATH="$PATH:$(go env GOPATH)/bin"`: {instead: `go install -C "$ROOT" ./cmd/redlock && export PATH="$PATH:$GOBIN"`},

	"redlock chaos run --scenario failover --subject single --out report": {code: 1,
		instead: "redlock chaos run --scenario failover --subject single --out report --seconds 2"},
	"redlock chaos run --scenario failover --subject single": {code: 1,
		instead: "redlock chaos run --scenario failover --subject single --seconds 2 --out reports/docker/failover"},
	"redlock chaos run --scenario failover --subject redlock-fair": {
		instead: "redlock chaos run --scenario failover --subject redlock-fair --seconds 2"},
	"redlock chaos run --search 10m":          {instead: "redlock chaos run --search 10s"},
	"redlock chaos run --search 10m --seed 2": {instead: "redlock chaos run --search 10s --seed 2"},
	`redlock chaos run --scenario failover --subject-command "python3 examples/chaos-python/lock.py single"`: {code: 1,
		instead: `redlock chaos run --scenario failover --subject-command "python3 $ROOT/examples/chaos-python/lock.py single" --seconds 2`},
	"redlock chaos run --scenario all --fleet docker --out report":                           {notRun: "it takes a quarter of an hour; make chaos runs it"},
	"redlock chaos run --scenario all --subject redlock --fleet docker --out reports/docker": {notRun: "likewise"},
	"redlock chaos matrix --json":          {notRun: "it takes minutes; chaos_test.go runs one row of it"},
	"redlock chaos matrix --fleet process": {notRun: "likewise"},
	"redlock chaos scoreboard --scenario failover,flush --seeds 2": {code: 1,
		instead: "redlock chaos scoreboard --scenario failover --subject single --seeds 1"},
	"redlock chaos scoreboard --resume board.json --out board.md":            {notRun: "it takes more than an hour"},
	"(cd compare && go run ./scoreboard --resume board.json --out board.md)": {notRun: "likewise; its tests run a part of it"},
	"redlock audit --clock-error 10ms examples/audit/web-1.jsonl examples/audit/web-2.jsonl": {code: 1,
		instead: `cd "$ROOT" && redlock audit --clock-error 10ms examples/audit/web-1.jsonl examples/audit/web-2.jsonl`},
	"redlock audit": {notRun: "it is only named"},
	"redlock run --journal /var/log/jobs/leases.jsonl nightly -- ./backup.sh": {
		instead: "redlock run --journal leases.jsonl nightly -- true && redlock audit leases.jsonl"},
	"redlock top":                         {instead: "timeout --foreground --preserve-status --signal=INT 2 redlock top"},
	"redlock top KEY…":                    {instead: "timeout --foreground --preserve-status --signal=INT 2 redlock top nightly hourly"},
	"redlock bench":                       {instead: "redlock bench --seconds 0.2"},
	"redlock run":                         {notRun: "it is only named"},
	"redlock run --wait 0 --at-least DUR": {instead: "redlock run --wait 0 --at-least 2s once -- true"},
	"redlock run --every DUR":             {instead: everyRun, code: 130},
	"redlock run --every 5m report -- /opt/report.sh": {instead: everyRun, code: 130},
	"redlock run --nodes-file /etc/redlock/nodes --every 5m report -- /opt/report.sh": {code: 130,
		instead: "timeout --foreground --preserve-status --signal=INT 2 redlock run --nodes-file /etc/redlock/nodes --every 5m report -- /opt/report.sh"},
	"redlock run --read KEY":                    {instead: "redlock run --wait 5s --read table -- true"},
	"redlock run --fair":                        {instead: "redlock run --wait 5s --fair queue -- true"},
	"redlock release --force":                   {notRun: "it is only named"},
	"redlock inspect":                           {notRun: "it is only named"},
	"redlock release --token":                   {instead: "redlock release --help"},
	"redlock release --token TOKEN KEY":         {code: 76, instead: "redlock release --token 0123456789abcdef0123456789abcdef nightly"}, // nobody has it
	"redlock doctor --prefix lock:":             {code: 1},                                                                               // the nodes have agreed on another prefix
	"redlock enroll --change-config":            {code: 64},                                                                              // here is no terminal to confirm it
	"redlock enroll --only-new":                 {},
	"redlock COMMAND --help":                    {instead: "redlock run --help"},
	"go run ./try":                              {notRun: "TestTheProgramInTheReadmeCompiles has the program"},
	"go run ./examples/election":                {notRun: "its own test runs it"},
	"go run ./examples/cron":                    {notRun: "likewise"},
	"go run ./examples/http":                    {notRun: "likewise"},
	"go doc -all github.com/quorumlock/redlock": {instead: `(cd "$ROOT" && go doc -all github.com/quorumlock/redlock)`},
	"ACL SETUSER locker >NEW":                   {instead: `redis-cli -p 7001 ACL SETUSER locker '>NEW'`},
	"ACL SETUSER locker <OLD":                   {instead: `redis-cli -p 7001 ACL SETUSER locker '>OLD' && redis-cli -p 7001 ACL SETUSER locker '<OLD'`},
	"redlock doctor --nodes 127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:1": {code: 1},
	"CLIENT KILL USER locker":      {instead: "redis-cli -p 7001 CLIENT KILL USER locker"},
	"GET redlock:config":           {instead: "redis-cli -p 7001 GET redlock:config"},
	"apt-get install redis-server": {notRun: "it changes the machine"},
}

// What stands for something else, in code spans.
var (
	placeholders = map[string]string{"DIR": "man", "SHELL": "bash", "KEY": "nightly", "NAME": "nightly"}
	placeholder  = regexp.MustCompile(`\b(?:DIR|SHELL|KEY|NAME)\b`)
)

// A quote is a block of a document, or the code spans of a document together.
type quote struct {
	where    string
	kind     string // sh, console, crontab or inline
	commands []quotedCommand
}

type quotedCommand struct {
	text   string
	output string // of a console
}

var (
	fence       = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	inlineShell = regexp.MustCompile("`((?:redlock|make|go run|go doc|go test|redis-cli|apt-get|ACL|CLIENT KILL USER|GET|for) [^`]+)`")
	comment     = regexp.MustCompile(`\s+# .*$`)
	cronTime    = regexp.MustCompile(`^(?:[\d*/,-]+ ){5}\S+ (.*)$`)
)

func quotesOf(t *testing.T, path string) (quotes []quote) {
	text := textOf(t, path)
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		q := quote{where: fmt.Sprintf("%s:%d", filepath.Base(path), 1+strings.Count(text[:at[0]], "\n")), kind: text[at[2]:at[3]]}
		switch q.kind {
		case "go", "sql", "text":
			continue
		case "sh", "console", "crontab":
		default:
			t.Errorf("%s: a block of %q; say what it has: sh, console, crontab, text, go or sql", q.where, q.kind)
		}
		for line := range strings.Lines(text[at[4]:at[5]]) {
			line = strings.TrimSuffix(line, "\n")
			command := strings.TrimSpace(comment.ReplaceAllString(line, ""))
			switch {
			case q.kind == "console" && !strings.HasPrefix(line, "$ "):
				require.NotEmpty(t, q.commands, q.where)
				q.commands[len(q.commands)-1].output += line + "\n"
				continue
			case command == "" || strings.HasPrefix(command, "#"):
				continue
			case q.kind == "crontab":
				job := cronTime.FindStringSubmatch(command)
				require.NotNil(t, job, q.where)
				command = job[1]
			}
			q.commands = append(q.commands, quotedCommand{text: strings.TrimPrefix(command, "$ ")})
		}
		quotes = append(quotes, q)
	}
	inline := quote{where: filepath.Base(path), kind: "inline"}
	for _, m := range inlineShell.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		c := quotedCommand{text: m[1]}
		if !slices.Contains(inline.commands, c) {
			inline.commands = append(inline.commands, c)
		}
	}
	slices.SortStableFunc(inline.commands, func(a, b quotedCommand) int { // what stops the servers comes last
		return strings.Count(a.text, "shutdown") - strings.Count(b.text, "shutdown")
	})
	return append(quotes, inline)
}

func TestEveryQuotedCommandWorks(t *testing.T) {
	t.Parallel()
	fleettest.Require(t, fleet.Process)
	paths, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	used := map[string]bool{}
	ran := 0
	// Without this no command below would run: the test is left out as a whole.
	fleettest.NewAuthority(t).Secure(t, fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1}).Nodes(), "optional")
	for _, path := range append(paths, "../../README.md") {
		quotes := quotesOf(t, path)
		for i, q := range quotes {
			if len(q.commands) == 0 {
				continue
			}
			t.Run(q.where, func(t *testing.T) {
				for _, c := range q.commands {
					used[c.text] = true
				}
				h := newQuoteHouse(t, q)
				if q.kind == "crontab" { // what was said just before
					h.run(t, quotes[i-1])
				}
				ran += h.run(t, q)
			})
		}
	}
	for command := range quotedRules {
		assert.True(t, used[command], "no document quotes this any more: %s", command)
	}
	t.Logf("%d commands were run", ran)
	require.Greater(t, ran, 40)
}

// The script that keeps cron silent prints what a job prints and an outage, and nothing where another host has the tick.
func TestTheQuotedScriptKeepsCronSilentForHeldLocksOnly(t *testing.T) {
	t.Parallel()
	fleettest.Require(t, fleet.Process)
	script := regexp.MustCompile("(?s)```text\n(#!/bin/sh\n# /usr/local/bin/report-once\n.*?)```").FindStringSubmatch(textOf(t, "../../docs/operations.md"))
	require.NotNil(t, script)
	h := newQuoteHouse(t, quote{kind: "crontab"})
	h.run(t, quote{commands: []quotedCommand{{text: "redlock enroll --only-new --max-ttl 2m --nodes-file /etc/redlock/nodes"}}})
	path := filepath.Join(h.dir, "report-once")
	require.NoError(t, os.WriteFile(path, []byte(h.places.Replace(script[1])), 0o700))
	tick := func() (out string, code int) {
		cron := exec.CommandContext(t.Context(), path)
		cron.Env = h.env
		said, err := cron.CombinedOutput()
		if exit := new(exec.ExitError); !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		return string(said), cron.ProcessState.ExitCode()
	}
	out, code := tick()
	require.Equal(t, "reporting under report\n", out)
	require.Zero(t, code)
	out, code = tick() // of another host: --at-least keeps the lock
	require.Empty(t, out)
	require.Equal(t, 75, code)
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "redlock.nodes"), []byte("127.0.0.1:1\n127.0.0.1:2\n127.0.0.1:3\n"), 0o600))
	out, code = tick()
	require.Contains(t, out, "too few nodes answer")
	require.Equal(t, 69, code)
}

// A quoteHouse is what the commands find: servers at the addresses of the documents, files, a directory of their own.
type quoteHouse struct {
	dir    string
	env    []string
	places *strings.Replacer // what stands for what is in the documents
}

func newQuoteHouse(t *testing.T, q quote) *quoteHouse {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	authority := fleettest.NewAuthority(t)
	secure := authority.Secure(t, f.Nodes(), "optional")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	h := &quoteHouse{dir: t.TempDir()}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(h.dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	list := write("redlock.nodes", "rediss://"+strings.Join(secure, "\nrediss://")+"\n", 0o600)
	job := write("report.sh", "#!/bin/sh\necho \"reporting under $REDLOCK_KEY\"\n", 0o700)
	for name, from := range map[string]string{"ca.pem": authority.CA, "client.pem": authority.ClientCert, "client.key": authority.ClientKey} {
		write(name, textOf(t, from), 0o600)
	}
	replace := []string{"/etc/redlock/nodes", list, "/opt/report.sh", job, "/usr/local/bin/redlock", "redlock"}
	starts := false // the commands start servers themselves
	for _, c := range q.commands {
		starts = starts || strings.Contains(c.text, "redis-server --bind")
	}
	for i, n := range f.Nodes() {
		port := portOf(t, n.URL())
		if starts {
			port = freePort(t)
			t.Cleanup(func() { shutDown(port) })
		}
		replace = append(replace, strconv.Itoa(7001+i), port)
	}
	h.places = strings.NewReplacer(replace...)
	bin := filepath.Join(h.dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	if !starts {
		write("bin/redlock", patient, 0o700)
	}
	h.env = []string{"REDLOCK_NODES=" + strings.Join(f.URLs(), ","), "SSL_CERT_FILE=" + authority.CA, "ROOT=" + root, "GOBIN=" + bin,
		"REDLOCK=" + binary, "PATH=" + bin + ":" + os.Getenv("PATH")}
	enrolls := slices.ContainsFunc(q.commands, func(c quotedCommand) bool { return strings.HasPrefix(c.text, "redlock enroll") })
	if q.kind == "inline" || q.kind != "crontab" && !enrolls {
		require.NoError(t, newClient(t, f).Enroll(t.Context()))
	}
	return h
}

// patient is the command, with more time for the nodes of a busy machine.
const patient = `#!/bin/sh
case "$1" in
run | enroll | doctor | inspect | top | release | bench)
	command=$1
	shift
	set -- "$command" --node-timeout=3s "$@" ;;
esac
exec "$REDLOCK" "$@"
`

// run runs the commands in one shell, and returns how many it ran.
func (h *quoteHouse) run(t *testing.T, q quote) (ran int) {
	const mark = "\x01"
	script := "make() { command make -C \"$ROOT\" --dry-run \"$@\" >/dev/null; }\n" // what it would run takes minutes
	var commands []quotedCommand
	for _, c := range q.commands {
		rule := quotedRules[c.text]
		text := c.text
		if strings.Contains(text, "python3 ") {
			required.Python(t)
		}
		switch {
		case rule.notRun != "":
			t.Logf("NOT RUN: %s: %s", c.text, rule.notRun)
			if !strings.HasPrefix(text, "redlock ") {
				continue
			}
			text += " --help >/dev/null"
			rule.code = 0
		case rule.instead != "":
			text = rule.instead
		case strings.HasPrefix(text, "go test -bench "): // it would take minutes; there must be such a benchmark
			text = `grep -rq "func Benchmark.*` + strings.TrimPrefix(text, "go test -bench ") + `" --include=*_test.go "$ROOT"`
		case strings.HasPrefix(text, "go test -run "): // likewise
			name := strings.Fields(strings.TrimPrefix(text, "go test -run "))[0]
			text = `grep -rq "func ` + name + `" --include=*_test.go "$ROOT"`
		case q.kind == "inline":
			text = placeholder.ReplaceAllStringFunc(text, func(name string) string { return placeholders[name] })
		}
		script += fmt.Sprintf("{ %s\n} 2>&1; echo \"%s$?%s\"\n", h.places.Replace(text), mark, mark)
		commands = append(commands, c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script)
	shell.Dir, shell.WaitDelay = h.dir, time.Second
	for _, v := range os.Environ() {
		if !isOwnVariable(v) && !strings.HasPrefix(v, "PATH=") {
			shell.Env = append(shell.Env, v)
		}
	}
	shell.Env = append(shell.Env, h.env...)
	shell.SysProcAttr = noTerminal()
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	parts := strings.Split(string(out), mark)
	require.Len(t, parts, 2*len(commands)+1, "%s", out)
	for i, c := range commands {
		said, code := parts[2*i], parts[2*i+1]
		rule := quotedRules[c.text]
		if rule.notRun != "" {
			rule.code = 0
		} else {
			ran++
		}
		assert.Equal(t, strconv.Itoa(rule.code), code, "%s: %s", c.text, said)
		if q.kind == "console" {
			said = otherProducts.Replace(strings.TrimPrefix(said, "\n"))
			assert.Regexp(t, likeOutput(h.places.Replace(c.output)), said, c.text)
		}
	}
	return ran
}

// otherProducts are before the number of a version, where the servers are not Redis.
var otherProducts = strings.NewReplacer("valkey-", "", "redict-", "")

// likeOutput matches output that differs only in its numbers, times and the width of its columns.
func likeOutput(quoted string) string {
	pattern := regexp.QuoteMeta(strings.TrimSpace(quoted))
	pattern = regexp.MustCompile(`(?:\\\+|-)?\d+(\\\.\d+)*(µs|ms|s)?`).ReplaceAllStringFunc(pattern, func(number string) string {
		if len(number) <= 1 || strings.HasPrefix(number, "127") { // small counts and addresses are told as they are
			return number
		}
		return `[+-]?[\d.]+(?:µs|ms|s)?`
	})
	return `^\s*` + regexp.MustCompile(`\s+`).ReplaceAllString(pattern, `\s+`) + `\s*$`
}

func portOf(t *testing.T, url string) string {
	_, port, found := strings.Cut(strings.TrimPrefix(url, "redis://"), ":")
	require.True(t, found)
	return port
}

func shutDown(port string) {
	if conn, err := redis.Dial("tcp", "127.0.0.1:"+port); err == nil {
		_, _ = conn.Do("SHUTDOWN", "NOSAVE")
		conn.Close()
	}
}

func TestTheTestOfQuotedOutputSeesWhatDiffers(t *testing.T) {
	t.Parallel()
	const quoted = "NODE  TRIP\n127.0.0.1:7001  312µs  +0s  3 of 5 vote (token 1795)"
	for output, same := range map[string]bool{
		"NODE             TRIP\n127.0.0.1:7001   1.2ms   -12µs  3 of 5 vote (token 7)\n": true,
		"NODE  TRIP\n127.0.0.1:7001  312µs  0s  2 of 5 vote (token 1795)":                false,
		"NODE  TRIP\n127.0.0.1:7001  312µs  0s  3 of 5 vote":                             false,
		"NODE  TRIP\n127.0.0.1:7001  –  0s  3 of 5 vote (token 1795)":                    false,
		"a line before\nNODE  TRIP\n127.0.0.1:7001  312µs  0s  3 of 5 vote (token 1795)": false,
	} {
		require.Equal(t, same, regexp.MustCompile(likeOutput(quoted)).MatchString(output), output)
	}
}
