package main

import (
	"strings"
	"unicode"
)

// How wide a text is on a terminal, in columns.

// wide are the characters that take two columns: East Asian Width W and F (https://www.unicode.org/reports/tr11, Unicode
// 15), with a few more among the emoji. One that counts as too wide leaves a gap. One that counts as too narrow breaks the
// line.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x2329, 0x232a, 1}, {0x23e9, 0x23ec, 1}, {0x23f0, 0x23f3, 3},
		{0x25fd, 0x25fe, 1}, {0x2614, 0x2615, 1}, {0x2648, 0x2653, 1}, {0x267f, 0x267f, 1}, {0x2693, 0x2693, 1},
		{0x26a1, 0x26a1, 1}, {0x26aa, 0x26ab, 1}, {0x26bd, 0x26be, 1}, {0x26c4, 0x26c5, 1}, {0x26ce, 0x26ce, 1},
		{0x26d4, 0x26d4, 1}, {0x26ea, 0x26ea, 1}, {0x26f2, 0x26f3, 1}, {0x26f5, 0x26f5, 1}, {0x26fa, 0x26fd, 3},
		{0x2705, 0x2705, 1}, {0x270a, 0x270b, 1}, {0x2728, 0x2728, 1}, {0x274c, 0x274e, 2}, {0x2753, 0x2755, 1},
		{0x2757, 0x2757, 1}, {0x2795, 0x2797, 1}, {0x27b0, 0x27bf, 15}, {0x2b1b, 0x2b1c, 1}, {0x2b50, 0x2b55, 5},
		{0x2e80, 0x303e, 1}, {0x3041, 0x3247, 1}, {0x3250, 0x4dbf, 1}, {0x4e00, 0xa4c6, 1}, {0xa960, 0xa97c, 1},
		{0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1}, {0xfe10, 0xfe19, 1}, {0xfe30, 0xfe6b, 1}, {0xff01, 0xff60, 1},
		{0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{
		{0x16fe0, 0x1b2fb, 1}, {0x1f004, 0x1f004, 1}, {0x1f0cf, 0x1f0cf, 1}, {0x1f18e, 0x1f18e, 1}, {0x1f191, 0x1f19a, 1},
		{0x1f200, 0x1faff, 1}, {0x20000, 0x3fffd, 1},
	},
}

// emojiStyle makes an emoji, two columns wide, of the character before it.
const emojiStyle = '\ufe0f'

// displayWidth is how many columns a printable text takes, or fewer by a terminal that draws several characters as one.
func displayWidth(s string) (sum int) {
	for _, r := range s {
		sum += runeWidth(r)
	}
	return sum
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300 || r == emojiStyle:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me): // an accent on the character before it
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-displayWidth(s)))
}

func padLeft(s string, width int) string {
	return strings.Repeat(" ", max(0, width-displayWidth(s))) + s
}

// cut shortens a line to the width.
func cut(s string, width int) string {
	if displayWidth(s) <= width {
		return s
	}
	used := 0
	for i, r := range s {
		if used += runeWidth(r); used >= width { // the last column is for the dots
			return s[:i] + "…"
		}
	}
	return s
}

// beside puts two texts at the two ends of a line, if there is room.
func beside(left, right string, width int) string {
	if displayWidth(left)+1+displayWidth(right) > width {
		return cut(left, width)
	}
	return pad(left, width-displayWidth(right)) + right
}
