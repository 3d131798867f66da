// Package report writes what came of chaos runs: as JSON for programs, as a table for terminals, and as one
// HTML page with a timeline, which needs nothing beside itself.
//
// It judges nothing. What it tells is that of package check; the history is only drawn.
//
// # What the timeline shows
//
// A lane a node has what was done to it, and for the ops of a violation also whose key it had. A lane a client
// has its acquires: thin while it waited, thick while it believed that it held the lock, which is from the
// granted event to the earliest of the release, the noticed loss and the last moment when it saw its lease
// valid. Where nothing ended the lease that is its last read or write. Violations go across all lanes, and
// have the numbers of the list below.
//
// # Long runs
//
// A page stays of a size that browsers are quick with. Acquires that would be narrower than half a pixel at
// full zoom are drawn together, as blocks that are the denser the longer the lock was held in them; of what is
// left, always the shortest are drawn together until there are few enough. Those of a violation are always
// drawn one by one, and so are those next to a fault or a violation, as long as these are not too many too.
package report
