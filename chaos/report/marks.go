package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/quorumlock/redlock/chaos/check"
)

// marks places the numbers of the violations above the lanes, and returns their height. If there is no space left for a
// number, it joins the mark before it.
func (t *timeline) marks(violations []check.Violation, prefix string) int {
	var free []float64
	var last []int // the last mark of each row
	for i, v := range violations {
		x := t.share(int64(v.At)) * baseWidth
		row := slices.IndexFunc(free, func(f float64) bool { return f <= x })
		if row < 0 && len(free) == maxMarkRows {
			t.join(last[maxMarkRows-1], i+1, v)
			free[maxMarkRows-1] = max(free[maxMarkRows-1], t.share(t.Marks[last[maxMarkRows-1]].At)*baseWidth+float64(markWidth(7)))
			continue
		}
		if row < 0 {
			row = len(free)
			free, last = append(free, 0), append(last, 0)
		}
		number := strconv.Itoa(i + 1)
		free[row], last[row] = x+float64(markWidth(len(number)))+6, len(t.Marks)
		t.Marks = append(t.Marks, shape{
			X: t.percent(int64(v.At)), At: int64(v.At), Y: axisHeight + row*markHeight, Text: number,
			Href: "#" + prefix + "violation-" + number, ID: prefix + "mark-" + number, Title: markTitle(i+1, v),
			Violations: []int{i + 1},
		})
	}
	return len(free) * markHeight
}

// markWidth is the width of a mark in pixels.
func markWidth(letters int) int { return max(18, 8+7*letters) }

func (t *timeline) join(mark, number int, v check.Violation) {
	m := &t.Marks[mark]
	m.Violations = append(m.Violations, number)
	m.Text = fmt.Sprintf("%d+%d", m.Violations[0], len(m.Violations)-1)
	if len(m.Violations) <= 10 {
		m.Title += "\n" + markTitle(number, v)
	}
}

func markTitle(number int, v check.Violation) string {
	return fmt.Sprintf("violation %d: %s at %s, clients %s", number, words(v.Kind), seconds(int64(v.At)), clientList(v.Clients))
}

// bands draws the times of violations, merged where they overlap, and a line where each violation begins.
func (t *timeline) bands(violations []check.Violation) {
	from, to := int64(-1), int64(-1)
	flush := func() {
		if to > from {
			t.Bands = append(t.Bands, shape{X: t.percent(from), W: t.percent(to - from)})
		}
	}
	for i, v := range violations { // ordered by time
		begin, end := int64(v.At), int64(v.At+v.For)
		if begin > to {
			flush()
			from, to = begin, end
		}
		to = max(to, end)
		t.Lines = append(t.Lines, shape{X: t.percent(begin), Title: markTitle(i+1, v), Violations: []int{i + 1}})
	}
	flush()
}

// maxFaultLines is the maximum number of faults for which each gets a line through all lanes. More would hide the
// leases.
const maxFaultLines = 60

func (t *timeline) faultLines(faults []check.FaultResult) {
	if len(faults) > maxFaultLines {
		return
	}
	for _, f := range faults {
		t.FaultLines = append(t.FaultLines, shape{X: t.percent(nanos(f.Begin))})
	}
}

// ticks makes about ten ticks, at round times.
func (t *timeline) ticks() {
	step := roundStep(float64(t.EndNanos) / 1e9 / 10)
	for i := 0; ; i++ {
		at := int64(math.Round(float64(i) * step * 1e9))
		if at > t.EndNanos {
			return
		}
		s := shape{X: t.percent(at), Text: strconv.FormatFloat(math.Round(float64(i)*step*1e6)/1e6, 'f', -1, 64) + " s", At: at}
		switch {
		case i == 0:
			s.Anchor = "start"
		case t.share(at) > 0.96:
			s.Anchor = "end"
		default:
			s.Anchor = "middle"
		}
		t.Ticks = append(t.Ticks, s)
	}
}

// roundStep returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least least.
func roundStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, by := range []float64{1, 2, 5} {
		if by*power >= least*(1-1e-9) {
			return by * power
		}
	}
	return 10 * power
}
