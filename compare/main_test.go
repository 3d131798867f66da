package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/compare/internal/measure"
	"github.com/quorumlock/redlock/compare/internal/stats"
	"github.com/quorumlock/redlock/compare/internal/subject"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/marks"
)

// twoRounds has two subjects, one of which failed in the second round.
func twoRounds() *report {
	w := distinct("16 goroutines", measure.TCP, 16, measure.AllWell).headed(headline{uncontended, "cycles/s", measure.Rate})
	r := &report{Rounds: 2, Redis: "7.0.15", Versions: map[string]string{}}
	ours, base := r.find(w, "redlock"), r.find(w, subject.Baseline)
	ours.Samples = []measure.Sample{{measure.Rate: 3000, measure.CycleP50: 300}, {measure.Rate: 1000, measure.CycleP50: 900}}
	base.Samples = []measure.Sample{{measure.Rate: 1000}, nil}
	base.Errors = []string{"it broke"}
	r.conclude()
	return r
}

func TestARoundThatFailedIsMissingAndNotZero(t *testing.T) {
	r := twoRounds()
	ours, base := r.Results[0], r.Results[1]
	assert.Equal(t, stats.Summary{Median: 2000, Min: 1000, Max: 3000, Rounds: 2}, ours.Summary[measure.Rate])
	assert.Equal(t, stats.Summary{Median: 1000, Min: 1000, Max: 1000, Rounds: 1}, base.Summary[measure.Rate])
	assert.Equal(t, &stats.Summary{Median: 3, Min: 3, Max: 3, Rounds: 1}, ours.Ratio, "of the round that both have")
	assert.True(t, r.failed())
}

func TestTextShowsMediansSpreadRatioAndFailures(t *testing.T) {
	var out strings.Builder
	require.NoError(t, twoRounds().writeText(&out))
	for _, want := range []string{"16 goroutines\n", "2000 (1000–3000)", "600 µs (300 µs–900 µs)", "×3.00", "failed: it broke"} {
		assert.Contains(t, out.String(), want)
	}
}

func TestMarkdownGoesBetweenTheMarksAndNowhereElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	require.NoError(t, os.WriteFile(path, []byte("# Title\n"+tablesMarks.Begin+"\nformer\n"+tablesMarks.End+"\nrest\n"), 0o600))
	for range 2 { // the second time finds what the first wrote
		require.NoError(t, writeMarkdown(path, tablesMarks, twoRounds().markdown()))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), "# Title\n"+tablesMarks.Begin+"\n| | cycles/s |\n| --- | ---: |\n"), "%s", text)
	assert.True(t, strings.HasSuffix(string(text), tablesMarks.End+"\nrest\n"), "%s", text)
	assert.Contains(t, string(text), "| redlock | 2000 ±50 % **×3.00** |")
	assert.NotContains(t, string(text), "former")
	assert.Equal(t, 1, strings.Count(string(text), tablesMarks.Begin))

	require.NoError(t, os.WriteFile(path, []byte("# Title\n"), 0o600))
	assert.ErrorContains(t, writeMarkdown(path, tablesMarks, ""), "between which the tables go")
	require.NoError(t, writeMarkdown(filepath.Join(t.TempDir(), "new.md"), tablesMarks, "tables"))
}

func TestTheSmallTableHasMarksOfItsOwn(t *testing.T) {
	r := twoRounds()
	assert.NotContains(t, r.shortMarkdown(), "| redlock |", "no headline of this workload is in the small table")
	for _, res := range r.Results {
		res.workload = res.workload.headed(headline{uncontended, "cycles/s", measure.Rate}, headline{summary, "rate", measure.Rate})
	}
	path := filepath.Join(t.TempDir(), "README.md")
	both := summaryMarks.Begin + "\n" + summaryMarks.End + "\n" + tablesMarks.Begin + "\n" + tablesMarks.End + "\n"
	require.NoError(t, os.WriteFile(path, []byte(both), 0o600))
	for range 2 {
		require.NoError(t, writeMarkdown(path, tablesMarks, r.markdown()))
		require.NoError(t, writeMarkdown(path, summaryMarks, r.shortMarkdown()))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), summaryMarks.Begin+"\n| | rate |\n| --- | ---: |\n| redlock | 2000 ±50 % **×3.00** |\n"), "%s", text)
	assert.Contains(t, string(text), tablesMarks.Begin+"\n| | cycles/s |\n")
	assert.Equal(t, 1, strings.Count(string(text), "| rate |"), "%s", text)
}

func TestTheDocumentsHaveTheMarks(t *testing.T) {
	for path, m := range map[string]marks.Marks{"../docs/performance.md": tablesMarks, "../README.md": summaryMarks} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = m.Replace(string(text), "tables")
		assert.NoError(t, err, path)
	}
}

func TestValuesHaveThreeDigitsAndTheirUnits(t *testing.T) {
	for want, got := range map[string]string{
		"12345": show(measure.Rate, 12345.4), "80.0": show(measure.Rate, 80), "198 µs": show(measure.CycleP50, 198.4),
		"1.20 ms": show(measure.WaitP99, 1200), "2.50 s": show(measure.WaitMax, 2.5e6), "61.0 s": show(measure.SecondsKept, 61),
		"9.94": show(measure.Allocs, 9.94), "10.0": show(measure.Allocs, 9.96), "3": show(measure.Leftovers, 3), "0": show(measure.Allocs, 0),
	} {
		assert.Equal(t, want, got)
	}
}

func TestThePlansNameWhatThereIs(t *testing.T) {
	known := map[string]bool{}
	for _, s := range subject.All() {
		known[s.Name] = true
	}
	require.True(t, known[subject.Baseline])
	names := map[string]bool{}
	for _, w := range fullPlan() {
		assert.False(t, names[w.name], "two workloads are called %q", w.name)
		names[w.name] = true
		for _, s := range w.subjects {
			assert.True(t, known[s], s)
		}
		for _, m := range w.columns {
			assert.NotEmpty(t, titles[m], m)
		}
	}
	for name := range quickSubjectsOf {
		assert.True(t, names[name], name)
	}
	assert.Len(t, quickPlan(), len(quickSubjectsOf))
}

func TestABadCommandLineIsToldFromAFailure(t *testing.T) {
	for _, args := range [][]string{{"--rounds", "0"}, {"--nonsense"}, {"surplus"}, {"--scale", "--out", "x.md"}, {"--scale", "--summary", "x.md"}} {
		var out, log bytes.Buffer
		assert.Equal(t, 2, execute(context.Background(), args, &out, &log), args)
		assert.NotEmpty(t, log.String())
	}
	for _, args := range [][]string{{"--only", "("}, {"--only", "nobody's"}} {
		var out, log bytes.Buffer
		assert.Equal(t, 1, execute(context.Background(), args, &out, &log), args)
	}
}

func TestARunEndsInJSONThatCanBeRead(t *testing.T) {
	fleettest.Require(t, fleet.Process)
	var out, log bytes.Buffer
	var r report
	path := filepath.Join(t.TempDir(), "out.md")
	cycles := func() bool { // on a busy machine, a library may make none in a short run
		return len(r.Results) > 0 && !slices.ContainsFunc(r.Results, func(res *result) bool { return res.Summary[measure.Rate].Median == 0 })
	}
	for _, seconds := range []string{"0.3", "1", "3", "9"} {
		out.Reset()
		log.Reset()
		args := []string{"--rounds", "2", "--seconds", seconds, "--json", "--out", path, "--only", "^1 goroutine: (redlock|redsync redigo|limit)$"}
		require.Equal(t, 0, execute(t.Context(), args, &out, &log), log.String())
		r = report{}
		require.NoError(t, json.Unmarshal(out.Bytes(), &r))
		if cycles() {
			break
		}
	}
	require.Len(t, r.Results, 3)
	for _, res := range r.Results {
		assert.Len(t, res.Samples, 2)
		assert.Positive(t, res.Summary[measure.Rate].Median)
		assert.NotNil(t, res.Ratio, log.String())
	}
	assert.NotEmpty(t, r.Redis)
	assert.Equal(t, 6, strings.Count(log.String(), "\n"))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(text), "| limit |")
}

func TestAnInterruptedRunEndsItsServersAndSaysSo(t *testing.T) {
	fleettest.Require(t, fleet.Process)
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	log := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }) // at the first sample
	assert.Equal(t, 130, execute(ctx, []string{"--seconds", "0.05", "--only", "^1 goroutine: "}, &out, log))
	assert.Empty(t, out.String())
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestTheMarkdownTablesNameSubjectsThatThereAre(t *testing.T) {
	var names []string
	for _, s := range subject.All() {
		names = append(names, s.Name)
	}
	assert.Subset(t, names, headlined)
	assert.Subset(t, headlined, summarized)
}
