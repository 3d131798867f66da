package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos"
	chaoscheck "github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/report"
	"github.com/quorumlock/redlock/chaos/scenario"
)

// The one scenario has run, and then the comparison failed or was interrupted.
func TestJSONOfOneScenarioSaysWhyItsComparisonIsMissing(t *testing.T) {
	t.Parallel()
	o := chaosOptions{plays: []scenario.Scenario{{Name: "failover"}}}
	text := func(r chaosResult) string {
		r.Runs = []report.Run{{Result: chaoscheck.Result{Scenario: "failover", Verdict: chaoscheck.Safe}}}
		var out strings.Builder
		require.NoError(t, writeJSON(&out, o.document(&r)))
		return out.String()
	}
	require.True(t, strings.HasPrefix(text(chaosResult{}), `{"scenario":"failover"`))
	require.Contains(t, text(chaosResult{Interrupted: true}), `"interrupted":true`)
	require.Contains(t, text(chaosResult{LeftOut: []leftOut{{"failover", "to compare with, single: no server"}}}), `"why":"to compare with, single: no server"`)
}

func TestAnAbortedRunIsNoComparison(t *testing.T) {
	t.Parallel()
	beside := &chaos.Outcome{Result: chaoscheck.Result{Verdict: chaoscheck.Safe}}
	compared, err := comparison("single", beside)
	require.NoError(t, err)
	require.Len(t, compared, 1)
	beside.Panics = []string{"client 1: boom"}
	_, err = comparison("single", beside)
	require.ErrorContains(t, err, "to compare with, single: aborted: client 1: boom")
	beside.Panics, beside.Error = nil, "no lock"
	_, err = comparison("single", beside)
	require.ErrorContains(t, err, "no lock")
	beside.Verdict = chaoscheck.Unsafe
	_, err = comparison("single", beside)
	require.NoError(t, err, "it showed what it was to show")
}

func TestAMatrixThatIsNotAsExpectedIsOneObject(t *testing.T) {
	t.Parallel()
	r := matrixResult{Expected: true}
	code, why := r.end("embedded")
	require.Equal(t, exitUnable, code)
	require.Error(t, why)
	r.Runs = []report.Run{{}}
	code, why = r.end("embedded")
	require.Zero(t, code)
	require.NoError(t, why)
	r.Expected = false
	code, why = r.end("embedded")
	require.Equal(t, exitFailed, code)
	require.Error(t, why)
}

// A script that does not come to its fault finds nothing, and the history is safe.
func TestASafeVerdictOfAScenarioThatWasAbortedIsNotTheExpectedOne(t *testing.T) {
	t.Parallel()
	outcome := func(verdict chaoscheck.Verdict) *chaos.Outcome {
		return &chaos.Outcome{Result: chaoscheck.Result{Verdict: verdict}}
	}
	require.True(t, asExpected("redlock", outcome(chaoscheck.Safe)))
	require.False(t, asExpected("redlock", outcome(chaoscheck.Unsure)))
	require.False(t, asExpected("single", outcome(chaoscheck.Safe)))
	aborted, panicked := outcome(chaoscheck.Safe), outcome(chaoscheck.Safe)
	aborted.Error, panicked.Panics = "the fault could not be injected", []string{"client 1: boom"}
	for _, o := range []*chaos.Outcome{aborted, panicked} {
		require.False(t, asExpected("redlock", o))
	}
	require.Contains(t, markdownRow(aborted), "| safe, aborted |")
	require.Contains(t, markdownRow(panicked), "| safe, panicked |")
	aborted.Verdict, panicked.Verdict = chaoscheck.Unsafe, chaoscheck.Unsafe
	for _, o := range []*chaos.Outcome{aborted, panicked} {
		require.True(t, asExpected("single", o), "it showed what it was to show")
	}
}
