// Package stats summarizes the results of several rounds.
package stats

import (
	"math"
	"slices"
)

// A Summary is one quantity over several rounds. With an even number of rounds, the median is the mean of the two in
// the middle.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Rounds int     `json:"rounds"`
}

// Summarize ignores values that are NaN: rounds without a measurement.
func Summarize(values []float64) Summary {
	values = slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(values) == 0 {
		return Summary{}
	}
	slices.Sort(values)
	return Summary{Median: median(values), Min: values[0], Max: values[len(values)-1], Rounds: len(values)}
}

// Ratios divides round by round, not median by median, because a slow machine affects both values of a round. Rounds in
// which a value is missing, or below is zero, are NaN.
func Ratios(above, below []float64) []float64 {
	ratios := make([]float64, min(len(above), len(below)))
	for i := range ratios {
		ratios[i] = above[i] / below[i]
		if math.IsInf(ratios[i], 0) {
			ratios[i] = math.NaN()
		}
	}
	return ratios
}

func median(sorted []float64) float64 {
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
