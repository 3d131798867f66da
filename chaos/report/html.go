package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/quorumlock/redlock/chaos/check"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"css":        func() template.CSS { return template.CSS(pageCSS) },
	"js":         func() template.JS { return template.JS(pageJS) },
	"maybe":      maybe,
	"plain":      plain,
	"headline":   func(text string) string { first, _ := panicLines(text); return first },
	"below":      func(text string) string { _, stack := panicLines(text); return strings.Join(stack, "\n") },
	"words":      words,
	"lock":       lockKind,
	"parts":      func(command string) []string { return strings.SplitAfter(plain(command), " ") },
	"clientList": clientList,
	"nodeList":   nodeList,
	"rate":       rate,
	"seconds":    func(v check.Violation) string { return seconds(int64(v.At)) },
	"lasting":    func(v check.Violation) string { return lasting(int64(v.For)) },
	"begin":      func(f check.FaultResult) string { return seconds(nanos(f.Begin)) },
	"lasted":     lasted,
	"faultPlace": func(f check.FaultResult) string { return faultPlace(&f) },
	"micros":     func(n int64) string { return lasting(n * 1000) },
	"next":       func(i int) int { return i + 1 },
	"minus":      func(a, b int) int { return a - b },
	"half":       func(a int) int { return a / 2 },
	"plus":       func(a, b int) int { return a + b },
	"hue":        hue,
	"markWidth":  markWidth,
}).Parse(pageHTML))

// A runView is a run in the form that the template needs.
type runView struct {
	Run
	ID       string // prefix of the ids of the run, so that several runs fit on a page
	Timeline *timeline
	Phases   []phase
	Numbers  []number
	Confirms string
}

// Safe reports whether the verdict is safe.
func (v runView) Safe() bool { return v.Result.Verdict == check.Safe }

// HTML writes one page for one or several runs. The page needs no other files, and works without scripts and on paper.
func HTML(w io.Writer, runs ...Run) error {
	views := make([]runView, len(runs))
	for i := range runs {
		id := fmt.Sprintf("run-%d-", i+1)
		views[i] = runView{
			Run: runs[i], ID: id, Timeline: newTimeline(&runs[i], id), Phases: phases(&runs[i].Result),
			Numbers: numbers(&runs[i]), Confirms: confirms(&runs[i].Result.Confirmed),
		}
	}
	var out bytes.Buffer // so that a page is written completely or not at all
	if err := page.Execute(&out, views); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	// Names come from the history, and a terminal would obey what they may have.
	_, err := w.Write(bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printable(r)
	}, out.Bytes()))
	return err
}

// lasted describes how long a fault lasted.
func lasted(f check.FaultResult) string {
	switch {
	case f.Heal == nil:
		return "never healed"
	case *f.Heal <= f.Begin:
		return "instant"
	}
	return lasting(nanos(*f.Heal - f.Begin))
}
