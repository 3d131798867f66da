package report

import (
	"encoding/json"
	"io"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/history"
)

// A Run is everything about one run. Only Result is required.
type Run struct {
	Result check.Result
	// Events are the history, for the timeline. Without them it shows only faults and violations.
	Events []history.Event
	// Compare are results of other subjects in the same scenario. They show that a zero means something.
	Compare []check.Result
	// Unmet are expectations of the scenario that were not met. They are not part of the verdict.
	Unmet []string
	// Panics are the subject's.
	Panics []string
	// Error is why the scenario was aborted, if it was.
	Error string
}

// MarshalJSON returns one object: the fields of the result, and in addition unmet, panics, error and compare.
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

// listed replaces null lists by empty ones, so that readers need not distinguish them.
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

// JSON writes the contents of report.json: the object of one run, or several under runs.
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
