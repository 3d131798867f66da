package redlock

import (
	"testing"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/require"
)

// Who reads a refusal from its beginning learns who holds the lock, and not first that some node was not asked.
func TestARefusalBeginsWithWhatTheNodesSaid(t *testing.T) {
	err := &RoundError{Op: "acquire", Names: []string{"x"}, Need: 3, Denied: 3, Unknown: 2, kind: ErrHeld,
		Err: multierror.Append(nil, &NodeError{"a", errNotNeeded}, &NodeError{"b", &Denial{}}, &NodeError{"c", errCutShort},
			&NodeError{"d", &Denial{}}, &NodeError{"e", errSilent})}
	require.Equal(t, `redlock: held by another: acquire "x" (0 granted, 3 denied, 2 unknown, need 3): held [b d]; `+
		"no answer in time [e]; not asked, since the others' answers were enough [a]; no answer before the wait ended [c]", err.Error())
}

// What a server says goes to terminals and logs.
func TestWhatIsNotPrintableDoesNotReachATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"a node":    "a node",
		"a\x1b[31m": "a [31m",
		"a\u009bm":  "a m",
		"a\xff\x9b": "a\ufffd\ufffd",
	} {
		require.Equal(t, want, (&NodeError{Node: text, Err: errSilent}).Error()[:len(want)], "%q", text)
	}
}
