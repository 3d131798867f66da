package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A run that the race detector cut short by a defect of its own is repeated, unless something was found before.
func TestARunThatTheRaceDetectorCutShortIsRepeated(t *testing.T) {
	const crash = `ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 "((exiting || thr->fast_state.epoch() == kEpochLast)) != (0)" (0x0, 0x0)`
	for name, c := range map[string]struct {
		outcomes  map[string]outcome
		text      string
		mayRepeat bool
		again     bool
	}{
		"cut":                   {map[string]outcome{"": {"fail", 1}, "TestA": {"pass", 1}}, crash, true, true},
		"too often":             {map[string]outcome{"": {"fail", 1}, "TestA": {"pass", 1}}, crash, false, false},
		"after a test failed":   {map[string]outcome{"": {"fail", 1}, "TestA": {"fail", 1}}, crash, true, false},
		"after a race":          {map[string]outcome{"": {"fail", 1}}, "WARNING: DATA RACE\n" + crash, true, false},
		"an exit of some other": {map[string]outcome{"": {"fail", 1}}, "panic: no", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			p := program{name: "one", sum: "a"}
			r := newResults(&log, call(t, "", 0, false, p))
			again := r.finish(p, c.outcomes, []string{c.text}, 0, c.mayRepeat, assert.AnError)
			assert.Equal(t, c.again, again)
			assert.Contains(t, log.String(), c.text)
			if again {
				require.Zero(t, r.record.runs["one"].runs, "it does not count")
				require.Zero(t, r.failures())
			} else {
				require.Equal(t, ran{"a", 1, 1}, r.record.runs["one"])
				require.Equal(t, 1, r.failures())
			}
		})
	}
}
