package subject

import (
	"fmt"
	"strings"
)

// All lists the subjects that the harness brings along: this library first, then the baselines.
func All() []Subject {
	return []Subject{Redlock{}, SetnxExpire{}, GetSet{}, GetDel{}, Single{}, Watchdog{}, PlainRedlock{}}
}

// ByName finds one of All.
func ByName(name string) (Subject, error) {
	var names []string
	for _, s := range All() {
		if s.Name() == name {
			return s, nil
		}
		names = append(names, s.Name())
	}
	return nil, fmt.Errorf("there is no subject %q; there are %s", name, strings.Join(names, ", "))
}

// Describe returns a subject's one line about itself: what document it follows, or what it is.
func Describe(s Subject) string {
	if d, ok := s.(interface{ About() string }); ok {
		return d.About()
	}
	return ""
}

// Quorum is on how many of a run's nodes a subject's token owns the lock: on most of them, unless the subject
// has a method Quorum(nodes int) int that says otherwise, as those of one master do.
func Quorum(s Subject, nodes int) int {
	if q, ok := s.(interface{ Quorum(nodes int) int }); ok {
		return q.Quorum(nodes)
	}
	return nodes/2 + 1
}

// OneMaster is embedded by subjects that use the first node alone.
type OneMaster struct{}

// Quorum returns 1.
func (OneMaster) Quorum(int) int { return 1 }

// Renews says whether a lease goes on by itself until it is released: if the subject has a method Renews()
// bool that says so.
func Renews(s Subject) bool {
	r, ok := s.(interface{ Renews() bool })
	return ok && r.Renews()
}
