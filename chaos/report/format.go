package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/history"
)

// seconds prints a moment of the run.
func seconds(nanos int64) string { return fmt.Sprintf("%.3f s", float64(nanos)/1e9) }

// lasting prints a length of time with about three digits.
func lasting(nanos int64) string {
	d := time.Duration(nanos)
	switch a := d.Abs(); {
	case a >= 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case a >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case a >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case a >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case a == 0:
		return "0"
	}
	return fmt.Sprintf("%.0f µs", float64(d)/1e3)
}

// nanos converts the milliseconds of a result.
func nanos(millis float64) int64 { return int64(math.Round(millis * 1e6)) }

// maybe prints optional milliseconds.
func maybe(millis *float64, otherwise string) string {
	if millis == nil {
		return otherwise
	}
	return lasting(nanos(*millis))
}

// rate is the share of answered acquires that were granted.
func rate(acquired, refused, errors int) string {
	all := acquired + refused + errors
	if all == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(acquired)/float64(all))
}

// plain makes text one line without control characters. It may come from a server or from another library.
func plain(text string) string {
	return strings.TrimSpace(strings.Map(printable, text))
}

// printable is the letter, or a space in place of one that controls what shows it.
func printable(r rune) rune {
	if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
		return ' '
	}
	return r
}

// panicLines returns what a panic said, and the lines of its stack.
func panicLines(text string) (what string, stack []string) {
	first, rest, _ := strings.Cut(text, "\n")
	for line := range strings.Lines(rest) {
		stack = append(stack, plain(line))
	}
	return plain(first), stack
}

func clientList(clients []int) string {
	if len(clients) == 0 {
		return "–"
	}
	names := make([]string, len(clients))
	for i, c := range clients {
		names[i] = strconv.Itoa(c)
	}
	return strings.Join(names, ", ")
}

func nodeList(nodes []string) string {
	if len(nodes) == 0 {
		return "–"
	}
	return plain(strings.Join(nodes, ", "))
}

// words returns the kind of a violation for people.
func words(kind check.ViolationKind) string { return strings.ReplaceAll(string(kind), "_", " ") }

// lockKind returns for people what kind of lock was judged.
func lockKind(r check.Result) string {
	switch {
	case r.Lock == history.Mutex:
		return "mutex"
	case r.Permits > 0:
		return fmt.Sprintf("%s, %s", plain(string(r.Lock)), count(r.Permits, "permit"))
	}
	return plain(string(r.Lock))
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// faultName is the text on the bar of a fault. The lane shows which node or client it affects, except the client of a
// fault between a node and a client.
func faultName(f *check.FaultResult) string {
	if f.Node != "" && f.Client != 0 {
		return fmt.Sprintf("%s client %d", f.Fault, f.Client)
	}
	return f.Fault
}

// faultPlace is what the fault affected.
func faultPlace(f *check.FaultResult) string {
	switch {
	case f.Node != "" && f.Client != 0:
		return fmt.Sprintf("%s, client %d", f.Node, f.Client)
	case f.Node != "":
		return f.Node
	case f.Client != 0:
		return fmt.Sprintf("client %d", f.Client)
	}
	return "all"
}
