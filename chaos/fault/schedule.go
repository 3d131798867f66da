package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/redlock/internal/sleep"
)

// A Timed is a fault with its beginning and its length.
type Timed struct {
	At    time.Duration
	Fault Fault
	Lasts time.Duration // 0: the fault is instant
}

// String returns the form that ParseTimed reads, such as "1.5s kill(node-1) for 2s".
func (t Timed) String() string {
	text := fmt.Sprintf("%v %v", t.At, t.Fault)
	if t.Lasts != 0 {
		text += fmt.Sprintf(" for %v", t.Lasts)
	}
	return text
}

// ParseTimed parses the result of String.
func ParseTimed(text string) (Timed, error) {
	wrong := func(err error) (Timed, error) { return Timed{}, fmt.Errorf("%q: %w", text, err) }
	words := strings.Fields(text)
	closes := slices.IndexFunc(words, func(word string) bool { return strings.HasSuffix(word, ")") }) // Parse takes spaces
	after := len(words) - 1 - closes
	if closes < 1 || after != 0 && (after != 2 || words[closes+1] != "for") {
		return wrong(errors.New("write it as 1.5s kill(node-1) for 2s"))
	}
	var t Timed
	var err error
	if t.At, err = time.ParseDuration(words[0]); err != nil {
		return wrong(fmt.Errorf("%q is no time; write when it begins as 1.5s or 500ms", words[0]))
	}
	if t.Fault, err = Parse(strings.Join(words[1:closes+1], " ")); err != nil {
		return wrong(err)
	}
	if after == 2 {
		if t.Lasts, err = time.ParseDuration(words[closes+2]); err != nil {
			return wrong(fmt.Errorf("%q is no time; write how long it lasts as 2s or 500ms", words[closes+2]))
		}
		if t.Lasts == 0 {
			return wrong(errors.New("for 0: say for how long, as in: for 2s"))
		}
	}
	if err := t.check(); err != nil {
		return wrong(err)
	}
	return t, nil
}

func (t Timed) check() error {
	if err := t.Fault.check(); err != nil {
		return err
	}
	switch {
	case t.At < 0 || t.Lasts < 0:
		return errors.New("times must not be negative")
	case t.Fault.Lasts() && t.Lasts == 0:
		return fmt.Errorf("%s lasts until it is healed: say for how long, as in: for 2s", t.Fault.Verb)
	case !t.Fault.Lasts() && t.Lasts != 0:
		return fmt.Errorf("%s is instant: leave out for how long", t.Fault.Verb)
	}
	return nil
}

// MarshalText returns String, so that a fault is one string in JSON.
func (t Timed) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is ParseTimed.
func (t *Timed) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTimed(string(text))
	return err
}

// Ends returns when the fault is over.
func (t Timed) Ends() time.Duration { return t.At + t.Lasts }

// A Schedule is the list of faults of a run, ordered by time.
type Schedule []Timed

// Check returns an error if a fault is wrong in itself, of a node that is not among these, or of a client beyond so many, or
// if one would end another: two that are healed by the same act overlap.
func (s Schedule) Check(nodes []string, clients int) error {
	for i, t := range s {
		if err := t.check(); err != nil {
			return fmt.Errorf("fault %d, %v: %w", i+1, t, err)
		}
		for _, u := range s[:i] {
			if t.Fault.Lasts() && t.Fault.ends(u.Fault) && t.At < u.Ends() && u.At < t.Ends() {
				return fmt.Errorf("fault %d, %v: it overlaps %v, and the end of one would end both; let them follow each other", i+1, t, u)
			}
		}
		switch f := t.Fault; {
		case f.Node != "" && !slices.Contains(nodes, f.Node):
			return fmt.Errorf("fault %d, %v: there is no %q; there are %s", i+1, t, f.Node, strings.Join(nodes, ", "))
		case f.Client > clients:
			return fmt.Errorf("fault %d, %v: there are only %d clients", i+1, t, clients)
		}
	}
	return nil
}

// Has reports whether the schedule has a fault with one of the verbs.
func (s Schedule) Has(verbs ...Verb) bool { return s.count(verbs...) > 0 }

func (s Schedule) count(verbs ...Verb) (n int) {
	for _, t := range s {
		if slices.Contains(verbs, t.Fault.Verb) {
			n++
		}
	}
	return n
}

// Spares returns how many servers without an address the schedule takes.
func (s Schedule) Spares() int { return s.count(Replace, Follow) }

// String prints one fault per line.
func (s Schedule) String() string {
	var lines []string
	for _, t := range s {
		lines = append(lines, t.String())
	}
	return strings.Join(lines, "\n")
}

// ParseSchedule parses the result of String.
func ParseSchedule(text string) (Schedule, error) {
	var s Schedule
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		t, err := ParseTimed(line)
		if err != nil {
			return nil, err
		}
		s = append(s, t)
	}
	return s, nil
}

// Random makes a schedule of the given length. The same generator gives the same schedule. A fault lasts between a
// tenth of scale and one and a half times scale, and so does the pause between the beginnings of two faults. A node has
// at most one fault at a time, and none for scale after a fault. Durations are whole milliseconds, for readability.
func Random(r *rand.Rand, nodes []string, verbs []Verb, length, scale time.Duration) Schedule {
	upTo := func(d time.Duration) time.Duration {
		return (d/10 + time.Duration(r.Int64N(int64(d)*7/5))).Round(time.Millisecond)
	}
	free := make([]time.Duration, len(nodes)) // when each node may have the next fault
	var s Schedule
	for at := upTo(scale); at < length; at += upTo(scale) {
		i := r.IntN(len(nodes))
		verb := verbs[r.IntN(len(verbs))]
		t := Timed{At: at, Fault: On(verb, nodes[i])}
		if t.Fault.Lasts() {
			t.Lasts = upTo(scale)
		}
		if verb == Delay {
			t.Fault.By = (scale/50 + time.Duration(r.Int64N(int64(scale)/5))).Round(time.Millisecond)
		}
		if at < free[i] || at+t.Lasts > length {
			continue
		}
		free[i] = at + t.Lasts + scale
		s = append(s, t)
	}
	return s
}

// Run executes the schedule from now on. Where one fault ends when another begins, it ends first. Run returns when the last fault has healed, or when ctx ends.
func (s *Site) Run(ctx context.Context, schedule Schedule) error {
	type step struct {
		at   time.Duration
		heal bool
		Fault
	}
	var steps []step
	for _, t := range schedule {
		steps = append(steps, step{at: t.At, Fault: t.Fault})
		if t.Fault.Lasts() {
			steps = append(steps, step{at: t.At + t.Lasts, heal: true, Fault: t.Fault})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		if a.at == b.at && a.heal != b.heal {
			if a.heal { // or it would end the fault that begins
				return -1
			}
			return 1
		}
		return cmp.Compare(a.at, b.at)
	})
	began := time.Now()
	for _, d := range steps {
		if err := sleep.For(ctx, d.at-time.Since(began)); err != nil {
			return err
		}
		do := s.Begin
		if d.heal {
			do = s.Heal
		}
		if err := do(ctx, d.Fault); err != nil {
			return err
		}
	}
	return nil
}
