package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	chaosfault "github.com/quorumlock/redlock/chaos/fault"
)

// A scheduleFile is a schedule of faults with what else a run needs, for --schedule. docs/failover.md describes it.
type scheduleFile struct {
	About   string              `json:"about,omitempty"` // for people
	Nodes   int                 `json:"nodes,omitempty"`
	Clients int                 `json:"clients,omitempty"`
	TTL     textDuration        `json:"ttl,omitzero"`
	Seconds float64             `json:"seconds,omitempty"`
	Seed    uint64              `json:"seed,omitempty"`
	Faults  chaosfault.Schedule `json:"faults"`
}

// A textDuration is written as people write it: 500ms.
type textDuration time.Duration

func (d textDuration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *textDuration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`"ttl": %q is no time; write it as 2s or 500ms`, text) // no other field is of this type
	}
	*d = textDuration(parsed)
	return nil
}

func readSchedule(path string) (f scheduleFile, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return f, &exitError{exitUnable, err}
	}
	reader := json.NewDecoder(bytes.NewReader(text))
	reader.DisallowUnknownFields()
	err = reader.Decode(&f)
	if err == nil {
		if _, more := reader.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one object")
		}
	}
	if err == nil && f.Faults == nil {
		err = errors.New(`it has no "faults"`)
	}
	if err != nil {
		return f, usage("--schedule %s: %w", path, inSchedule(string(text), err))
	}
	return f, nil
}

// oneSchedule is a file for --schedule, as an example.
const oneSchedule = `{"faults": ["1s kill(node-1) for 2s"]}`

// scheduleFields are the fields of a scheduleFile.
func scheduleFields() string {
	var names []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[scheduleFile]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// firstQuoted finds what an error quotes of a file.
var firstQuoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// inSchedule says in an error about the text of a file in which line it is, and what the file may have.
func inSchedule(text string, err error) error {
	at, quoted := -1, firstQuoted.FindString(err.Error())
	if quoted != "" {
		at = strings.Index(text, quoted)
	}
	what := strings.TrimPrefix(err.Error(), "time: ")
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch field, unknown := strings.CutPrefix(what, "json: unknown field "); {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("it is empty; write for example %s", oneSchedule)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it ends too soon; write for example %s", oneSchedule)
	case errors.As(err, &syntax):
		at, what = int(syntax.Offset)-1, fmt.Sprintf("%v; write for example %s", syntax, oneSchedule)
	case errors.As(err, &kind) && kind.Field == "":
		at, what = int(kind.Offset)-1, "it is no object; write for example "+oneSchedule
	case errors.As(err, &kind):
		at, what = int(kind.Offset)-1, fmt.Sprintf("%q takes no %s; write for example %s", kind.Field, kind.Value, oneSchedule)
	case unknown:
		what = fmt.Sprintf("there is no %s; there are %s", field, scheduleFields())
	case quoted == `"faults"`:
		return fmt.Errorf("%w; write for example %s", err, oneSchedule)
	}
	if at >= 0 {
		what = fmt.Sprintf("line %d: %s", 1+strings.Count(text[:min(at, len(text))], "\n"), what)
	}
	return errors.New(what)
}

func (f scheduleFile) write(path string) error {
	return writeFile(path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(f)
	})
}

// scheduleFile returns what a run with these faults needs.
func (o *chaosOptions) scheduleFile(about string, faults chaosfault.Schedule) scheduleFile {
	return scheduleFile{
		About: about, Nodes: o.nodes, Clients: o.clients, TTL: textDuration(o.ttl), Seconds: o.seconds, Seed: o.seed, Faults: faults,
	}
}

// takeSchedule takes what the file of --schedule says and no flag does.
func (o *chaosOptions) takeSchedule(given func(flag string) bool) error {
	f, err := readSchedule(o.schedule)
	if err != nil {
		return err
	}
	o.faults = f.Faults
	take(&o.nodes, f.Nodes, given("nodes"))
	take(&o.clients, f.Clients, given("clients"))
	take(&o.ttl, time.Duration(f.TTL), given("ttl"))
	take(&o.seed, f.Seed, given("seed"))
	if take(&o.seconds, f.Seconds, given("seconds")); f.Seconds == 0 && !given("seconds") {
		return o.takeLength()
	}
	return nil
}

// take takes what a file says, if it says anything and the flag was not given.
func take[T comparable](flag *T, file T, given bool) {
	if zero := *new(T); file != zero && !given {
		*flag = file
	}
}

// takePlan takes --schedule and --search, which are instead of --scenario.
func (o *chaosOptions) takePlan(given func(flag string) bool) error {
	if !given("schedule") && !given("search") {
		return nil
	}
	for _, pair := range [][2]string{{"schedule", "search"}, {"schedule", "scenario"}, {"search", "scenario"}, {"search", "beside"}} {
		if given(pair[0]) && given(pair[1]) {
			return usage("--%s and --%s: give one of them", pair[0], pair[1])
		}
	}
	if given("schedule") {
		return o.takeSchedule(given)
	}
	return o.takeSearch(given)
}

// shellWord is a text as a shell reads it.
func shellWord(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("./-_+=:,@%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return text
	}
	return fmt.Sprintf("'%s'", strings.ReplaceAll(text, "'", `'\''`))
}
