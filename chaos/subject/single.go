package subject

import "context"

// Single is the "correct implementation with a single instance" from the Redis documentation ("Distributed Locks
// with Redis"): SET NX PX with a random value, released by a compare-and-delete script.
//
// Its weakness is named on the same page. Replication is asynchronous, so a promoted replica may not know the lock.
// A master that restarts without its data does not know it either.
type Single struct{ OneMaster }

// Name returns "single".
func (Single) Name() string { return "single" }

// About describes the subject in one line.
func (Single) About() string {
	return "SET NX PX and compare-and-delete on one master with a replica: two owners after a failover"
}

// Open connects to the first node.
func (Single) Open(_ context.Context, o Options) (Client, error) {
	return baseline{try: setNX, release: compareAndDelete}.open(o)
}
