package traffic

import "time"

// SetGrace shortens the wait for a subject that does not return.
func (a *Actor) SetGrace(d time.Duration) { a.grace = d }
