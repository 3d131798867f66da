package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// The library says it in the text of a refusal, and the command of what it finds. A value must not be a lock of this
// library in one line, and another's in the next one.
func TestTheCommandCallsForeignWhatTheLibraryCallsForeign(t *testing.T) {
	t.Parallel()
	const digits = "0123456789abcdef0123456789abcdef"
	for value, want := range map[string]bool{
		digits:                            false,
		strings.ToUpper(digits):           false,
		digits + ":3b3de337:web-1/7:cron": false,
		digits + ":":                      false,
		digits + "0":                      true,
		digits[1:]:                        true,
		digits[1:] + "g":                  true,
		"reader " + digits:                true,
		"readers of the news":             true,
		"bXkgdmFsdWU=":                    true,
		" ":                               true,
	} {
		refusal := &redlock.Denial{Reason: redlock.ReasonHeld, Owner: value, Left: -1}
		require.Equal(t, want, strings.Contains(refusal.Error(), "(not a lock of this library)"), "the library of %q", value)
		require.Equal(t, want, foreign(value) != "", "the command of %q", value)
	}
	require.Empty(t, foreign(""), "there is none")
	for _, value := range []string{"readers", "permits"} { // what a refusal calls those that share a lock
		require.NotContains(t, (&redlock.Denial{Reason: redlock.ReasonHeld, Owner: value}).Error(), "(not a lock of this library)")
	}
}
