package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatTheTestsPrintIsReadByTheTestsAtTheTop(t *testing.T) {
	all := outcomes(strings.Join([]string{
		"=== RUN   TestA", "=== RUN   TestA/process", "    a_test.go:1: NOT TESTED: no server. (REDLOCK_REQUIRE=redis makes this a failure.)",
		"--- PASS: TestA (0.10s)", "    --- SKIP: TestA/process (0.10s)",
		"=== RUN   TestB", "=== PAUSE TestB", "=== RUN   TestC", "    c_test.go:2: of C", "=== NAME  TestB",
		"    b_test.go:3: NOT TESTED: no engine. (REDLOCK_REQUIRE=docker makes this a failure.)", "=== NAME  TestC", "    c_test.go:4: more of C",
		"--- FAIL: TestC (1.00s)", "=== CONT  TestB", "--- SKIP: TestB (0.00s)", "=== RUN   TestD", "panic: test timed out", "",
	}, "\n"))
	verdicts := map[string]string{}
	for name, o := range all {
		verdicts[name] = o.verdict
	}
	require.Equal(t, map[string]string{"TestA": "PASS", "TestB": "SKIP", "TestC": "FAIL", "TestD": ""}, verdicts)
	require.Regexp(t, needsServer, all["TestA"].text)
	require.NotRegexp(t, needsServer, all["TestB"].text, "it needs something else")
	require.Contains(t, all["TestC"].text, "of C")
	require.Contains(t, all["TestC"].text, "more of C")
	require.Contains(t, all["TestB"].text, "no engine")
}

func TestAScenarioIsFineOnlyIfItTookPlaceAsWrittenAndWasSafe(t *testing.T) {
	safe := `{"scenario":"failover","verdict":"safe","unmet":[],"panics":[]}`
	require.Equal(t, act{"failover", "safe", true}, readAct("failover", []byte(safe), nil))
	require.Equal(t, act{"failover", "unsafe", false}, readAct("failover", []byte(`{"verdict":"unsafe"}`), errors.New("exit status 1")))
	unmet := readAct("failover", []byte(`{"verdict":"safe","unmet":["nobody was promoted"]}`), errors.New("exit status 2"))
	require.False(t, unmet.fine)
	require.Contains(t, unmet.verdict, "nobody was promoted")
	for _, report := range []string{"", "{}", `{"runs":[]}`} {
		none := readAct("failover", []byte(report), errors.New("exit status 2"))
		require.Equal(t, act{"failover", "not run: exit status 2", false}, none)
	}
}

func TestTheTableHidesNothing(t *testing.T) {
	all := abilities{shown: "9.9.9", light: true, channels: true, dryRun: true, subrules: true, named: true}
	good := &row{server: server{"redis-sid", "9.9.9", "/x"}, abilities: all, suite: tally{passed: 7},
		scenarios: acts{{"failover", "safe", true}, {"clock-ahead", "safe", true}}}
	bad := &row{server: server{"valkey-bookworm-backports", "1.2", "/y"}, abilities: abilities{shown: "7.2.4", kill: "no", absent: []string{"run_id"}},
		suite: tally{passed: 5, failed: []string{"TestA"}, skipped: []string{"TestB"}, partly: []string{"TestC"}, chance: []string{"TestD"}}, scenarios: acts{{"failover", "unsafe", false}}}
	require.True(t, good.fine())
	require.False(t, bad.fine())
	require.False(t, (&row{scenarios: bad.scenarios}).fine())

	made := table{tests: 7, rows: []*row{good, bad}, date: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}
	text := made.markdown()
	for _, part := range []string{
		"| Redis 9.9.9 | sid | 7 of 7 | safe | safe | all that the library uses |",
		"| Valkey 1.2 | bookworm-backports | 5 of 7, 1 failed, 1 left out, 1 left out in part, 1 only at the second try | unsafe | no `ZADD GT`",
		"Failed on Valkey 1.2: `TestA`", "Left out on Valkey 1.2: `TestB`", "Left out in part on Valkey 1.2: `TestC`", "stale connections cannot be ended", "INFO lacks run_id", "Status shows it as 7.2.4", "Made on 2026-11-22: the 7 tests",
	} {
		require.Contains(t, text, part)
	}
	replaced, err := tableMarks.Replace("before\n"+tableMarks.Begin+"\nold\n"+tableMarks.End+"\nafter\n", text)
	require.NoError(t, err)
	require.Equal(t, "before\n"+tableMarks.Begin+"\n"+text+tableMarks.End+"\nafter\n", replaced)
	_, err = tableMarks.Replace("nothing", text)
	require.ErrorContains(t, err, "it lacks the lines")
}

func TestLinesOfServersAreRead(t *testing.T) {
	found, err := parseServers("redis-bullseye 6.0.16 /a b/server\nvalkey-bookworm-backports 8.0.1 /c/server\n")
	require.NoError(t, err)
	require.Equal(t, []server{{"redis-bullseye", "6.0.16", "/a b/server"}, {"valkey-bookworm-backports", "8.0.1", "/c/server"}}, found)
	require.Equal(t, "Valkey 8.0.1 of bookworm-backports", found[1].String())
	for _, text := range []string{"redis", "redis-x 1", "redis 1 /a"} {
		_, err := parseServers(text)
		require.Error(t, err, text)
	}
}
