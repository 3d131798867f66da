package stats

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The resolution of a recorder: three digits, up to a hundred seconds.
const (
	longest = 100 * time.Second
	digits  = 3
)

// A Recorder collects durations from many goroutines. The zero value is not usable; see [NewRecorder].
type Recorder struct {
	shards []shard
}

// A shard has its own histogram, because histograms are not safe for concurrent use. One histogram for each of
// thousands of goroutines would cost more than what is measured.
type shard struct {
	mu        sync.Mutex // guards the histogram
	histogram *hdrhistogram.Histogram
	_         [48]byte // keeps neighbours out of one cache line
}

// NewRecorder makes an empty recorder.
func NewRecorder() *Recorder {
	r := &Recorder{shards: make([]shard, 16)}
	for i := range r.shards {
		r.shards[i].histogram = newHistogram()
	}
	return r
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(longest), digits)
}

// Record records one duration. Goroutines with different numbers rarely wait for each other. It does not allocate.
func (r *Recorder) Record(goroutine int, d time.Duration) {
	s := &r.shards[goroutine%len(r.shards)]
	s.mu.Lock()
	_ = s.histogram.RecordValue(int64(min(max(d, 0), longest))) // always in range
	s.mu.Unlock()
}

// Merge returns everything that was recorded so far.
func (r *Recorder) Merge() Distribution {
	all := newHistogram()
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		all.Merge(s.histogram)
		s.mu.Unlock()
	}
	return Distribution{all}
}

// A Distribution is a distribution of durations.
type Distribution struct {
	histogram *hdrhistogram.Histogram
}

// Count returns the number of durations.
func (d Distribution) Count() int64 { return d.histogram.TotalCount() }

// Quantile returns the duration that the fraction q of all do not exceed; 0 if there are none.
func (d Distribution) Quantile(q float64) time.Duration {
	return time.Duration(d.histogram.ValueAtQuantile(100 * q))
}

// Max returns the longest duration.
func (d Distribution) Max() time.Duration { return time.Duration(d.histogram.Max()) }
