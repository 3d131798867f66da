package main

import (
	"html/template"
	"io"

	chaoscheck "github.com/quorumlock/redlock/chaos/check"
)

// writePage writes one page of all runs that needs nothing beside itself.
//
// It has no timeline. That is to come from a package of its own, which reads histories.
func writePage(w io.Writer, runs []*chaosRun) error { return page.Execute(w, runs) }

// A pageRow is one number of a run, and the baseline's beside it.
type pageRow struct {
	What         string
	Here, Beside any
}

// rows are the numbers that a reader asks for first.
func (r *chaosRun) rows() []pageRow {
	numbers := []struct {
		what string
		of   func(*chaoscheck.Result) any
	}{
		{"verdict", func(c *chaoscheck.Result) any { return c.Verdict }},
		{"acquired", func(c *chaoscheck.Result) any { return c.Acquired }},
		{"refused", func(c *chaoscheck.Result) any { return c.Refused }},
		{"errors", func(c *chaoscheck.Result) any { return c.Errors }},
		{"overlaps", func(c *chaoscheck.Result) any { return c.Overlaps }},
		{"overlap, ms", func(c *chaoscheck.Result) any { return c.OverlapTime }},
		{"losses noticed late", func(c *chaoscheck.Result) any { return c.LateLosses }},
		{"lost updates", func(c *chaoscheck.Result) any { return c.LostUpdates }},
		{"stale writes refused", func(c *chaoscheck.Result) any { return c.StaleWritesRefused }},
		{"stale writes accepted", func(c *chaoscheck.Result) any { return c.StaleWritesAccepted }},
		{"fences given twice", func(c *chaoscheck.Result) any { return c.FenceDuplicates }},
		{"fences that went back", func(c *chaoscheck.Result) any { return c.FenceInversions }},
		{"orphans", func(c *chaoscheck.Result) any { return c.Orphans }},
		{"p50 before, during, after, µs", func(c *chaoscheck.Result) any {
			return [3]int64{c.Latency.Before.P50, c.Latency.During.P50, c.Latency.After.P50}
		}},
		{"p99 before, during, after, µs", func(c *chaoscheck.Result) any {
			return [3]int64{c.Latency.Before.P99, c.Latency.During.P99, c.Latency.After.P99}
		}},
	}
	var rows []pageRow
	for _, n := range numbers {
		row := pageRow{What: n.what, Here: n.of(&r.Result)}
		if r.Beside != nil {
			row.Beside = n.of(&r.Beside.Result)
		}
		rows = append(rows, row)
	}
	return rows
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{"rows": (*chaosRun).rows}).Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>redlock chaos</title>
<style>
body { font: 15px/1.4 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
td, th { text-align: left; padding: .1em 1.5em .1em 0 } .unsafe, .bad { color: #b00020 } code { font-size: 90% }
</style>
{{range .}}<h2>{{.Scenario}}: <span class="{{.Verdict}}">{{.Verdict}}</span></h2>
<p>{{.Proves}}</p>
<table><tr><th><th>{{.Subject}}{{with .Beside}}<th>{{.Subject}}{{end}}
{{$beside := .Beside}}{{range rows .}}<tr><td>{{.What}}<td>{{.Here}}{{if $beside}}<td>{{.Beside}}{{end}}
{{end}}</table>
{{range .Unmet}}<p class="bad">Not so: {{.}}</p>
{{end}}{{range .Panics}}<p class="bad">{{.}}</p>
{{end}}{{with .Error}}<p class="bad">Broken off: {{.}}</p>
{{end}}{{with .Result.Faults}}<h3>Faults</h3><ul>
{{range .}}<li>{{printf "%.0f" .Begin}} ms: {{.Fault}} {{.Node}}{{if .Client}} client {{.Client}}{{end}}
{{end}}</ul>
{{end}}{{with .Violations}}<h3>Violations</h3><ul class="bad">
{{range .}}<li>{{.Kind}}: {{.Text}}
{{end}}</ul>
{{end}}{{with .Replay}}<p>Again: <code>{{.}}</code></p>
{{end}}{{end}}</html>
`))
