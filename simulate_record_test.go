package redlock_test

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// maxMessages is how many of the last messages a record keeps: some seconds of them.
const maxMessages = 4000

// A record is what happened in a world until the first violation: its trace, and the last messages between clients and
// nodes. A seed does not decide the order of goroutines, so it may never break again what it broke in a long run.
type record struct {
	began time.Time

	mu       sync.Mutex // guards the rest
	over     bool
	trace    []entry
	messages []entry // a ring
	next     int     // in the ring
}

// An entry is a line of the record. What a message says is put in words when the record is written.
type entry struct {
	at           time.Duration
	client, node int // from 1; 0: it is a line of the trace
	direction    int
	bytes        []byte // shared with who sent them
}

// trace adds a line to the record.
func (w *world) trace(format string, args ...any) {
	r := w.record
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.trace = append(r.trace, entry{at: time.Since(r.began), bytes: fmt.Appendf(nil, format, args...)})
	}
}

// hears returns a function for link.heard.
func (r *record) hears(client, node int) func(direction int, bytes []byte) {
	return func(direction int, bytes []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.over {
			return
		}
		e := entry{time.Since(r.began), client + 1, node + 1, direction, bytes}
		if len(r.messages) < maxMessages {
			r.messages = append(r.messages, e)
			return
		}
		r.messages[r.next] = e
		r.next = (r.next + 1) % maxMessages
	}
}

// ends keeps what was recorded until now.
func (r *record) ends() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// write writes the record in order of time.
func (r *record) write(out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Concat(r.trace, r.messages[r.next:], r.messages[:r.next])
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	for _, e := range all {
		fmt.Fprintln(out, e)
	}
}

func (e entry) String() string {
	if e.node == 0 {
		return fmt.Sprintf("%12v  %s", e.at, e.bytes)
	}
	arrow := "->"
	if e.direction == replies {
		arrow = "<-"
	}
	return fmt.Sprintf("%12v          client %d %s node-%d: %.600s", e.at, e.client, arrow, e.node, inWords(e.bytes))
}

var lengths = regexp.MustCompile(`(?m)^[*$]\d+\r\n`)

// inWords shows what a client or a server sends: the words of commands and replies, with scripts by their names.
func inWords(sent []byte) string {
	words := strings.Split(lengths.ReplaceAllString(strings.TrimSuffix(string(sent), "\r\n"), ""), "\r\n")
	for i, word := range words {
		if name := redlock.ScriptName(word); name != "" {
			words[i] = name + ".lua"
		}
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '·'
		}
		return c
	}, strings.Join(words, " "))
}

// save writes the record to a file of its own, and returns where it is.
func (r *record) save(seed uint64) string {
	file, err := os.CreateTemp("", fmt.Sprintf("redlock-simulation-%d-*.txt", seed))
	if err != nil {
		return err.Error()
	}
	r.write(file)
	if err := file.Close(); err != nil {
		return err.Error()
	}
	return file.Name()
}
