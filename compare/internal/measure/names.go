package measure

import (
	"fmt"
	"math/rand/v2"
)

// Keys says which names the goroutines lock.
type Keys string

const (
	Distinct Keys = "distinct" // each goroutine has its own names
	Hot      Keys = "hot"      // all use the same name
	Zipf     Keys = "zipf"     // a few names are used often, most rarely
)

const (
	// distinctNames is the minimum number of all names. minRing is the minimum number of names that a goroutine uses in
	// turn. With only one, a library that returns from a release before all servers have it would compete with itself.
	distinctNames = 1 << 14
	minRing       = 8
	// With zipfNames and zipfExponent the first name gets about a fifth of the requests, the first ten names half of
	// them.
	zipfNames    = 1000
	zipfExponent = 1.1
)

// source returns a function that returns the names of one goroutine in turn. The names are made in advance. The
// function must not be called concurrently.
func (k Keys) source(prefix string, goroutine, goroutines int) func() string {
	switch k {
	case Hot:
		name := prefix + "/hot"
		return func() string { return name }
	case Zipf:
		names := make([]string, zipfNames)
		for i := range names {
			names[i] = fmt.Sprintf("%s/%d", prefix, i)
		}
		z := rand.NewZipf(rand.New(rand.NewPCG(uint64(goroutine), 0)), zipfExponent, 1, zipfNames-1)
		return func() string { return names[z.Uint64()] }
	default:
		names := make([]string, max(minRing, distinctNames/goroutines))
		for i := range names {
			names[i] = fmt.Sprintf("%s/%d/%d", prefix, goroutine, i)
		}
		next := 0
		return func() string {
			next++
			return names[next%len(names)]
		}
	}
}
