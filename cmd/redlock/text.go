package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// What is printed: one line at a time, and nothing in it that a terminal would obey. Names of locks, and what servers and
// other programs wrote, can be anything.

// liveTerminal is the terminal to which w writes, if it may get colours and be redrawn. NO_COLOR (see no-color.org) stands for
// both here: who sets it wants plain lines.
func liveTerminal(w io.Writer) *os.File {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" || os.Getenv("NO_COLOR") != "" {
		return nil
	}
	return file
}

// say prints one line. Its prefix distinguishes it from the output of the command.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "redlock: %s\n", oneLine(fmt.Sprintf(format, args...)))
}

// inFlags says with the flags of this command what the library says with the fields of its Config.
var inFlags = strings.NewReplacer("in Node.TLS.RootCAs (--ca)", "with --ca", "in Node.TLS.Certificates (--cert and --key)", "with --cert and --key",
	", or set Node.TLS.ServerName", "", "Config.Durable is set", "--durable is set", "or unset Durable", "or give --durable=false",
	"Client.Enroll with OnlyNew or `redlock enroll", "`redlock enroll", "use another name or Prefix", "use another KEY or --prefix",
	"*time.Millisecond, for example", "ms, for example",
	"Client.Enroll and ChangeConfig", "`redlock enroll --change-config`, which takes from most nodes what no flag gives")

// Where the library's error names a node by its index, this command has named the node.
var indexOfSame = regexp.MustCompile(`invalid: Nodes\[\d+\]: (it is the same server as )`)

// oneLine joins the lines of an error into one. It drops the library's prefix, because say adds the same.
func oneLine(s string) string {
	const prefix = "redlock: "
	text := indexOfSame.ReplaceAllString(inFlags.Replace(printable(s)), "$1")
	if len(text) > len(prefix) {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// printable makes one line of a text. What is not printable becomes a space, and what is not UTF-8 is quoted: terminals
// that expect other encodings obey some of these bytes too.
func printable(s string) string {
	var out strings.Builder
	for i, r := range s {
		switch {
		case r == '\n':
			out.WriteString("; ")
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			out.WriteByte(' ')
		}
	}
	return out.String()
}

// allPrintable makes each of the texts printable.
func allPrintable(texts []string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, printable(text))
	}
	return out
}

// writeJSON prints one line of JSON. What a terminal would obey is escaped, as JSON allows: it means the same.
func writeJSON(w io.Writer, v any) error {
	var line bytes.Buffer
	if err := json.NewEncoder(&line).Encode(v); err != nil {
		return err
	}
	var out bytes.Buffer
	for _, r := range line.String() { // it is UTF-8, and ends with a line break
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// brief quotes what the user wrote, as far as it is needed to find it again.
func brief(text string) string {
	const most = 40
	if utf8.RuneCountInString(text) > most {
		return strconv.Quote(string([]rune(text)[:most])) + "…"
	}
	return strconv.Quote(text)
}

// plural returns "1 node", "2 nodes".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
