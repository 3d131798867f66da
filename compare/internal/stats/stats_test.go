package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var nan = math.NaN()

func TestTheMedianOfAnEvenNumberIsBetweenTheTwoInTheMiddle(t *testing.T) {
	assert.Equal(t, Summary{Median: 2, Min: 1, Max: 9, Rounds: 3}, Summarize([]float64{9, 1, 2}))
	assert.Equal(t, Summary{Median: 3, Min: 1, Max: 9, Rounds: 4}, Summarize([]float64{9, 1, 2, 4}))
	assert.Equal(t, Summary{Median: 7, Min: 7, Max: 7, Rounds: 1}, Summarize([]float64{7}))
}

func TestARoundWithoutAMeasurementDoesNotCount(t *testing.T) {
	assert.Equal(t, Summary{Median: 2, Min: 1, Max: 3, Rounds: 2}, Summarize([]float64{nan, 3, nan, 1}))
	assert.Equal(t, Summary{}, Summarize(nil))
	assert.Equal(t, Summary{}, Summarize([]float64{nan}))
}

func TestSummarizeLeavesItsInputAlone(t *testing.T) {
	values := []float64{3, 1, 2}
	Summarize(values)
	assert.Equal(t, []float64{3, 1, 2}, values)
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	// The second round was twice as slow for both, so the ratio is the same.
	assert.Equal(t, []float64{3, 3}, Ratios([]float64{300, 150}, []float64{100, 50}))
}

func TestARatioToNothingIsNone(t *testing.T) {
	ratios := Ratios([]float64{1, nan, 0, 4}, []float64{0, 2, 0, 2})
	require.Len(t, ratios, 4)
	assert.True(t, math.IsNaN(ratios[0]) && math.IsNaN(ratios[1]) && math.IsNaN(ratios[2]), "%v", ratios)
	assert.Equal(t, 2.0, ratios[3])
	assert.Len(t, Ratios([]float64{1, 2, 3}, []float64{1}), 1)
}

func TestQuantilesAreThoseOfTheSortedDurationsToThreeDigits(t *testing.T) {
	r := NewRecorder()
	random := rand.New(rand.NewPCG(1, 2))
	durations := make([]time.Duration, 10_000)
	var wg sync.WaitGroup
	for i := range durations {
		durations[i] = time.Duration(random.ExpFloat64()*float64(time.Millisecond)) + 10*time.Microsecond
	}
	for g := range 50 {
		wg.Go(func() {
			for i := g; i < len(durations); i += 50 {
				r.Record(g, durations[i])
			}
		})
	}
	wg.Wait()
	slices.Sort(durations)
	d := r.Merge()
	assert.Equal(t, int64(len(durations)), d.Count())
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
		assert.InEpsilon(t, durations[int(q*float64(len(durations)))-1], d.Quantile(q), 0.002, "quantile %v", q)
	}
	assert.InEpsilon(t, durations[len(durations)-1], d.Max(), 0.001)
}

func TestDurationsOutOfRangeCountAsTheEndsOfTheRange(t *testing.T) {
	r := NewRecorder()
	r.Record(0, -time.Second)
	r.Record(1, time.Hour)
	d := r.Merge()
	assert.Equal(t, int64(2), d.Count())
	assert.InEpsilon(t, longest, d.Max(), 0.001)
	assert.Zero(t, d.Quantile(0.5))
}

func TestNothingRecordedIsZero(t *testing.T) {
	d := NewRecorder().Merge()
	assert.Zero(t, d.Count())
	assert.Zero(t, d.Quantile(0.99))
	assert.Zero(t, d.Max())
}

func TestRecordingDoesNotAllocate(t *testing.T) {
	r := NewRecorder()
	assert.Zero(t, testing.AllocsPerRun(1000, func() { r.Record(3, time.Millisecond) }))
}
