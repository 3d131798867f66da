package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// call adds so many runs of each program to the file, as a call of this program does, and returns what it then knows.
func call(t *testing.T, file string, runs int, failed bool, programs ...program) *record {
	t.Helper()
	r, err := openRecord(file, programs)
	require.NoError(t, err)
	for _, p := range programs {
		for range runs {
			require.NoError(t, r.add(p, failed))
		}
	}
	return r
}

func TestTheRunsOfSeveralCallsAddUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record")
	one, two := program{name: "one", sum: "a"}, program{name: "two", sum: "b"}
	call(t, file, 2, false, one, two)
	r := call(t, file, 3, false, one)
	assert.Equal(t, map[string]int{"one": 2}, r.before, "the runs that are not needed again")
	assert.Equal(t, map[string]ran{"one": {"a", 5, 0}, "two": {"b", 2, 0}}, r.runs)
	assert.False(t, r.report())

	r = call(t, file, 0, false, one, two)
	assert.Equal(t, map[string]int{"one": 5, "two": 2}, r.before)
}

func TestAFailureOfAFormerCallIsStillReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record")
	p := program{name: "one", sum: "a"}
	call(t, file, 1, true, p)
	assert.True(t, call(t, file, 1, false, p).report())
}

func TestAProgramThatHasChangedBeginsAnew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record")
	other := program{name: "two", sum: "b"}
	call(t, file, 7, true, program{name: "one", sum: "a"}, other)
	r := call(t, file, 1, false, program{name: "one", sum: "changed"})
	assert.Equal(t, map[string]int{"one": 0}, r.before)
	assert.Equal(t, map[string]ran{"one": {"changed", 1, 0}, "two": {"b", 7, 7}}, r.runs)
	assert.False(t, r.report())
}

func TestAFileThatIsNoRecordIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record")
	require.NoError(t, os.WriteFile(file, []byte("one a 1 0\nstress: nothing to see\n"), 0o666))
	_, err := openRecord(file, nil)
	require.ErrorContains(t, err, "nothing to see")
}

func TestWithoutAFileNothingIsKept(t *testing.T) {
	t.Chdir(t.TempDir())
	r := call(t, "", 1, true, program{name: "one", sum: "a"})
	assert.False(t, r.report(), "the caller reports the failures of this call")
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Empty(t, entries)
}
