package measure

import (
	"fmt"
	"math/rand/v2"
)

// Keys is which names the goroutines lock.
type Keys string

const (
	Distinct Keys = "distinct" // nobody wants what another has
	Hot      Keys = "hot"      // all want the same
	Zipf     Keys = "zipf"     // a few are wanted often, most of them rarely
)

const (
	// distinctNames is how many names there are in all, at the least; minRing is how many a goroutine takes in
	// turn, at the least. With one alone, a library that returns from its release before all servers have it
	// would compete with itself.
	distinctNames = 1 << 14
	minRing       = 8
	// zipfNames and zipfExponent: the first name gets about a fifth of the requests, the first ten a half.
	zipfNames    = 1000
	zipfExponent = 1.1
)

// source returns a function that yields the names of one of so many goroutines, made in advance. It is not for
// concurrent use.
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
