// Package sqltest has the tests of package fence on real databases. It is a module of its own, because package fence
// needs no driver.
package sqltest
