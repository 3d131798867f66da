package traffic

import "time"

// SetGrace makes the wait for a subject that is stuck one that a test can wait for.
func (a *Actor) SetGrace(d time.Duration) { a.grace = d }
