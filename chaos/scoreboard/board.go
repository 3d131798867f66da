package scoreboard

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/subject"
)

// Settings are the same for all runs of a board.
type Settings struct {
	Fleet   string  `json:"fleet"`
	Nodes   int     `json:"nodes"`
	Clients int     `json:"clients"`
	TTL     int64   `json:"ttl_millis"`
	Seconds float64 `json:"seconds"` // how long a run lasts; its script may take longer
	Seed    uint64  `json:"seed"`    // the first
	Seeds   int     `json:"seeds"`   // how many, one after another
}

// A Board is the table. It can be written as JSON and read again.
type Board struct {
	Settings
	Whole     bool   `json:"whole"` // every run was done, or cannot be done here
	Scenarios []Row  `json:"scenarios"`
	Subjects  []Col  `json:"subjects"`
	Cells     []Cell `json:"cells"` // row by row
}

// A Row is a scenario.
type Row struct {
	Name  string `json:"name"`
	Short string `json:"short"` // what happens in it
}

// A Col is a column: a subject.
type Col struct {
	Name      string `json:"name"`
	About     string `json:"about,omitempty"`
	OneServer bool   `json:"one_server,omitempty"` // its locks are on the first node only
}

// A Cell is one subject in one scenario.
type Cell struct {
	Scenario string `json:"scenario"`
	Subject  string `json:"subject"`
	Text     string `json:"text"` // for people, as in the table
	Runs     []Run  `json:"runs"` // by seed
}

// A Run is what came of one run.
type Run struct {
	Seed    uint64        `json:"seed"`
	Verdict check.Verdict `json:"verdict,omitempty"` // none: it did not run, and Why says why
	// Violations are their kinds, the gravest first.
	Violations []check.ViolationKind `json:"violations,omitempty"`
	// Longest is how long two clients at most believed at the same time that they had the lock.
	Longest float64 `json:"overlap_longest_millis,omitempty"`
	// Why is the first violation of the gravest kind; or why the run is unsure; or why there was none.
	Why        string          `json:"why,omitempty"`
	Cause      string          `json:"cause,omitempty"`       // of that violation
	Unable     bool            `json:"unable,omitempty"`      // the scenario cannot be run here with this subject
	NotChecked []check.LeftOut `json:"not_checked,omitempty"` // the verdict has a *
	Acquired   int             `json:"acquired"`
	Replay     string          `json:"replay"` // the command that repeats it
}

// gravity is the order of violations: of several, a cell names the first.
var gravity = []check.ViolationKind{
	check.Overlap, check.StaleWriteAccepted, check.LostUpdate, check.LateLoss, check.FenceDuplicate, check.FenceInversion,
	check.Register, check.Overtaken, check.ValidWriteRefused, check.Orphan,
}

// board makes a board that has the runs that were done before.
func (o *Options) board() (*Board, error) {
	b := &Board{Settings: o.Settings}
	for _, s := range o.Subjects {
		b.Subjects = append(b.Subjects, Col{s.Name(), subject.Describe(s), o.Nodes > 1 && subject.Quorum(s, o.Nodes) == 1})
	}
	for _, play := range o.Scenarios {
		b.Scenarios = append(b.Scenarios, Row{play.Name, play.Short})
		for _, s := range o.Subjects {
			b.Cells = append(b.Cells, Cell{Scenario: play.Name, Subject: s.Name(), Runs: []Run{}})
		}
	}
	b.conclude()
	if o.Before == nil {
		return b, nil
	}
	return b, b.take(o.Before)
}

// cell finds a cell. nil: the board has none.
func (b *Board) cell(scenario, subject string) *Cell {
	i := slices.IndexFunc(b.Cells, func(c Cell) bool { return c.Scenario == scenario && c.Subject == subject })
	if i < 0 {
		return nil
	}
	return &b.Cells[i]
}

// add enters a run, in place of what it may have of that seed.
func (b *Board) add(scenario, subject string, r Run) {
	c := b.cell(scenario, subject)
	c.Runs = slices.DeleteFunc(c.Runs, func(other Run) bool { return other.Seed == r.Seed })
	c.Runs = append(c.Runs, r)
	slices.SortFunc(c.Runs, func(a, b Run) int { return cmp.Compare(a.Seed, b.Seed) })
	b.conclude()
}

// has reports whether there is a verdict.
func (b *Board) has(t Trial) bool {
	c := b.cell(t.Scenario.Name, t.Subject.Name())
	return slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Seed == t.Seed && r.Verdict != "" })
}

// conclude says what the runs mean.
func (b *Board) conclude() {
	b.Whole = true
	for i := range b.Cells {
		c := &b.Cells[i]
		c.Text = c.text(b.Seeds)
		failed := func(r Run) bool { return r.Verdict == "" && !r.Unable }
		b.Whole = b.Whole && len(c.Runs) == b.Seeds && !slices.ContainsFunc(c.Runs, failed)
	}
}

// take enters the runs with a verdict of another board that has the same settings.
func (b *Board) take(other *Board) error {
	if other.Settings != b.Settings {
		return fmt.Errorf("its runs had other settings: %v, not %v", other.Settings, b.Settings)
	}
	for _, c := range other.Cells {
		if b.cell(c.Scenario, c.Subject) == nil {
			return fmt.Errorf("it has %s with %s, which is not asked for; name what it has, or another file", c.Scenario, c.Subject)
		}
		for _, r := range c.Runs {
			if r.Verdict != "" {
				b.add(c.Scenario, c.Subject, r)
			}
		}
	}
	return nil
}

func (s Settings) String() string {
	return fmt.Sprintf("--fleet %s --seconds %v --seed %d --seeds %d (%d nodes, %d clients, TTL %d ms)",
		s.Fleet, s.Seconds, s.Seed, s.Seeds, s.Nodes, s.Clients, s.TTL)
}

// runOf is what a board has of an outcome. A violation counts also beside an error.
func runOf(seed uint64, outcome *chaos.Outcome, err error, replay string) Run {
	r := Run{Seed: seed, Replay: replay}
	if err != nil && (outcome == nil || outcome.Verdict != check.Unsafe) {
		r.Why, r.Unable = err.Error(), errors.Is(err, chaos.ErrUnable)
		return r
	}
	r.Verdict, r.NotChecked, r.Acquired = outcome.Verdict, outcome.LeftOut, outcome.Acquired
	r.Longest = outcome.OverlapLongest
	for _, kind := range gravity {
		i := slices.IndexFunc(outcome.Violations, func(v check.Violation) bool { return v.Kind == kind })
		if i < 0 {
			continue
		}
		if len(r.Violations) == 0 {
			r.Why, r.Cause = outcome.Violations[i].Text, outcome.Violations[i].Cause.Text
		}
		r.Violations = append(r.Violations, kind)
	}
	switch {
	case r.Verdict == check.Unsafe:
	case outcome.Error != "":
		r.Why = "aborted: " + outcome.Error
	case len(outcome.Panics) > 0:
		r.Why = "it panicked: " + outcome.Panics[0]
	case r.Acquired == 0: // that is why it is unsure
		r.Why = "nobody got the lock"
	case r.Verdict == check.Unsure && len(r.NotChecked) > 0:
		r.Why = "not checked: " + r.NotChecked[0].String()
	}
	return r
}

// Read reads a board from a file of JSON. nil: there is no such file.
func Read(path string) (*Board, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := &Board{}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("%s: it is no scoreboard: %w", path, err)
	}
	if b.Seeds == 0 {
		return nil, fmt.Errorf("%s: it is no scoreboard", path)
	}
	return b, nil
}

// Write writes the board into a file of JSON. The file is complete at any moment.
func (b *Board) Write(path string) error {
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return replace(path, append(data, '\n'))
}
