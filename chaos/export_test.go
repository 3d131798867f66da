package chaos

import "time"

// SetEndPatience sets how long a subject may take to close its clients, and returns what it was. No run may be under way.
func SetEndPatience(d time.Duration) (before time.Duration) {
	before, endPatience = endPatience, d
	return before
}
