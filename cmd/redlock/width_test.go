package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheWidthOfATextIsThatOnATerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "nightly": 7, "für": 3, "fu\u0308r": 3, "夜間バッチ": 10, "한글": 4, "ｱｲ": 2, "Ａ": 2, "…–→": 3,
		"🔒": 2, "☎\ufe0f": 2, "☎": 1, "𠀀": 2} {
		require.Equal(t, want, displayWidth(text), text)
	}
}

// A character of two columns that would end beyond the width is left out.
func TestATextIsCutAndPaddedByItsWidth(t *testing.T) {
	t.Parallel()
	require.Equal(t, "夜間", cut("夜間", 4))
	require.Equal(t, "夜…", cut("夜間", 3))
	require.Equal(t, "夜…", cut("夜間バ", 4))
	require.Equal(t, "e\u0301…", cut("e\u0301夜", 2))
	require.Equal(t, "…", cut("夜", 1))
	require.Equal(t, "夜  |", pad("夜", 4)+"|")
	require.Equal(t, "  夜", padLeft("夜", 4))
	require.Equal(t, "夜間  x", beside("夜間", "x", 7))
	require.Equal(t, "夜…", beside("夜間", "x", 3))
	require.Equal(t, []int{2, 2, 2}, []int{runeWidth('가'), runeWidth(0x1f200), runeWidth(0x1fae0)})
}
