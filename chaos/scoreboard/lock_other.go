//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package scoreboard

// lock does nothing here: there is no lock that ends with its process in the same way.
func lock(string) (unlock func(), err error) { return func() {}, nil }
