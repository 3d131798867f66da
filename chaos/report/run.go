package report

import (
	"encoding/json"
	"io"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/history"
)

// A Run is what is told of one run. Only Result is required.
type Run struct {
	Result check.Result
	// Events are its history, for the timeline. Without them that has faults and violations only.
	Events []history.Event
	// Compare are results of the same scenario for other subjects, so that a zero means something.
	Compare []check.Result
	// Unmet are things that the scenario expected and that were not so; they are no part of the verdict.
	Unmet []string
	// Panics are the subject's.
	Panics []string
	// Error is why the scenario was not played to its end, if it was not.
	Error string
}

// MarshalJSON gives one object: the fields of the result, and beside them unmet, panics, error and compare.
func (r Run) MarshalJSON() ([]byte, error) {
	object := struct {
		check.Result
		Unmet   []string       `json:"unmet"`
		Panics  []string       `json:"panics"`
		Error   string         `json:"error,omitempty"`
		Compare []check.Result `json:"compare,omitempty"`
	}{Result: listed(r.Result), Unmet: orEmpty(r.Unmet), Panics: orEmpty(r.Panics), Error: r.Error}
	for _, other := range r.Compare {
		object.Compare = append(object.Compare, listed(other))
	}
	return json.Marshal(object)
}

// listed has empty lists in place of null ones, which readers would have to treat apart.
func listed(r check.Result) check.Result {
	r.Faults, r.Violations, r.LeftOut = orEmpty(r.Faults), orEmpty(r.Violations), orEmpty(r.LeftOut)
	return r
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// JSON writes what report.json holds: the object of one run, or several under runs.
func JSON(w io.Writer, runs []Run) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if len(runs) == 1 {
		return encoder.Encode(runs[0])
	}
	return encoder.Encode(struct {
		Runs []Run `json:"runs"`
	}{orEmpty(runs)})
}
