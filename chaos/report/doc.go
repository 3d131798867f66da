// Package report writes the results of chaos runs: as JSON for programs, as a table for terminals, and as one HTML page
// with a timeline, which needs no other files.
//
// It judges nothing. The results come from package check; the history is only drawn.
//
// # What the timeline shows
//
// The lane of a node shows its faults, and which op of a violation had its key. The lane of a client shows its
// acquires: thin while it waited, thick while it believed that it held the lock. The belief begins with the granted
// event. It ends with the release, with the noticed loss, or when the client last saw its lease valid, whichever is
// first. If nothing ended the lease, it ends with the last read or write. Violations cross all lanes, and have the
// numbers of the list below.
//
// # Long runs
//
// A page is never too large for a browser. Acquires that would be narrower than half a pixel at full zoom are drawn
// together as blocks. A block is denser if the lock was held for a larger part of it. If there are still too many
// shapes, the shortest of the others are drawn together as well. Acquires of a violation are always drawn one by one.
// So are acquires next to a fault or a violation, unless there are too many.
package report
