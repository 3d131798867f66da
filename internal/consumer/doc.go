// Package consumer tests what a user of this library gets: a module outside of this repository, which gets the library
// and the adapters from a module proxy. The proxy is made from the working tree.
package consumer
